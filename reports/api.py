"""Which files are there for programs? Everything that is published, as JSON and CSV below api/v1/. Additive only."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from reports.answers import Answers
from reports.api_schema import SCHEMA_FOLDER
from reports.causes import Cause
from reports.dataset import KeptEnvironment
from reports.evidence import Evidence, Run
from reports.findings import Findings
from reports.names import file_name
from reports.rules import Rule
from reports.tree import Tree
from reports.versions import PACKAGES
from reports.wording import MEANINGS

__all__ = ["SCHEMA_VERSION", "Details", "cause_json", "lock_lines", "write_api"]

SCHEMA_VERSION = 1

_COLUMNS = {"group": "class"}
"""Columns of data sets that have another name in what is published."""


class Details(Protocol):
    """What only the folder of the newest run knows."""

    def cell(self, subject: str) -> dict[str, Any]:
        """`executions` (attempts with their logs) and `rerun` of a cell; empty where it is not in that run."""

    def environment(self, identifier: str) -> dict[str, Any]:
        """`each_control`, `direct_url`, `torch_build` and the text of the `lock`; empty where it is not in that run."""


def write_api(tree: Tree, found: Findings, details: Details | None) -> None:
    """Write everything below api/v1/, and the scripts that hand the same to the pages."""
    evidence, answers, causes, changes = found.evidence, found.answers, found.causes, found.changes
    places = evidence.current()
    tree.data("answers", answers.as_json())
    tree.data("history", _history(evidence))
    tree.data("errors", {"schema_version": SCHEMA_VERSION, "errors": [_short(cause) for cause in causes]})
    for cause in causes:
        tree.json(f"errors/{file_name(cause.id)}", cause_json(cause, answers))
    for environment in evidence.environments:
        entry = {"schema_version": SCHEMA_VERSION, **environment.model_dump(mode="json")}
        name = file_name(environment.id)
        tree.json(f"environments/{name}", {**entry, **(details.environment(environment.id) if details else {})})
        if environment.packages:
            tree.text(f"locks/{name}.txt", lock_lines(environment))
    _write_cells(tree, evidence, places, details)
    _write_results(tree, evidence, places)
    for (before, after), pair in changes.items():
        tree.data(f"compare/{file_name(before)}..{file_name(after)}", pair.as_json())
    for name in ("profiles",):
        tree.json(name, {"schema_version": SCHEMA_VERSION, name: []})
    for path in sorted(SCHEMA_FOLDER.iterdir()):
        tree.write(f"api/v1/schemas/{path.name}", path.read_bytes())
    tree.data("index", _index(tree, evidence, answers, list(changes)))


def _index(tree: Tree, evidence: Evidence, answers: Answers, compared: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What there is; each run's data set goes in with its digest, so that a later run can trust what it appends to."""
    runs = []
    for run in evidence.runs:
        content = run.data.as_json().encode("utf-8", "backslashreplace")
        path = f"runs/{file_name(run.id)}/dataset.json"
        tree.write(f"api/v1/{path}", content)
        runs.append(
            {
                "id": run.id,
                "started": run.started,
                "tool": run.data.run.tool,
                "select": run.data.run.select,
                "cells": len(run.data),
                "no_answer_share": run.data.run.no_answer_share,
                "verdicts": dict(
                    sorted(Counter(run.columns["verdict"].values[r] for r in run.columns["verdict"].rows).items())
                ),
                "data": path,
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "newest": evidence.newest.id,
        "runs": runs,
        "runners": answers.values.get("runner", []),
        "environments": len(answers.environments),
        "meanings": MEANINGS,
        "names": _names(evidence),
        "compare": [{"before": before, "after": after} for before, after in compared],
        "files": {
            "answers": "answers.json",
            "results": "results.json",
            "csv": "results.csv",
            "errors": "errors.json",
            "history": "history.json",
            "profiles": "profiles.json",
        },
    }


def _names(evidence: Evidence) -> list[list[str]]:
    """What is called otherwise as a file: whoever looks for the file of a thing asks here first."""
    texts = [run.id for run in evidence.runs] + [entry.id for entry in evidence.environments]
    texts += [kind.signature for kind in evidence.kinds]
    texts += [value for row in evidence.combinations for value in row.values]
    texts += [subject for run in evidence.runs for subject in run.subjects]
    return [[text, name] for text in dict.fromkeys(texts) if (name := file_name(text)) != text]


def lock_lines(environment: KeptEnvironment) -> str:
    """The packages of an environment with the digests of their wheels, as pip and uv take them."""
    lines = [f"# environment {environment.id}: the very wheels that were measured"]
    for name, version, _, digest in sorted(environment.packages):
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    return "\n".join(line.replace("\n", " ").replace("\r", " ") for line in lines) + "\n"


def _short(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "verdict": cause.verdict,
        "stage": cause.stage,
        "cause": cause.text,
        "cells": cause.cells,
        "regex": cause.pattern,
        "rules": [str(rule) for rule in cause.rules.rules],
    }


def cause_json(cause: Cause, answers: Answers) -> dict[str, Any]:
    """A failure with its rule, the versions that were measured with it, and what passed instead."""
    return {
        "schema_version": SCHEMA_VERSION,
        **_short(cause),
        "environments": cause.environments,
        "expected": cause.expected,
        "exact": cause.rules.exact,
        "rules": [_rule(rule) for rule in cause.rules.rules],
        "alternatives": [_rule(rule) for rule in cause.rules.alternatives],
        "versions": {package: list(pair) for package, pair in cause.versions.items()},
        "fix": [
            {"axis": entry.axis, "value": entry.value, "pass": entry.good, "measured": entry.measured}
            for entry in cause.remedies
        ],
        "links": [entry.link for entry in cause.known if entry.link],
        "notes": [{"reason": entry.reason, "link": entry.link, "expires": entry.expires} for entry in cause.known],
        "first_seen": cause.first,
        "last_seen": cause.last,
        "in_newest_run": cause.newest,
        "examples": [
            {
                "environment": answers.environments[environment].id,
                "axes": dict(zip(answers.axes, answers.combinations[combination].values, strict=True)),
            }
            for combination, environment in cause.examples
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {"when": str(rule), "cells": rule.cells, "good": rule.good}


def _history(evidence: Evidence) -> dict[str, Any]:
    """For each run how many cells of each class had each value of each axis."""
    runs = []
    for run in evidence.runs:
        groups = [evidence.kinds[kind].group for kind in run.kinds]
        axes: dict[str, dict[str, dict[str, int]]] = {"all": {"all": dict(Counter(groups))}}
        for place, axis in enumerate(evidence.axes):
            axes[axis] = _counted([evidence.combinations[row].values[place] for row in run.combinations], groups)
        for package in PACKAGES:
            versions = [entry.installed.get(package) or "" for entry in evidence.environments]
            found = _counted([versions[row] for row in run.environments], groups)
            found.pop("", None)
            axes[package] = found
        runs.append({"id": run.id, "started": run.started, "axes": axes})
    return {"schema_version": SCHEMA_VERSION, "runs": runs}


def _counted(values: Sequence[str], groups: Sequence[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for (value, group), count in sorted(Counter(zip(values, groups, strict=True)).items()):
        found[value][group] = count
    return dict(found)


def _write_cells(
    tree: Tree, evidence: Evidence, places: Mapping[str, tuple[int, int]], details: Details | None
) -> None:
    """One file a cell for programs; for pages one an environment and pipeline, with what repeats kept once."""
    lives: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in evidence.runs:
        for row, subject in enumerate(run.subjects):
            kind = evidence.kinds[run.kinds[row]]
            lives[subject].append(
                {
                    "run": run.id,
                    "environment": evidence.environments[run.environments[row]].id,
                    "verdict": kind.verdict,
                    "class": kind.group,
                    "signature": kind.signature,
                }
            )
    pages: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for subject, (number, row) in places.items():
        run = evidence.runs[number]
        cell = {**_cell(evidence, run, row), "run": run.id, "history": lives[subject]}
        if details is not None:
            cell |= details.cell(subject)
        tree.json(f"cells/{file_name(subject)}", {"schema_version": SCHEMA_VERSION, **cell})
        pages[cell["environment"], cell["axes"].get("pipeline", "")].append(cell)
    for (environment, pipeline), cells in pages.items():
        tree.script(f"cells/{file_name(environment)}/{file_name(pipeline)}", cells)


def _cell(evidence: Evidence, run: Run, row: int) -> dict[str, Any]:
    columns = run.columns
    cell = {_COLUMNS.get(name, name): columns[name][row] for name in columns if not name.startswith("axes.")}
    cell["axes"] = dict(zip(evidence.axes, evidence.combinations[run.combinations[row]].values, strict=True))
    return cell


def _write_results(tree: Tree, evidence: Evidence, places: Mapping[str, tuple[int, int]]) -> None:
    """The newest result of every subject: as columns, each value once, and as CSV."""
    names = list(dict.fromkeys(name for run in reversed(evidence.runs) for name in run.columns))
    columns = {_COLUMNS.get(name, name): _gathered(evidence, places, name) for name in names}
    runs = [run.id for run in evidence.runs]
    rows = [number for number, _ in places.values()]
    columns["run"] = {"values": runs, "rows": rows}
    columns["probe_version"] = {"values": [run.data.probe_version for run in evidence.runs], "rows": rows}
    tree.json("results", {"schema_version": SCHEMA_VERSION, "columns": columns})
    tree.text("api/v1/results.csv", _csv(columns))


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


_NOT_IN_CSV = ("tensors", "requested", "expectation")


def _csv(columns: Mapping[str, Mapping[str, Any]]) -> str:
    names = [name for name in columns if name not in _NOT_IN_CSV]
    texts = [[_inert(value) for value in columns[name]["values"]] for name in names]
    rows = [columns[name]["rows"] for name in names]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([name.removeprefix("axes.") for name in names])
    writer.writerows(_lines(texts, rows))
    return file.getvalue()


def _lines(texts: Sequence[Sequence[str]], rows: Sequence[Sequence[int]]) -> Iterator[tuple[str, ...]]:
    columns = ([own[row] for row in places] for own, places in zip(texts, rows, strict=True))
    return zip(*columns, strict=True)


def _inert(value: Any) -> str:
    """A value as the text of one field: of one line, without control characters, and no formula to a spreadsheet."""
    text = "" if value is None else str(value)
    flat = "".join(letter if letter.isprintable() else " " for letter in text)
    return "'" + flat if flat[:1] in ("=", "+", "-", "@") else flat
