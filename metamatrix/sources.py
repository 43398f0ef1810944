"""Where do results come from that a command reads? A run's folder, or a data set's.

What reads runs is imported where one is read: a lookup in a data set answers at once.
"""

from __future__ import annotations

from pathlib import Path

from reports.dataset import DatasetModel, read_dataset
from reports.document import CellModel
from runner.errors import MetamatrixError

__all__ = ["cells_of", "dataset_of", "is_run"]


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / "results.sqlite").exists()


def dataset_of(folder: Path) -> DatasetModel:
    """The data set in a folder, or that of the run in it.

    Raises:
        MetamatrixError: there is neither.
    """
    if is_run(folder):
        from metamatrix.dataset import dataset
        from runner.results.folder import RunFolder

        with RunFolder(folder, writing=False) as run:
            found = dataset(run)
        if not len(found):
            raise MetamatrixError(f"no cell of {folder} has a verdict yet", "Run the same command again to go on.")
        return found
    try:
        return read_dataset(folder)
    except ValueError as error:
        raise MetamatrixError(str(error), "Give a run's folder, or one from `metamatrix report --dataset`.") from error


def cells_of(folder: Path) -> list[CellModel]:
    """All cells of a run; of a data set those that it keeps, which have a verdict.

    Raises:
        MetamatrixError: there is neither.
    """
    if is_run(folder):
        from metamatrix.publish import document
        from runner.results.folder import RunFolder

        with RunFolder(folder, writing=False) as run:
            return document(run).cells
    return list(dataset_of(folder).cells())
