"""Which files are there for programs? Everything that is published, as JSON and CSV below api/v1/. Additive only."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reports.answers import Answers
from reports.api_schema import SCHEMA_FOLDER
from reports.causes import Cause
from reports.columns import PUBLISHED_AS, as_csv, gather_columns
from reports.dataset import KeptEnvironment
from reports.evidence import Evidence, Run
from reports.files import compare_name, lock_path, run_path, write_both, write_json, write_script
from reports.findings import Findings
from reports.names import API, file_name
from reports.rules import Rule
from reports.tree import Tree
from reports.versions import PACKAGES
from reports.wording import CAVEATS, MEANINGS, one_line, shown_class

__all__ = ["SCHEMA_VERSION", "Details", "cause_json", "lock_lines", "write_api"]

SCHEMA_VERSION = 1
_TORCH_INDEX = "https://download.pytorch.org/whl/{build}"


class Details(Protocol):
    """What only the folder of the newest run knows."""

    def cell(self, subject: str) -> dict[str, Any]:
        """`executions` (attempts with their logs) and `rerun` of a cell; empty where it is not in that run."""

    def environment(self, identifier: str) -> dict[str, Any]:
        """`each_control`, `direct_url`, `torch_build` and the text of the `lock`; empty where it is not in that run."""


def write_api(tree: Tree, found: Findings, details: Details | None) -> None:
    """Write everything below api/v1/, and the scripts that hand the same to the pages."""
    evidence, answers, causes, changes = found.evidence, found.answers, found.causes, found.changes
    places = evidence.subjects()
    write_both(tree, "answers", answers.as_json())
    write_both(tree, "history", _history(evidence))
    write_both(tree, "errors", {"schema_version": SCHEMA_VERSION, "errors": [_short(cause) for cause in causes]})
    for cause in causes:
        write_json(tree, f"errors/{file_name(cause.id)}", cause_json(cause, answers))
    for environment in evidence.environments:
        entry = {"schema_version": SCHEMA_VERSION, **environment.model_dump(mode="json")}
        name = file_name(environment.id)
        write_json(tree, f"environments/{name}", {**entry, **(details.environment(environment.id) if details else {})})
        if environment.packages:
            tree.text(lock_path(environment.id), lock_lines(environment))
    _write_cells(tree, evidence, places, details)
    columns = gather_columns(evidence, places)
    write_json(tree, "results", {"schema_version": SCHEMA_VERSION, "columns": columns})
    tree.text(f"{API}/results.csv", as_csv(columns))
    for (before, after), pair in changes.items():
        write_both(tree, f"compare/{compare_name(before, after)}", pair.as_json())
    write_json(tree, "profiles", {"schema_version": SCHEMA_VERSION, "profiles": []})
    for path in sorted(SCHEMA_FOLDER.iterdir()):
        tree.write(f"{API}/schemas/{path.name}", path.read_bytes())
    write_both(tree, "index", _index(tree, evidence, answers, list(changes)))


def _index(tree: Tree, evidence: Evidence, answers: Answers, compared: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What there is; each run's data set goes in with its digest, so that a later run can trust what it appends to."""
    runs = []
    for run in evidence.runs:
        content = run.data.as_json().encode("utf-8", "backslashreplace")
        path = run_path(run.id)
        tree.write(f"{API}/{path}", content)
        runs.append(
            {
                "id": run.id,
                "started": run.started,
                "tool": run.data.run.tool,
                "select": run.data.run.select,
                "cells": len(run.data),
                "no_answer_share": run.data.run.no_answer_share,
                "verdicts": dict(sorted(Counter(evidence.kinds[kind].verdict for kind in run.kinds).items())),
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
        "caveats": [{"axes": axes, "text": text} for axes, text in CAVEATS],
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
    """The packages of an environment with the digests of their wheels, as pip and uv take them.

    A build of torch that says so in its version is on the index of that build only.
    """
    lines = [f"# environment {environment.id}: the very wheels that were measured"]
    torch = next((version for name, version, _, _ in environment.packages if name == "torch"), "")
    build = torch.partition("+")[2]
    if build and build.isalnum():
        lines.append(f"--extra-index-url {_TORCH_INDEX.format(build=build)}")
    for name, version, _, digest in sorted(environment.packages):
        lines.append(f"{name}=={version} --hash=sha256:{digest}")
    return "\n".join(one_line(line) for line in lines) + "\n"


def _short(cause: Cause) -> dict[str, Any]:
    return {
        "id": cause.id,
        "verdict": cause.verdict,
        "stage": cause.stage,
        "cause": cause.text,
        "cells": cause.cells,
        "sound": cause.sound,
        "regex": cause.pattern,
        "exact": cause.rules.exact,
        "rules": [str(rule) for rule in cause.rules.rules],
        "alternatives": [str(rule) for rule in cause.rules.alternatives],
        "fix": [f"{entry.axis}={entry.value}" for entry in cause.remedies if entry.good == entry.measured][:3],
    }


def cause_json(cause: Cause, answers: Answers) -> dict[str, Any]:
    """A failure with its rule, the versions that were measured with it, and what passed instead."""
    return {
        "schema_version": SCHEMA_VERSION,
        **_short(cause),
        "environments": cause.environments,
        "expected": cause.expected,
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
    shown = [shown_class(kind.group) for kind in evidence.kinds]
    versions = {
        package: [entry.installed.get(package) or None for entry in evidence.environments] for package in PACKAGES
    }
    runs = []
    for run in evidence.runs:
        groups = [shown[kind] for kind in run.kinds]
        axes: dict[str, dict[str, dict[str, int]]] = {"all": {"all": dict(Counter(groups))}}
        for place, axis in enumerate(evidence.axes):
            axes[axis] = _counted([evidence.combinations[row].values[place] for row in run.combinations], groups)
        for package, own in versions.items():
            axes[package] = _counted([own[row] for row in run.environments], groups)
        runs.append({"id": run.id, "started": run.started, "axes": axes})
    return {"schema_version": SCHEMA_VERSION, "runs": runs}


def _counted(values: Sequence[str | None], groups: Sequence[str]) -> dict[str, dict[str, int]]:
    """Value -> class -> cells; a cell without a value is not counted."""
    counts = Counter((value, group) for value, group in zip(values, groups, strict=True) if value is not None)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for (value, group), count in sorted(counts.items()):
        found[value][group] = count
    return dict(found)


def _write_cells(
    tree: Tree, evidence: Evidence, places: Mapping[str, tuple[int, int]], details: Details | None
) -> None:
    """One file a subject for programs; for pages one an environment and pipeline, of the cells that answers tell of."""
    lives = _lives(evidence)

    def whole(run: Run, row: int) -> dict[str, Any]:
        subject = run.subjects[row]
        cell = {**_cell(evidence, run, row), "run": run.id, "history": lives[subject]}
        if details is not None and run is evidence.newest:
            cell |= details.cell(subject)
        return cell

    def publish(cell: dict[str, Any]) -> None:
        write_json(tree, f"cells/{file_name(cell['subject'])}", {"schema_version": SCHEMA_VERSION, **cell})

    pages: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    pipeline = evidence.axes.index("pipeline")
    for place in evidence.cells:
        value = evidence.combinations[place.combination].values[pipeline]
        pages[place.environment, value].append((place.run, place.row))
    published = set()
    for (environment, value), rows in pages.items():
        cells = [whole(evidence.runs[number], row) for number, row in rows]
        identifier = evidence.environments[environment].id
        write_script(tree, f"cells/{file_name(identifier)}/{file_name(value)}", cells)
        for cell, counted in zip(cells, rows, strict=True):
            if places[cell["subject"]] == counted:  # made once, written twice
                publish(cell)
                published.add(cell["subject"])
    for subject, (number, row) in places.items():
        if subject not in published:
            publish(whole(evidence.runs[number], row))


def _lives(evidence: Evidence) -> dict[str, list[dict[str, Any]]]:
    """What each run said of a subject, oldest first."""
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
    return lives


def _cell(evidence: Evidence, run: Run, row: int) -> dict[str, Any]:
    columns = run.columns
    cell = {PUBLISHED_AS.get(name, name): columns[name][row] for name in columns if not name.startswith("axes.")}
    installed = evidence.environments[run.environments[row]].installed
    cell["versions"] = {package: installed[package] for package in PACKAGES if package in installed}
    cell["axes"] = dict(zip(evidence.axes, evidence.combinations[run.combinations[row]].values, strict=True))
    return cell
