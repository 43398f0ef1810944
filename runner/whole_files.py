"""How is a file written? Whole or not at all: aside first, then under its name."""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["write_once", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` with `content` at once; a reader sees the old file or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    aside.write_bytes(content)
    os.replace(aside, path)


def write_once(path: Path, content: bytes) -> None:
    """The same for a file that is named by its content: one that exists is left alone."""
    if not path.exists():
        write_whole(path, content)
