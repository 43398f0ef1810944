"""Is an environment still as it was sealed? A digest over inode, size and time of all its files.

Site-packages are hardlinks into the installer's cache: a cell that wrote there would have changed every
environment on this machine.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["manifest_digest"]


def manifest_digest(folder: Path) -> str:
    """sha256 (hex) over path, inode, size and modification time (ns) of every file below `folder`."""
    lines = []
    pending = [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    status = entry.stat(follow_symlinks=False)
                    lines.append(f"{entry.path}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
