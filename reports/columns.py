"""What is the result that counts of everything that was asked? As columns, each value once, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.evidence import Evidence
from reports.versions import PACKAGES
from reports.wording import one_line

__all__ = ["PUBLISHED_AS", "as_csv", "gather_columns"]

PUBLISHED_AS = {"group": "class"}
"""Columns of data sets that have another name in what is published."""
_NOT_IN_CSV = ("tensors", "requested", "expectation")
Columns = Mapping[str, Mapping[str, Any]]


def gather_columns(evidence: Evidence, places: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """One row a subject: `values[rows[n]]` is the n-th cell's value. `places` are the (run, row) of each."""
    names = list(dict.fromkeys(name for run in reversed(evidence.runs) for name in run.columns))
    columns = {PUBLISHED_AS.get(name, name): _gathered(evidence, places, name) for name in names}
    rows = [number for number, _ in places.values()]
    columns["run"] = {"values": [run.id for run in evidence.runs], "rows": rows}
    columns["probe_version"] = {"values": [run.data.probe_version for run in evidence.runs], "rows": rows}
    environments = [evidence.runs[number].environments[row] for number, row in places.values()]
    for package in PACKAGES:
        columns[package] = _column([entry.installed.get(package) for entry in evidence.environments], environments)
    return columns


def _gathered(evidence: Evidence, places: Mapping[str, tuple[int, int]], name: str) -> dict[str, Any]:
    """One column over all runs; only each different value is looked at, not each cell."""
    values: list[Any] = []
    known: dict[str, int] = {}
    tables, rows = [], []
    for run in evidence.runs:
        column = run.columns.get(name)
        table = []
        for value in column.values if column is not None else [None]:
            key = repr(value)
            if key not in known:
                known[key] = len(values)
                values.append(value)
            table.append(known[key])
        tables.append(table)
        rows.append(column.rows if column is not None else [0] * len(run.subjects))
    found = [tables[number][rows[number][row]] for number, row in places.values()]
    return {"values": values, "rows": found}


def _column(values: Sequence[Any], rows: Sequence[int]) -> dict[str, Any]:
    """The same of a list in which values come more than once."""
    places: dict[Any, int] = {}
    table = [places.setdefault(value, len(places)) for value in values]
    return {"values": list(places), "rows": [table[row] for row in rows]}


def as_csv(columns: Columns) -> str:
    """What fits into fields of one line, with a header."""
    names = [name for name in columns if name not in _NOT_IN_CSV]
    texts = [[_inert(value) for value in columns[name]["values"]] for name in names]
    rows = [columns[name]["rows"] for name in names]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_inert(name.removeprefix("axes.")) for name in names])
    writer.writerows(_lines(texts, rows))
    return file.getvalue()


def _lines(texts: Sequence[Sequence[str]], rows: Sequence[Sequence[int]]) -> Iterator[tuple[str, ...]]:
    columns = ([own[row] for row in places] for own, places in zip(texts, rows, strict=True))
    return zip(*columns, strict=True)


def _inert(value: Any) -> str:
    """A value as the text of one field: of one line, without control characters, and no formula to a spreadsheet."""
    text = "" if value is None else str(value)
    flat = one_line(text)
    return "'" + flat if flat[:1] in ("=", "+", "-", "@") else flat
