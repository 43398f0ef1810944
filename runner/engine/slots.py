"""How many cells run at once? A number of slots for the whole run; one who must be alone takes them all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Slots"]


class Slots:
    """Counts running cells. `take` waits for one, `try_take` does not, `all` waits until nothing else runs."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = count
        self._alone_waiting = 0
        self._condition = threading.Condition()

    def take(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._free > 0 and not self._alone_waiting)
            self._free -= 1

    def try_take(self) -> bool:
        with self._condition:
            if self._free == 0 or self._alone_waiting:
                return False
            self._free -= 1
            return True

    def give(self) -> None:
        with self._condition:
            self._free += 1
            self._condition.notify_all()

    @contextmanager
    def all(self) -> Iterator[None]:
        """Hold every slot; who waits for this lets no new cell start."""
        with self._condition:
            self._alone_waiting += 1
            self._condition.wait_for(lambda: self._free == self._count)
            self._free = 0
            self._alone_waiting -= 1
        try:
            yield
        finally:
            with self._condition:
                self._free = self._count
                self._condition.notify_all()
