"""How far is a run that another process makes? Read from its folder, without disturbing it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from runner.checkpoints.damage import not_applicable
from runner.plan import Plan
from runner.results.folder import RunFolder

__all__ = ["Live"]


class Live:
    """Watches one run's folder; the pace is that since watching began."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan: Plan | None = None
        self._stamp = 0
        self._first: tuple[float, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """How many cells have an attempt, in all and by environment; `seconds_left` is null until there is a pace."""
        plan = self._read_plan()
        if plan is None:
            return {"running": self.running(), "total": 0, "done": 0, "seconds_left": None, "environments": []}
        with RunFolder(self._folder, writing=False) as run:
            tried = run.tried()
        total, done = Counter[str](), Counter[str]()
        for cell in plan.cells:
            if not_applicable(cell.probe["checkpoint"], cell.probe["pipeline"]) is None:
                total[cell.environment] += 1
                done[cell.environment] += cell.id in tried
        known = [entry for entry in plan.environments if entry.lock is not None]
        rows: list[dict[str, Any]] = [
            {
                "id": entry.key,
                "words": ", ".join(f"{name} {version}" for name, version in entry.versions.items()),
                "total": total[entry.key],
                "done": done[entry.key],
            }
            for entry in known
        ]
        whole, ready = sum(row["total"] for row in rows), sum(row["done"] for row in rows)
        return {
            "running": self.running(),
            "total": whole,
            "done": ready,
            "seconds_left": self._left(whole, ready),
            "environments": rows,
        }

    def running(self) -> bool:
        """Whether a process of this machine holds the folder.

        Linux is asked, because to try the lock could be in a run's way. By the inode alone: on some file systems the
        device that a file says is not the one that its lock says.
        """
        try:
            held = (self._folder / ".lock").stat()
            locks = Path("/proc/locks").read_text(encoding="ascii")
        except OSError:
            return False
        rows = (line.split() for line in locks.splitlines())
        return any(
            {"FLOCK", "WRITE"} <= set(row) and row[5].endswith(f":{held.st_ino}") for row in rows if len(row) > 5
        )

    def _read_plan(self) -> Plan | None:
        """The plan, read again only where it was written again."""
        try:
            stamp = (self._folder / "plan.json").stat().st_mtime_ns
        except OSError:
            return None
        if stamp != self._stamp:
            with RunFolder(self._folder, writing=False) as run:
                self._plan, self._stamp = run.plan(), stamp
        return self._plan

    def _left(self, total: int, done: int) -> int | None:
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
        started, before = self._first
        if done - before < 5:
            return None
        return round((now - started) / (done - before) * (total - done))
