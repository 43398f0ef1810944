"""What ran out while a cell ran? Counters of its container, which all cells of a zygote share.

`State.OOMKilled` of an engine says nothing about a single cell; the counter of the cgroup does, if no other
cell ran at that time. cgroup v1 and v2.
"""

from __future__ import annotations

import os
from typing import Dict, Tuple

__all__ = ["Pressure"]

_OOM = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_PIDS = ("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events")
_FULL = 2 * 1024 * 1024


class Pressure:
    """Reads the counters; outside of a container (`shared` False) there are none, and nothing is ever short."""

    def __init__(self, scratch: str, shared: bool) -> None:
        self._scratch = scratch
        self._shared = shared

    def counts(self) -> Dict[str, int]:
        """Processes that the memory limit has ended so far, and those that the limit of processes has refused."""
        if not self._shared:
            return {"oom_kills": 0, "refused_processes": 0}
        return {"oom_kills": _value(_OOM, "oom_kill"), "refused_processes": _value(_PIDS, "max")}

    def scratch_full(self) -> bool:
        """Whether hardly anything can be written any more."""
        if not self._shared:
            return False
        status = os.statvfs(self._scratch)
        return status.f_bavail * status.f_frsize < _FULL


def _value(places: Tuple[str, ...], name: str) -> int:
    """The number behind `name` in the first of `places` that is there; 0 where the kernel keeps none."""
    for place in places:
        try:
            with open(place, encoding="ascii", errors="replace") as file:
                for line in file:
                    key, _, number = line.partition(" ")
                    if key == name:
                        return int(number)
        except OSError:
            continue
    return 0
