"""How are versions told, ordered and named?"""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

__all__ = ["PACKAGES", "normal", "public"]

PACKAGES = ("diffusers", "transformers", "accelerate", "torch")
"""In the order in which environments are told apart: what is bumped most comes first."""


def normal(package: str) -> str:
    """A package's name as it is asked for: huggingface-hub and huggingface_hub are one."""
    return package.lower().replace("-", "_").replace(".", "_")


@lru_cache(maxsize=4096)
def public(version: str) -> Version:
    """A version without the build that a wheel adds to it: 2.13.0+cpu is 2.13.0 to who asks."""
    return Version(Version(version).public)
