"""What is a cell told? The request that the probe gets, with the paths of its checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.checkpoints import damage, files, sd15
from runner.checkpoints.files import Checkpoint
from runner.plan import PlannedCell

__all__ = ["Requests"]

_CLASSES = {"sd15": "StableDiffusionPipeline"}


class Requests:
    """Writes checkpoints as they are needed, gives them to the isolation, and makes requests of cells.

    `give` makes a path of this machine readable to cells, and says what it is called there.
    """

    def __init__(self, checkpoints: Path, give: Callable[[Path], str]) -> None:
        self._folder = checkpoints
        self._give = give
        self._lock = threading.Lock()
        self._given: dict[str, tuple[Checkpoint, str]] = {}

    def _checkpoint(self, name: str) -> tuple[Checkpoint, str]:
        with self._lock:
            if name not in self._given:
                written = files.write(name, self._folder)
                self._given[name] = written, self._give(written.path)
            return self._given[name]

    def class_name(self, cell: PlannedCell) -> str:
        return _CLASSES[cell.probe["pipeline"]]

    def weights(self) -> dict[str, Any]:
        """What the guard compares with: always the sound checkpoint, also for a damaged one."""
        written, place = self._checkpoint(damage.CANONICAL)
        found = {name: next((written.path / "folder" / name).glob("*.safetensors")) for name in sd15.COMPONENTS}
        return {
            "files": {name: f"{place}/{path.relative_to(written.path)}" for name, path in found.items()},
            "derived": sd15.DERIVED,
            "ties": [list(tie) for tie in sd15.TIES],
        }

    def request(self, cell: PlannedCell, arrays: bool = False) -> dict[str, Any]:
        """The probe's request; `arrays` asks for the cell's own arrays, as its environment's reference."""
        _, path = self._checkpoint(cell.probe["checkpoint"])
        return {
            "class": self.class_name(cell),
            "folder": f"{path}/folder",
            "single": f"{path}/single.safetensors",
            "components": list(sd15.COMPONENTS),
            "load": cell.probe["load"],
            "offload": cell.probe["offload"],
            "dtype": cell.probe["dtype"],
            "runner": cell.probe["runner"],
            "arrays": arrays,
            "controls": cell.probe["load"] == "controls",
        }
