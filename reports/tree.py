"""How does a folder of many files change? At once, and no file in it is written that is as it was."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

__all__ = ["Tree", "compact"]

_AT_FDCWD = -100
_EXCHANGE = 2


class Tree:
    """A folder that is built aside and takes the place of `target` when the `with` block ends well.

    A file whose content has not changed is the old file (a hard link), with its old time. One builder at a time: the
    second waits. What a killed builder left is removed by the next.
    """

    def __init__(self, target: Path) -> None:
        self._target = target.absolute()
        self._building = self._target.with_name(f".{target.name}.new")
        self._folders: set[str] = set()
        self._guard: int | None = None
        self.written = 0
        """How many files are new or other than before."""

    def __enter__(self) -> Tree:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._guard = os.open(self._target.parent, os.O_RDONLY)
        fcntl.flock(self._guard, fcntl.LOCK_EX)
        shutil.rmtree(self._building, ignore_errors=True)
        self._building.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._swap()
        finally:
            shutil.rmtree(self._building, ignore_errors=True)
            if self._guard is not None:
                os.close(self._guard)

    def write(self, path: str, content: bytes) -> None:
        """Put a file at a path below the folder, such as api/v1/index.json.

        Raises:
            ValueError: the path would leave the folder.
        """
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or "\0" in path:
            raise ValueError(f"{path!r} is no path below a folder")
        folder = str(parts.parent)
        if folder not in self._folders:
            (self._building / folder).mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        new, old = f"{self._building}/{path}", f"{self._target}/{path}"
        if _holds(old, content):
            os.link(old, new)
        else:
            self.written += 1
            with open(new, "wb") as file:
                file.write(content)

    def text(self, path: str, content: str) -> None:
        """Put text there, as UTF-8; what UTF-8 cannot say is shown as numbers."""
        self.write(path, content.encode("utf-8", "backslashreplace"))

    def json(self, name: str, value: Any) -> None:
        """Put plain data at api/v1/NAME.json."""
        self.write(f"api/v1/{name}.json", compact(value).encode())

    def script(self, name: str, value: Any) -> None:
        """Hand plain data to the pages, as data/NAME.js.

        JSON in a string, not an object of JavaScript: there a key such as `__proto__` would be more than a key.
        """
        text = compact(value)
        self.write(f"data/{name}.js", f"MM.put({json.dumps(name)},{json.dumps(text)});\n".encode())

    def data(self, name: str, value: Any) -> None:
        """Both: the file for programs and the script for pages."""
        self.json(name, value)
        self.script(name, value)

    def _swap(self) -> None:
        self._building.chmod(0o755)
        if not self._target.exists():
            os.rename(self._building, self._target)
            return
        if not _exchange(self._building, self._target):
            old = self._target.with_name(f".{self._target.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            os.rename(self._target, old)
            os.rename(self._building, self._target)
            shutil.rmtree(old, ignore_errors=True)


def compact(value: Any) -> str:
    """JSON of one line, in ASCII: no character of it means anything to a page, a terminal or a reader's direction."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _holds(path: str, content: bytes) -> bool:
    """Whether a plain file with this content is there."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != len(content):
            return False
        with open(path, "rb") as file:
            return file.read() == content
    except OSError:
        return False


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places at one instant; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
