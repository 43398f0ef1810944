"""`metamatrix report`: from runs to pages, data and files."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from metamatrix.published import published_before
from metamatrix.sources import read_source
from reports.api import Details
from reports.dataset import FILE, DatasetModel
from reports.document import ResultsModel
from reports.junit import write_junit
from reports.publication import NotASite, publish
from reports.summary import summary
from runner.errors import InfrastructureError, MetamatrixError
from runner.whole_files import write_whole

__all__ = ["ReportChoices", "run_report"]


@dataclass(frozen=True, slots=True)
class ReportChoices:
    """What was asked for: the options of the command, as they are named there."""

    folder: Path
    site: Path | None
    dataset: Path | None
    history: str | None
    first: bool
    base_url: str | None
    as_json: bool


def run_report(choices: ReportChoices) -> int:
    """Write everything that was asked for; print where it is. Exit code 0.

    Raises:
        MetamatrixError: there is nothing to report, or the history is not whole.
    """
    folder = choices.folder
    base = _base(choices.base_url)
    if choices.first and choices.history is None:
        raise MetamatrixError("--first says that --history is empty, and there is no --history")
    said = Console(stderr=True)
    with said.status("reading what was published before"):
        earlier = published_before(choices.history, choices.first) if choices.history is not None else []
    with said.status("concluding verdicts"):
        results, kept, details = read_source(folder)
    if not len(kept):
        raise MetamatrixError(
            f"there is no cell in {folder}", "It may be a shard that had none; report the merged folder."
        )
    target = choices.site or folder / "site"
    if choices.dataset is not None and choices.dataset.resolve().is_relative_to(target.resolve()):
        raise MetamatrixError("--dataset lies inside --site, which is replaced as a whole", "Give a folder beside it.")
    files = {"site": target / "index.html"}
    if choices.dataset is not None:
        files["dataset"] = choices.dataset / FILE
        choices.dataset.mkdir(parents=True, exist_ok=True)
        write_whole(files["dataset"], kept.as_json().encode("utf-8", "backslashreplace"))
    if results is not None:
        files |= _write_files(folder, results)
    runs = [*(run for run in earlier if run.run.id != kept.run.id), kept]
    newest = max(runs, key=lambda run: (run.run.started, run.run.id))
    with said.status("writing the site"):
        _publish(runs, target, details if newest is kept else None, base)
    if choices.as_json:
        print(json.dumps({name: str(path) for name, path in files.items()}, indent=1))
    else:
        for name, path in files.items():
            print(f"{name}: {path}")
    return 0


def _publish(runs: list[DatasetModel], target: Path, details: Details | None, base: str | None) -> None:
    try:
        publish(runs, target, details, base)
    except NotASite as error:
        raise MetamatrixError(
            f"{error}; it would be replaced as a whole", "Give a folder of its own with --site, or an empty one."
        ) from error
    except OSError as error:
        where = "a mount point: give a folder inside it" if error.errno == errno.EBUSY else error.strerror
        raise InfrastructureError(f"{target} cannot be written: {where}", "Give another folder with --site.") from error


def _base(address: str | None) -> str | None:
    if address is None:
        return None
    if not address.startswith(("https://", "http://")) or not address.isascii() or not address.isprintable():
        raise MetamatrixError(f"--base-url {address!r} is no address", "Give one such as https://example.org/matrix/.")
    return address if address.endswith("/") else address + "/"


def _write_files(folder: Path, results: ResultsModel) -> dict[str, Path]:
    """Write what is for programs that know runs, and the summary that a job page shows."""
    files = {"results": folder / "results.json", "junit": folder / "junit.xml", "summary": folder / "summary.md"}
    text = summary(results)
    write_whole(files["results"], results.as_json().encode())
    write_whole(files["summary"], text.encode("utf-8", "backslashreplace"))
    write_junit(results, files["junit"])
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(text)
    return files
