"""What keeps a cell from writing where it must not? In `venv` isolation, a mount namespace where one can be had.

The store is mounted read-only for the zygote and its cells, and they get a network namespace without
any interface. This guards the cache against accidents; it is no security boundary.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["confined"]

_SCRIPT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


def _prefix(store: Path) -> list[str]:
    unshare = ["unshare", "--mount", "--net"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-current-user", "--keep-caps"]
    return [*unshare, "--", "sh", "-c", _SCRIPT, "sh", str(store)]


@cache
def _works(store: Path) -> bool:
    """Try it once: a file in the store must be readable there, and not writable."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    test = 'test -r "$0/locks" && ! touch "$0/locks/.confined" 2>/dev/null'
    command = [*_prefix(store), "sh", "-c", test, str(store)]
    return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0


def confined(command: Sequence[str], store: Path) -> tuple[list[str], bool]:
    """`command` with the store read-only and no network, and whether that could be had on this machine."""
    if _works(store):
        return [*_prefix(store), *command], True
    return list(command), False
