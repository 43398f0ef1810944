"""What is a cell told? The request that the probe gets, with the paths of its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner.checkpoints import damage, files, sd15
from runner.checkpoints.files import Checkpoint
from runner.plan import PlannedCell

__all__ = ["Requests"]

_CLASSES = {"sd15": "StableDiffusionPipeline"}


class Requests:
    """Writes checkpoints into the store as they are needed, and makes requests of cells."""

    def __init__(self, checkpoints: Path) -> None:
        self._store = checkpoints
        self._written: dict[str, Checkpoint] = {}

    def _checkpoint(self, name: str) -> Path:
        if name not in self._written:
            self._written[name] = files.write(name, self._store)
        return self._written[name].path

    def class_name(self, cell: PlannedCell) -> str:
        return _CLASSES[cell.probe["pipeline"]]

    def weights(self) -> dict[str, Any]:
        """What the guard compares with: always the sound checkpoint, also for a damaged one."""
        folder = self._checkpoint(damage.CANONICAL) / "folder"
        return {
            "files": {name: str(next((folder / name).glob("*.safetensors"))) for name in sd15.COMPONENTS},
            "derived": sd15.DERIVED,
            "ties": [list(tie) for tie in sd15.TIES],
        }

    def request(self, cell: PlannedCell, arrays: bool = False) -> dict[str, Any]:
        """The probe's request; `arrays` asks for the cell's own arrays, as its environment's reference."""
        path = self._checkpoint(cell.probe["checkpoint"])
        return {
            "class": self.class_name(cell),
            "folder": str(path / "folder"),
            "single": str(path / "single.safetensors"),
            "components": list(sd15.COMPONENTS),
            "load": cell.probe["load"],
            "offload": cell.probe["offload"],
            "dtype": cell.probe["dtype"],
            "runner": cell.probe["runner"],
            "arrays": arrays,
            "controls": cell.probe["load"] == "controls",
        }
