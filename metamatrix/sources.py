"""Where do results come from that a command reads? A run's folder, a data set's, or the address of a published site.

What reads runs is imported where one is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import reports
from metamatrix.answers_cache import kept_answers
from reports.answers import Answers
from reports.names import API, DATASET
from runner.errors import MetamatrixError

if TYPE_CHECKING:
    from reports.api import Details
    from reports.dataset import DatasetModel
    from reports.document import CellModel, ResultsModel

__all__ = ["SHIPPED", "Installed", "answers_from", "cells_of", "dataset_of", "is_address", "is_run", "read_source"]

SHIPPED = Path(reports.__file__).parent / "data"
"""The data sets that come with the program, by date; the newest is asked."""

_ANSWERS = f"{API}/answers.json"
_MOST = 256 * 1024 * 1024


def is_address(text: str) -> bool:
    """Whether it names a published site rather than a folder."""
    return text.startswith(("https://", "http://"))


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / "results.sqlite").exists()


def answers_from(source: str | None) -> Answers:
    """What can be looked up in a folder or at an address; by default in the data that come with the program.

    Raises:
        MetamatrixError: there is nothing that can be read.
    """
    if source is None:
        shipped = sorted(SHIPPED.glob(f"*/{DATASET}"))
        if not shipped:
            raise MetamatrixError("no data set came with this program", "Give one with --data FOLDER.")
        return _kept(shipped[-1].parent)
    if is_address(source):
        return _fetched(source)
    folder = Path(source)
    if folder.name in (DATASET, "index.html"):
        folder = folder.parent
    published = folder / _ANSWERS
    if published.exists() and not is_run(folder) and not (folder / DATASET).exists():
        return _parsed(published.read_bytes(), str(published))
    return _kept(folder)


def _kept(folder: Path) -> Answers:
    def make() -> Answers:
        from reports.evidence import Evidence

        return Evidence([dataset_of(folder)]).answers()

    return kept_answers(folder, make)


def _fetched(address: str) -> Answers:
    """The answers of a published site."""
    from metamatrix.fetch import fetch

    root = address.removesuffix("index.html").rstrip("/")
    place = address if address.endswith(".json") else f"{root}/{_ANSWERS}"
    return _parsed(fetch(place, _MOST), place)


def _parsed(text: bytes, place: str) -> Answers:
    try:
        return Answers.from_json(text)
    except ValueError as error:
        raise MetamatrixError(f"{place} holds no answers: {error}", "Give the site's own address or folder.") from error


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
        if not found.answered:
            raise MetamatrixError(f"no cell of {folder} has a verdict yet", "Run the same command again to go on.")
        return found
    from reports.dataset import read_dataset

    try:
        return read_dataset(folder)
    except ValueError as error:
        raise MetamatrixError(str(error), "Give a run's folder, or one from `metamatrix report --dataset`.") from error


def read_source(folder: Path) -> tuple[ResultsModel | None, DatasetModel, Details | None]:
    """A run with all that its folder knows, whatever has its verdict yet; or a data set, which is all there is then.

    Raises:
        MetamatrixError: there is neither.
    """
    if not is_run(folder) and (folder / DATASET).exists():
        return None, dataset_of(folder), None
    from metamatrix.dataset import dataset
    from metamatrix.details import RunDetails
    from metamatrix.document import document
    from runner.results.folder import RunFolder

    with RunFolder(folder, writing=False) as run:
        results = document(run)
        kept = dataset(run, results)
    return results, kept, RunDetails(folder, results)


Installed = dict[str, dict[str, str]]
"""What is installed in each environment, by its id."""


def cells_of(folder: Path) -> tuple[list[CellModel], Installed]:
    """All cells of a run or a data set, and what their environments have.

    Raises:
        MetamatrixError: there is neither.
    """
    if is_run(folder):
        from metamatrix.document import document
        from runner.results.folder import RunFolder

        with RunFolder(folder, writing=False) as run:
            results = document(run)
        return results.cells, {entry.id: entry.installed for entry in results.environments}
    found = dataset_of(folder)
    return list(found.cells()), {entry.id: entry.installed for entry in found.environments}
