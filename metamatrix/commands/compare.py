"""`metamatrix compare`: what has changed between two runs or data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metamatrix.sources import Installed, cells_of
from reports.compare import Change, Comparison, Row, compare
from reports.document import CellModel
from reports.versions import PACKAGES
from reports.wording import harmless
from runner.errors import MetamatrixError

__all__ = ["run_compare"]

_TOLD = (Change.NEW_RED, Change.NEW_GREEN, Change.FLAKY, Change.NO_ANSWER)
_MOST = 40


def run_compare(before: Path, after: Path, fail_on: str | None, as_json: bool) -> int:
    """Print the comparison; 1 with --fail-on new-red where something good has become bad, flaky too.

    Raises:
        MetamatrixError: there is nothing to compare, or --fail-on is unknown.
    """
    if fail_on not in (None, Change.NEW_RED):
        raise MetamatrixError(f"--fail-on {fail_on!r} is unknown", "It takes `new-red`.")
    (old, had), (new, has) = cells_of(before), cells_of(after)
    found = compare(old, new)
    if as_json:
        print(json.dumps(_as_json(found), indent=1))
    else:
        _print(found, {**had, **has})
    return 1 if fail_on == Change.NEW_RED and any(row.turned_bad for row in found.rows) else 0


def _print(found: Comparison[CellModel], installed: Installed) -> None:
    counts = found.counts()
    print(", ".join(f"{counts[change]} {change}" for change in Change))
    for change in _TOLD:
        rows = found.of(change)
        for row in rows[:_MOST]:
            print(harmless(f"{change:10} {_name(row, installed)}: {_verdict(row.before)} -> {_verdict(row.after)}"))
        if len(rows) > _MOST:
            print(f"{change:10} and {len(rows) - _MOST} more; --json has them all")
    others = sum(1 for row in found.rows if row.another_failure)
    if others:
        print(f"{others} of {counts[Change.SAME_BAD]} same-bad fail in another way than before")


def _name(row: Row[CellModel], installed: Installed) -> str:
    """Its axes, the versions that it has now, and what these were where they have changed with what `latest` means."""
    now = installed.get(row.cell.environment, {})
    then = installed.get(row.before.environment, {}) if row.before is not None else now
    versions = [
        f"{name} {now[name]}" if then.get(name) == now[name] else f"{name} {then.get(name, 'none')} -> {now[name]}"
        for name in PACKAGES
        if name in now
    ]
    return f"{' '.join(versions)} | {' '.join(row.cell.axes.values())}"


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
