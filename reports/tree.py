"""How does a folder of many files change? At once, and no file in it is written that is as it was."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path, PurePosixPath
from types import TracebackType

__all__ = ["Tree"]

_AT_FDCWD = -100
_EXCHANGE = 2


class Tree:
    """A folder that is built aside and takes the place of `target` when the `with` block ends well.

    A file whose content has not changed is the old file (a hard link), with its old time. One builder at a time: the
    second waits. What a killed builder left is removed by the next. Where the system cannot let two folders change
    places, there is an instant without the folder.
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
        self._guard = self._claim()
        for path in self._building.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return self

    def _claim(self) -> int:
        """Hold the folder that is built in. While one waits for it, it becomes another: then the new one is claimed."""
        while True:
            self._building.mkdir(exist_ok=True)
            try:
                guard = os.open(self._building, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            fcntl.flock(guard, fcntl.LOCK_EX)
            try:
                if os.path.samestat(os.fstat(guard), os.lstat(self._building)):
                    return guard
            except FileNotFoundError:
                pass  # it has taken its place, and the next one is not there yet
            os.close(guard)

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
        if _holds(old, content) and _link(old, new):
            return
        self.written += 1
        # Not `open`: of two hundred thousand small files its buffers and questions are half the time.
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(file, view) :]
        finally:
            os.close(file)

    def text(self, path: str, content: str) -> None:
        """Put text there, as UTF-8; what UTF-8 cannot say is shown as numbers."""
        self.write(path, content.encode("utf-8", "backslashreplace"))

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


def _link(old: str, new: str) -> bool:
    """Make the old file the new one, too; False on a file system where a file has one name only."""
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            return False
        raise
    return True


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
