"""What does one see while a matrix runs? A live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from runner.checkpoints.damage import not_applicable
from runner.plan import Plan
from runner.results.attempt import Attempt
from runner.results.outcome import judge

__all__ = ["Progress"]

_EVERY = 5.0
"""Seconds between two plain lines of progress."""


class Progress:
    """An observer of the engine. All its methods may be called from any thread."""

    def __init__(self, plan: Plan, done: int, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._lock = threading.Lock()
        self._states = {environment.key: "queued" for environment in plan.environments}
        self._ids = {
            cell.id for cell in plan.cells if not_applicable(cell.probe["checkpoint"], cell.probe["pipeline"]) is None
        }
        self._seen: set[str] = set()
        self._total = len(self._ids)
        self._done_before = done
        self._counts: Counter[str] = Counter()
        self._notes: list[str] = []
        self._started = time.monotonic()
        self._last_line = 0.0
        self._live = Live(self._table(), console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table())
            self._live.stop()
        for note in self._notes:
            self._console.print("note: " + escape(note), highlight=False, soft_wrap=True)

    def environment(self, key: str, state: str) -> None:
        with self._lock:
            self._states[key] = state
            self._show(f"environment {key}: {state}")

    def attempt(self, attempt: Attempt) -> None:
        with self._lock:
            if attempt.cell in self._ids and attempt.cell not in self._seen:
                self._seen.add(attempt.cell)
                self._counts[judge(attempt).verdict.value] += 1
            now = time.monotonic()
            if self._live is not None or now - self._last_line > _EVERY:
                self._last_line = now
                self._show(self._line())

    def note(self, text: str) -> None:
        with self._lock:
            self._notes.append(text)
            self._show(f"note: {text.splitlines()[0] if text else ''}")

    def _done(self) -> int:
        return min(self._total, self._done_before + len(self._seen))

    def _line(self) -> str:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self._counts.items()))
        return f"{self._done()}/{self._total} cells, {self._left()}; so far {counts}"

    def _left(self) -> str:
        """Time left by the pace so far, once there is one."""
        if len(self._seen) < 5:
            return "time left unknown"
        pace = (time.monotonic() - self._started) / len(self._seen)
        return f"about {max(0.0, pace * (self._total - self._done())):.0f} s left"

    def _show(self, line: str) -> None:
        if self._live is not None:
            self._live.update(self._table())
        else:
            self._console.print(escape(line), highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title=escape(self._line()), title_justify="left", box=None)
        table.add_column("environment")
        table.add_column("versions")
        table.add_column("state")
        for environment in self._plan.environments:
            versions = " ".join(f"{name} {version}" for name, version in environment.versions.items())
            table.add_row(environment.key, escape(versions), self._states[environment.key])
        return table
