"""What is a cell told? The request that the probe gets, with the paths of its checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from runner.checkpoints import damage, files
from runner.checkpoints.files import Checkpoint
from runner.checkpoints.pipelines import PIPELINES
from runner.plan import PlannedCell

__all__ = ["Requests"]


class Requests:
    """Writes checkpoints as they are needed, gives them to the isolation, and makes requests of cells.

    `give` makes a path of this machine readable to cells, and says what it is called there.
    """

    def __init__(self, checkpoints: Path, give: Callable[[Path], str]) -> None:
        self._folder = checkpoints
        self._give = give
        self._lock = threading.Lock()
        self._given: dict[tuple[str, str], tuple[Checkpoint, str]] = {}

    def _checkpoint(self, pipeline: str, name: str) -> tuple[Checkpoint, str]:
        with self._lock:
            if (pipeline, name) not in self._given:
                written = files.write(pipeline, name, self._folder)
                self._given[pipeline, name] = written, self._give(written.path)
            return self._given[pipeline, name]

    def pipelines(self, names: Iterable[str]) -> dict[str, Any]:
        """What a zygote keeps for all cells of a pipeline: its class, and what the guard compares with.

        That is always the sound checkpoint, also for a damaged one.
        """
        return {
            name: {"class": PIPELINES[name].class_name, "weights": self._weights(name)} for name in sorted(set(names))
        }

    def _weights(self, pipeline: str) -> dict[str, Any]:
        _, place = self._checkpoint(pipeline, damage.CANONICAL)
        parts = PIPELINES[pipeline].parts
        return {
            "files": {name: f"{place}/{files.path(pipeline, name)}" for name in parts},
            "derived": {name: dict(part.derived) for name, part in parts.items() if part.derived},
            "ties": [[name, *tie] for name, part in parts.items() for tie in part.ties],
        }

    def request(self, cell: PlannedCell, arrays: bool = False) -> dict[str, Any]:
        """The probe's request; `arrays` asks for the cell's own arrays, as its environment's reference."""
        pipeline = PIPELINES[cell.probe["pipeline"]]
        _, path = self._checkpoint(pipeline.name, cell.probe["checkpoint"])
        return {
            "pipeline": pipeline.name,
            "class": pipeline.class_name,
            "folder": f"{path}/folder",
            "single": "" if pipeline.no_single else f"{path}/{files.SINGLE}",
            "no_single": pipeline.no_single,
            "components": list(pipeline.parts),
            "options": dict(pipeline.options),
            "call": dict(pipeline.call),
            "load": cell.probe["load"],
            "offload": cell.probe["offload"],
            "lifecycle": cell.probe["lifecycle"],
            "dtype": cell.probe["dtype"],
            "runner": cell.probe["runner"],
            "arrays": arrays,
            "controls": cell.probe["load"] == "controls",
        }
