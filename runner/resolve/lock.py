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

__all__ = ["Lock", "Package", "Platform", "read_lock"]


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


@dataclass(frozen=True, slots=True)
class Platform:
    """What wheels must fit: system and machine as `platform` names them in small letters, libc family.

    `glibc` is the newest (major, minor) that a wheel may ask for; None takes what this machine has.
    """

    system: str
    machine: str
    libc: str
    glibc: tuple[int, int] | None = None

    @classmethod
    def here(cls) -> Platform:
        """This machine's. (`platform.libc_ver` knows only glibc.)"""
        libc = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
        return cls(platform.system().lower(), platform.machine(), libc)

    def is_here(self) -> bool:
        """Whether this machine's own wheels fit: the resolver then needs no word about platforms."""
        here = Platform.here()
        if (self.system, self.machine, self.libc) != (here.system, here.machine, here.libc):
            return False
        return self.glibc is None or self.glibc == tuple(int(part) for part in platform.libc_ver()[1].split(".")[:2])

    def same_as(self, other: Platform) -> bool:
        """Whether environments of both have the same ids."""
        return (self.system, self.machine, self.libc) == (other.system, other.machine, other.libc)

    def words(self) -> str:
        """For messages."""
        return f"{self.system} {self.machine} ({self.libc})"

    def for_uv(self) -> str | None:
        """The value of uv's `--python-platform`, or None where nothing needs to be said."""
        if self.is_here():
            return None
        assert self.glibc is not None
        return f"{self.machine}-manylinux_{self.glibc[0]}_{self.glibc[1]}"

    def tags(self) -> list[str]:
        """The platform tags of wheels that fit, the most specific first."""
        if self.is_here():
            return list(platform_tags())
        if self.glibc is None:
            raise ValueError(f"wheels for {self.words()} are not known here")
        major, newest = self.glibc
        oldest = 5 if self.machine == "x86_64" else 17
        names = [f"manylinux_{major}_{minor}_{self.machine}" for minor in range(newest, oldest - 1, -1)]
        legacy = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
        with_legacy = []
        for minor, name in zip(range(newest, oldest - 1, -1), names, strict=True):
            with_legacy.append(name)
            if minor in legacy and (self.machine == "x86_64" or minor == 17):
                with_legacy.append(f"{legacy[minor]}_{self.machine}")
        return [f"linux_{self.machine}", *with_legacy]


def read_lock(text: str, python: str, target: Platform) -> Lock:
    """Read a pylock.toml for a Python minor version, such as 3.11, on a platform.

    Raises:
        ValueError: it is no lock, or a package has no wheel that fits here.
    """
    pylock = Pylock.from_dict(tomllib.loads(text))
    tags = {tag: rank for rank, tag in enumerate(_tags(python, target))}
    packages = []
    for package in pylock.packages:
        best = _best(package.wheels or (), tags)
        if best is None:
            raise ValueError(f"{package.name} {package.version} has no wheel for Python {python} on {target.machine}")
        packages.append(
            Package(str(package.name), str(package.version), best.filename, best.hashes["sha256"], best.size or 0)
        )
    packages.sort(key=lambda package: package.name)
    identifier = environment_id(
        [(package.name, package.version, package.sha256) for package in packages],
        target.system,
        target.machine,
        target.libc,
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


def _tags(python: str, target: Platform) -> Iterator[Tag]:
    major, minor = (int(part) for part in python.split(".")[:2])
    platforms = target.tags()
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)
