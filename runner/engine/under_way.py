"""Which cells does a zygote have under way, and what did they say so far?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from runner.engine.requests import Requests
from runner.engine.zygote_client import ZygoteClient
from runner.plan import PlannedCell

__all__ = ["UnderWay", "Zygote"]


@dataclass(slots=True)
class UnderWay:
    """A cell that was dispatched: its reports so far, and the message that ended it."""

    cell: PlannedCell
    started: str
    stages: list[dict[str, Any]]
    message: dict[str, Any]
    deadline: float
    holds_slot: bool


class Zygote:
    """A client and the cells that it has under way."""

    def __init__(self, client: ZygoteClient) -> None:
        self.client = client
        self.under_way: dict[str, UnderWay] = {}

    def dispatch(
        self, cell: PlannedCell, requests: Requests, limits: dict[str, int], arrays: bool, holds_slot: bool = True
    ) -> None:
        # The zygote keeps the time limit; the engine only notices when the zygote itself does not.
        deadline = time.monotonic() + limits["seconds"] + 30
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.under_way[cell.id] = UnderWay(cell, now, [], {}, deadline, holds_slot)
        request = requests.request(cell, arrays)
        # CUDA reserves address space that counts as data: there the device's own memory is the limit.
        own = {**limits, "memory_mb": 0} if cell.probe["runner"] == "cuda" else limits
        self.client.send({"kind": "cell", "cell": cell.id, "request": request, "limits": own})

    def receive(self) -> list[UnderWay]:
        """Wait a little; the cells that have ended."""
        ended = []
        for message in self.client.receive(0.2):
            cell = self.under_way.get(message.get("cell", ""))
            if cell is None:
                continue  # the answer to `open`
            if message["kind"] == "stage":
                report = {name: message[name] for name in ("stage", "findings", "facts", "seconds")}
                cell.stages.append(report)
            elif message["kind"] == "ended":
                cell.message = message
                ended.append(self.under_way.pop(cell.cell.id))
        if not ended and any(time.monotonic() > cell.deadline for cell in self.under_way.values()):
            raise self.client.lost("it does not end a cell that is out of time")
        return ended

    def abandon(self) -> list[UnderWay]:
        """Forget what is under way, and say what that was."""
        cells = list(self.under_way.values())
        self.under_way.clear()
        return cells
