"""What may go when the store grows over its budget? The least recently used environments, and what only they needed.

Files are shared by hardlinks (with bytecode and uv's cache), so removing an environment frees nothing until
what it shared goes too. Standard library only, for Python 3.9 and later: in a container this runs in the volume.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Tidying", "last_used", "plan_tidying"]

_YOUNG_SECONDS = 86400.0
"""What was used within this time may be in use by a run that cannot be seen from here."""
_SHARED = (("bytecode",), ("uv-cache", "archive-v0"))
"""Folders whose entries are of use only as long as an environment holds hardlinks to them."""


@dataclass(frozen=True)
class Tidying:
    """What a store holds (`total` bytes), what would go (`names`, below the root), and how many bytes that frees."""

    total: int
    names: tuple[str, ...]
    frees: int

    def carry_out(self, root: Path) -> None:
        """Remove it: environments first lose their record, so that one that is half gone is never taken for whole."""
        for name in self.names:
            (root / name / "metamatrix.json").unlink(missing_ok=True)
            shutil.rmtree(root / name, ignore_errors=True)


def last_used(root: Path, identifier: str) -> float:
    """When an environment was last asked for, in seconds since the epoch; 0 where nothing says so."""
    try:
        return (root / "locks" / identifier).stat().st_mtime
    except OSError:
        return 0.0


def plan_tidying(root: Path, budget: int, keep: Collection[str]) -> Tidying:
    """What must go so that the store is within `budget` bytes again; the files of one inode count once.

    Args:
        root: the store.
        budget: bytes.
        keep: ids of environments that stay whatever happens.
    """
    now = time.time()
    sizes, groups = _walk(root)
    total = sum(sizes.values())
    environments = sorted(
        (name for name in groups if name.startswith("environments/")), key=lambda name: last_used(root, _id(name))
    )
    left_behind = [name for name in _left_behind(root, now) if name in groups]
    gone = set(left_behind)
    freed = _freed(sizes, groups, gone)
    for name in environments:
        if total - freed <= budget:
            break
        if name in gone or _id(name) in keep or now - last_used(root, _id(name)) < _YOUNG_SECONDS:
            continue
        gone.add(name)
        gone |= _unneeded(root, groups, gone, now)
        freed = _freed(sizes, groups, gone)
    if total - freed > budget:
        gone |= _unneeded(root, groups, gone, now)
        freed = _freed(sizes, groups, gone)
    return Tidying(total, tuple(sorted(gone)), freed)


def _id(name: str) -> str:
    return name.rpartition("/")[2]


def _walk(root: Path) -> tuple[dict[int, int], dict[str, set[int]]]:
    """Inode -> bytes on disk, and group (an entry that can be removed by itself) -> its inodes."""
    sizes: dict[int, int] = {}
    groups: dict[str, set[int]] = {}
    for folder, _, files in os.walk(root):
        group = _group(os.path.relpath(folder, root))
        for name in files:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                continue  # it went meanwhile
            sizes[status.st_ino] = status.st_blocks * 512
            groups.setdefault(group, set()).add(status.st_ino)
    return sizes, groups


def _group(folder: str) -> str:
    parts = Path(folder).parts
    for prefix in (("environments",), ("checkpoints",), *_SHARED):
        if parts[: len(prefix)] == prefix and len(parts) > len(prefix):
            return "/".join(parts[: len(prefix) + 1])
    return "rest"


def _left_behind(root: Path, now: float) -> list[str]:
    """Builds and uploads that were killed: under a temporary name, and old."""
    found = []
    for folder, prefix in (("environments", ".building-"), ("checkpoints", ".incoming-"), ("bytecode", ".building-")):
        if (root / folder).is_dir():
            for entry in os.scandir(root / folder):
                if entry.name.startswith(prefix) and now - entry.stat(follow_symlinks=False).st_mtime > _YOUNG_SECONDS:
                    found.append(f"{folder}/{entry.name}")
    return found


def _unneeded(root: Path, groups: dict[str, set[int]], gone: set[str], now: float) -> set[str]:
    """Shared entries of which no environment that stays holds a file; young ones a build may be about to use."""
    held: set[int] = set()
    for name, inodes in groups.items():
        if name.startswith("environments/") and name not in gone:
            held |= inodes
    prefixes = tuple("/".join(prefix) + "/" for prefix in _SHARED)
    unneeded = {name for name, inodes in groups.items() if name.startswith(prefixes) and not inodes & held}
    return {name for name in unneeded if now - _changed(root / name) > _YOUNG_SECONDS}


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _freed(sizes: dict[int, int], groups: dict[str, set[int]], gone: set[str]) -> int:
    stays: set[int] = set()
    for name, inodes in groups.items():
        if name not in gone:
            stays |= inodes
    return sum(size for inode, size in sizes.items() if inode not in stays)
