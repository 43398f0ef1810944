"""What does the folder of a run know that its data set leaves out? Attempts with their logs, controls, locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.document import ResultsModel
from reports.wording import clipped
from runner.results.folder import read_text

__all__ = ["RunDetails"]

_LOCK = 1 << 20


class RunDetails:
    """The details of a run, read from its folder as they are asked for."""

    def __init__(self, folder: Path, results: ResultsModel) -> None:
        self._folder = folder
        self._cells = {cell.subject: cell for cell in results.cells}
        self._environments = {environment.id: environment for environment in results.environments}

    def cell(self, subject: str) -> dict[str, Any]:
        cell = self._cells.get(subject)
        if cell is None:
            return {}
        executions = []
        for attempt in cell.history:
            entry: dict[str, Any] = clipped(attempt.model_dump(mode="json"))
            executions.append({**entry, "text": read_text(self._folder / "logs" / attempt.log) if attempt.log else ""})
        return {"executions": executions, "rerun": cell.rerun}

    def environment(self, identifier: str) -> dict[str, Any]:
        known = self._environments.get(identifier)
        if known is None:
            return {}
        lock = read_text(self._folder / "locks" / known.lock.removeprefix("sha256:"), _LOCK) if known.lock else ""
        return {
            "each_control": clipped(known.controls),
            "direct_url": known.direct_url,
            "torch_build": known.torch_build,
            "lock": lock,
        }
