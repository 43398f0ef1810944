"""How are versions told, ordered and named?"""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

__all__ = ["PACKAGES", "in_order", "normal", "public", "without_build"]

PACKAGES = ("diffusers", "transformers", "accelerate", "torch")
"""In the order in which environments are told apart: what is bumped most comes first."""


def normal(package: str) -> str:
    """A package's name as it is asked for: huggingface-hub and huggingface_hub are one."""
    return package.lower().replace("-", "_").replace(".", "_")


@lru_cache(maxsize=4096)
def public(version: str) -> Version:
    """A version without the build that a wheel adds to it: 2.13.0+cpu is 2.13.0 to who asks."""
    return Version(Version(version).public)


def without_build(version: str) -> str:
    """The same as text; what is no version, such as a commit, as it is."""
    try:
        return str(public(version))
    except ValueError:  # also a number with thousands of digits
        return version


def in_order(version: str) -> tuple[bool, Version | str]:
    """A key to sort versions by; what is none, such as a commit, comes first."""
    try:
        return True, Version(version)
    except ValueError:
        return False, version
