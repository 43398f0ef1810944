"""Small programs for environments, and a small environment for them."""

from __future__ import annotations

import hashlib
import time
import zipfile
from pathlib import Path

from runner.isolation.contract import Channel
from runner.resolve.lock import Lock
from runner.resolve.resolver import Resolver
from runner.resolve.uv import Uv

__all__ = ["LIMITS", "NO_INDEX", "all_of", "program", "small_lock"]

LIMITS = {"seconds": 60, "memory_mb": 64, "disk_mb": 16, "processes": 32}
NO_INDEX = "http://127.0.0.1:9/{backend}"


def small_lock(python: str = "3.11") -> Lock:
    """A lock of one pure wheel with many modules, resolved by uv."""
    resolution = Resolver(Uv(), NO_INDEX, None).resolve({"python": python, "pygments": "2.19.2"}, "cpu")
    assert resolution.lock is not None, resolution
    return resolution.lock


def program(folder: Path, name: str, source: str) -> Path:
    """A zipapp of one file, in the place and under the kind of name that a probe has."""
    (folder / "probe").mkdir(exist_ok=True)
    archive = folder / "probe" / f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:16]}.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", source)
    return archive


def all_of(channel: Channel) -> bytes:
    """What a program says until it ends."""
    said = b""
    deadline = time.monotonic() + 120
    while (data := channel.read(1.0)) != b"":
        said += data or b""
        assert time.monotonic() < deadline, channel.log()
    return said
