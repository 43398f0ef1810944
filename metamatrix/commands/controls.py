"""`metamatrix controls`: which planted defects the guard of a run caught, environment by environment.

In memory: the catalogue, planted into every pipeline that loaded well. In a file: the damaged checkpoints, which are
cells of the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metamatrix.document import document
from reports.document import CellModel, ResultsModel
from runner.checkpoints.damage import damaged
from runner.errors import MetamatrixError
from runner.results.folder import RunFolder
from runner.verdicts import Verdict

__all__ = ["run_controls"]

_IN_A_FILE = "refused, or found"
_SEEN = (Verdict.REFUSED, Verdict.ORPHAN_META, Verdict.CORRUPT_WEIGHTS)
"""What a damaged file comes to where it was seen; anything else ended before the guard could see it."""


def run_controls(folder: Path, as_json: bool) -> int:
    """Print the table; 1 where a control was missed, or an environment with answers has run none.

    Raises:
        MetamatrixError: no environment of the run has run its controls.
    """
    with RunFolder(folder, writing=False) as run:
        results = document(run)
    rows = [*_in_memory(results), *_in_files(results)]
    if not any(environment.controls for environment in results.environments):
        raise MetamatrixError(
            f"no environment of {folder} has run its controls", "Run it with `metamatrix run --output`."
        )
    if as_json:
        print(json.dumps({"schema_version": 1, "controls": rows}, indent=1))
    else:
        _print(rows)
    silent = _without(results)
    for environment in silent:
        print(f"no controls ran in {environment}: nothing there can pass", file=sys.stderr)
    return 0 if all(row["caught"] for row in rows) and not silent else 1


def _without(results: ResultsModel) -> list[str]:
    """Environments whose cells got as far as a load, and that have run no controls."""
    loaded = {cell.environment for cell in results.cells if cell.group in ("good", "bad") and cell.stage != "import"}
    return [entry.id for entry in results.environments if entry.id in loaded and not entry.controls]


def _in_memory(results: ResultsModel) -> Iterator[dict[str, Any]]:
    names = ("id", "pipeline", "expected", "got", "expected_verdict", "verdict", "where", "caught")
    for environment in results.environments:
        for row in environment.controls:
            yield {"environment": environment.id, **{name: row[name] for name in names}}


def _in_files(results: ResultsModel) -> Iterator[dict[str, Any]]:
    """Damaged checkpoints, as they are plainly loaded from a folder."""
    for cell in results.cells:
        plain = cell.axes["load"] == "pretrained" and cell.axes["offload"] == "none"
        reached = cell.verdict in _SEEN or cell.verdict == Verdict.PASS
        if plain and damaged(cell.axes["checkpoint"]) and reached:
            yield {
                "environment": cell.environment,
                "id": "checkpoint-" + cell.axes["checkpoint"],
                "pipeline": cell.axes["pipeline"],
                "expected": _IN_A_FILE,
                "got": [cell.verdict],
                "expected_verdict": _IN_A_FILE,
                "verdict": cell.verdict,
                "where": ", ".join(f"{row['module']}.{row['name']}" for row in cell.tensors[:3]),
                "caught": cell.verdict in _SEEN or _harmless(cell),
            }


def _harmless(cell: CellModel) -> bool:
    """A pass says that every weight equals the sound checkpoint: right where a library mends the tie by itself."""
    return cell.axes["checkpoint"] in ("untied", "twin-only")


def _print(rows: list[dict[str, Any]]) -> None:
    """One row a defect, one column an environment: the verdict, marked where it is missed in some pipeline."""
    environments = list(dict.fromkeys(row["environment"] for row in rows))
    table = Table(title=f"planted defects and what the guard said, in {len(environments)} environments")
    table.add_column("defect", no_wrap=True)
    table.add_column("expected")
    for environment in environments:
        table.add_column(environment)
    for name, kind in {row["id"]: row["expected_verdict"] for row in rows}.items():
        said = []
        for environment in environments:
            own = [row for row in rows if row["id"] == name and row["environment"] == environment]
            missed = [row for row in own if not row["caught"]]
            words = ", ".join(dict.fromkeys(row["verdict"] for row in missed or own))
            where = ", ".join(row["pipeline"] for row in missed)
            said.append(f"MISSED in {where}: {words}" if missed else words or "not planted")
        table.add_row(*(escape(text) for text in (name, kind, *said)))
    Console().print(table)
