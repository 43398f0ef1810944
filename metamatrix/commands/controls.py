"""`metamatrix controls`: which planted defects the guard of a run caught, environment by environment."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metamatrix.publish import document
from reports.document import ResultsModel
from runner.errors import MetamatrixError
from runner.results.folder import RunFolder

__all__ = ["run_controls"]


def run_controls(folder: Path, as_json: bool) -> int:
    """Print the table; 1 where a control was missed.

    Raises:
        MetamatrixError: no environment of the run has run its controls.
    """
    with RunFolder(folder, writing=False) as run:
        results = document(run)
    rows = [
        {"id": row["id"], "environment": environment.id}
        | {name: row[name] for name in ("pipeline", "expected", "got", "where", "caught")}
        for environment in results.environments
        for row in environment.controls
    ]
    if not rows:
        raise MetamatrixError(
            f"no environment of {folder} has run its controls", "Run it with `metamatrix run --output`."
        )
    if as_json:
        print(json.dumps({"schema_version": 1, "controls": rows}, indent=1))
    else:
        _print(results)
    return 0 if all(row["caught"] for row in rows) else 1


def _print(results: ResultsModel) -> None:
    """One row a defect, one column an environment: what the guard said, marked where it missed in some pipeline."""
    environments = [environment for environment in results.environments if environment.controls]
    table = Table(title=f"planted defects and what the guard said, in {len(environments)} environments")
    table.add_column("defect", no_wrap=True)
    table.add_column("expected")
    for environment in environments:
        table.add_column(environment.id)
    expected = {row["id"]: row["expected"] for environment in environments for row in environment.controls}
    for name, kind in expected.items():
        said = []
        for environment in environments:
            rows = [row for row in environment.controls if row["id"] == name]
            missed = [row for row in rows if not row["caught"]]
            words = ", ".join(dict.fromkeys(kind for row in missed or rows for kind in row["got"])) or "nothing"
            where = ", ".join(row["pipeline"] for row in missed)
            said.append(f"MISSED in {where}: {words}" if missed else words if rows else "not planted")
        table.add_row(*(escape(text) for text in (name, kind, *said)))
    Console().print(table)
