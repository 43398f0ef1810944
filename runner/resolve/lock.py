"""What is in a lock? Its packages, the wheel of each that fits one Python on this machine, its id."""

from __future__ import annotations

import hashlib
import platform
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packaging.pylock import PackageWheel, Pylock
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import parse_wheel_filename

from runner.identifiers import environment_id

__all__ = ["Lock", "Package", "libc_family", "read_lock"]


@dataclass(frozen=True, slots=True)
class Package:
    """One locked distribution: the wheel that will be installed, its sha256 and size in bytes (0 if unknown)."""

    name: str
    version: str
    wheel: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Lock:
    """A resolved environment: the text of its pylock.toml, its packages, its id."""

    text: str
    python: str
    packages: tuple[Package, ...]
    environment: str

    @property
    def digest(self) -> str:
        """sha256 (hex) of the lock's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def version(self, package: str) -> str | None:
        name = package.replace("_", "-")
        return next((found.version for found in self.packages if found.name == name), None)


def libc_family() -> str:
    """glibc or musl: wheels differ by it. (`platform.libc_ver` knows only glibc.)"""
    return "glibc" if platform.libc_ver()[0] == "glibc" else "musl"


def read_lock(text: str, python: str) -> Lock:
    """Read a pylock.toml for a Python minor version, such as 3.11, on this machine.

    Raises:
        ValueError: it is no lock, or a package has no wheel that fits here.
    """
    pylock = Pylock.from_dict(tomllib.loads(text))
    tags = {tag: rank for rank, tag in enumerate(_tags(python))}
    packages = []
    for package in pylock.packages:
        best = _best(package.wheels or (), tags)
        if best is None:
            raise ValueError(f"{package.name} {package.version} has no wheel for Python {python} here")
        packages.append(
            Package(str(package.name), str(package.version), best.filename, best.hashes["sha256"], best.size or 0)
        )
    packages.sort(key=lambda package: package.name)
    identifier = environment_id(
        [(package.name, package.version, package.sha256) for package in packages],
        platform.system().lower(),
        platform.machine(),
        libc_family(),
        python,
    )
    return Lock(text, python, tuple(packages), identifier)


def _best(wheels: Any, tags: dict[Tag, int]) -> PackageWheel | None:
    """The wheel that an installer takes: the one with the most specific tag."""
    ranked = [
        (min(tags[tag] for tag in fitting), wheel)
        for wheel in wheels
        if (fitting := parse_wheel_filename(wheel.filename)[3] & tags.keys())
    ]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _tags(python: str) -> Iterator[Tag]:
    major, minor = (int(part) for part in python.split(".")[:2])
    platforms = list(platform_tags())
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)
