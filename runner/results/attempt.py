"""What is one execution of a cell? A row that is written once and never changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Attempt"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution.

    `mode` is fork or cold; `how` it ended: exited, signal, died (ended by a library), timeout, oom (by the
    limit of its container), crowded (other cells left it too little) or harness; `stages` what the probe
    reported, in order; `conditions` what else could matter (isolation, Python, CPU, limits, …); `log` the
    sha256 of what it printed. Times: `started` ISO 8601 UTC, `seconds` wall clock.
    """

    id: str
    cell: str
    environment: str
    mode: str
    alone: bool
    how: str
    signal: int
    text: str
    stages: list[dict[str, Any]]
    log: str
    started: str
    seconds: float
    peak_rss_kb: int
    probe_version: str
    conditions: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
