"""What may a cell use? Limits that a child puts on itself right after the fork."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from typing import Any, Dict

__all__ = ["apply", "data_bytes"]

_PR_SET_PDEATHSIG = 1


def data_bytes() -> int:
    """Bytes of private writable memory of this process, as RLIMIT_DATA counts them."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def apply(limits: Dict[str, Any], parent: int) -> None:
    """Own process group, death with the parent, memory, file size, no core dump.

    Args:
        limits: `memory_mb` for the cell beyond what the zygote holds, 0 for none; `disk_mb` per written file.
        parent: the pid that must still be our parent.
    """
    os.setpgid(0, 0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the line above
    if limits["memory_mb"]:
        _limit(resource.RLIMIT_DATA, data_bytes() + int(limits["memory_mb"]) * 1024 * 1024)
    _limit(resource.RLIMIT_FSIZE, int(limits["disk_mb"]) * 1024 * 1024)
    _limit(resource.RLIMIT_CORE, 0)
    # The kernel should rather end this cell than the zygote, which many cells need.
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("900")


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, hard))
