"""`metamatrix compare`: what has changed between two runs or data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metamatrix.sources import cells_of
from reports.compare import Change, Comparison, Row, compare
from reports.document import CellModel
from reports.wording import harmless
from runner.errors import MetamatrixError

__all__ = ["run_compare"]

_TOLD = (Change.NEW_RED, Change.NEW_GREEN, Change.FLAKY, Change.NO_ANSWER)
_MOST = 40


def run_compare(before: Path, after: Path, fail_on: str | None, as_json: bool) -> int:
    """Print the comparison; 1 with --fail-on new-red where something good has become bad.

    Raises:
        MetamatrixError: there is nothing to compare, or --fail-on is unknown.
    """
    if fail_on not in (None, Change.NEW_RED):
        raise MetamatrixError(f"--fail-on {fail_on!r} is unknown", "It takes `new-red`.")
    found = compare(cells_of(before), cells_of(after))
    if as_json:
        print(json.dumps(_as_json(found), indent=1))
    else:
        _print(found)
    return 1 if fail_on == Change.NEW_RED and found.counts()[Change.NEW_RED] else 0


def _print(found: Comparison[CellModel]) -> None:
    counts = found.counts()
    print(", ".join(f"{counts[change]} {change}" for change in Change))
    for change in _TOLD:
        rows = found.of(change)
        for row in rows[:_MOST]:
            print(harmless(f"{change:10} {_name(row)}: {_verdict(row.before)} -> {_verdict(row.after)}"))
        if len(rows) > _MOST:
            print(f"{change:10} and {len(rows) - _MOST} more; --json has them all")
    others = sum(1 for row in found.rows if row.another_failure)
    if others:
        print(f"{others} of {counts[Change.SAME_BAD]} same-bad fail in another way than before")


def _name(row: Row[CellModel]) -> str:
    cell = row.cell
    versions = " ".join(f"{package} {version}" for package, version in cell.requested.items() if package != "python")
    return f"{versions} | {' '.join(cell.axes.values())}"


def _verdict(cell: Any) -> str:
    return "nothing" if cell is None else str(cell.verdict or "unfinished")


def _as_json(found: Comparison[CellModel]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "counts": {str(change): found.counts()[change] for change in Change},
        "rows": [
            {
                "subject": row.subject,
                "change": str(row.change),
                "another_failure": row.another_failure,
                "requested": row.cell.requested,
                "axes": row.cell.axes,
                "before": None if row.before is None else row.before.verdict,
                "after": None if row.after is None else row.after.verdict,
                "cause": row.cell.cause,
            }
            for row in found.rows
        ],
    }
