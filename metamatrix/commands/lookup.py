"""`metamatrix lookup`: what was measured, from a data set or a run's folder, and never a guess."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from metamatrix.sources import dataset_of
from reports import lookup
from reports.dataset import FILE, DatasetModel, KeptEnvironment
from reports.lookup import Answer, Span
from reports.query import Query, QueryError, parse_query, public
from runner.errors import MetamatrixError
from runner.matrix.axes import PROBE_VALUES

__all__ = ["SHIPPED", "run_lookup"]

_MOST_PROOFS = 3
SHIPPED = Path(lookup.__file__).parent / "data"
"""The data sets that come with the program, by date; the newest is asked."""


def run_lookup(terms: list[str], good_for: str | None, runner: str, data: Path | None, as_json: bool) -> int:
    """Print the answer; 0 also where nothing was measured, since that is an answer.

    Raises:
        MetamatrixError: the question cannot be read, or there is no data to ask.
    """
    dataset = _data(data)
    axes = lookup.known_axes(dataset)
    if good_for and any(term.strip().startswith("pipeline") for term in terms):
        raise MetamatrixError("--good-for names the pipelines already", "Leave the term about `pipeline` out.")
    if runner not in PROBE_VALUES["runner"]:
        known = ", ".join(PROBE_VALUES["runner"])
        raise MetamatrixError(f"there is no runner {runner!r}", f"Known: {known}.")
    asked = [*terms, *([f"pipeline={good_for}"] if good_for else [])]
    try:
        query = parse_query(asked, axes, lookup.known_packages(dataset))
    except QueryError as error:
        raise MetamatrixError(str(error), "Names and values: `metamatrix lookup` without terms lists them.") from error
    if not asked and not as_json:
        _print_known(dataset, axes)
        return 0
    if "runner" not in query.names:
        query = replace(query, names={**query.names, "runner": frozenset({runner})})
    answer = lookup.look_up(dataset, query)
    if as_json:
        print(json.dumps(_as_json(answer), indent=1))
        return 0
    _print(answer, query, axes, bool(good_for))
    return 0


def _data(path: Path | None) -> DatasetModel:
    if path is None:
        shipped = sorted(SHIPPED.glob(f"*/{FILE}"))
        if not shipped:
            raise MetamatrixError("no data set came with this program", "Give one with --data FOLDER.")
        path = shipped[-1].parent
    return dataset_of(path)


def _print_known(dataset: DatasetModel, axes: dict[str, list[str]]) -> None:
    """What can be asked about."""
    print(f"{len(dataset)} cells, measured {dataset.run.started[:10]} by {dataset.run.tool}")
    for name, values in axes.items():
        print(f"  {name}: {', '.join(values)}")
    for package in lookup.PACKAGES:
        found = {public(e.installed[package]) for e in dataset.environments if package in e.installed}
        print(f"  {package}: {', '.join(str(version) for version in sorted(found))}")
    print("ask: metamatrix lookup pipeline=sdxl offload=sequential 'diffusers>=0.36'")


def _print(answer: Answer, query: Query, axes: dict[str, list[str]], only_good: bool) -> None:
    total = sum(answer.counts.values())
    if not total:
        runners = query.names.get("runner", frozenset())
        unknown = sorted(runners - set(axes["runner"]))
        print(f"not measured on {', '.join(unknown)}" if unknown else "nothing was measured that fits all of this")
        for text in answer.near:
            print("  " + text)
        return
    if not only_good:
        for line in answer.lines:
            names = ("pipeline", "load", "offload", "checkpoint", "lifecycle", "runner")
            print(" ".join(line.axes[name] for name in names if line.axes[name] not in ("canonical", "single")))
            for span in line.spans:
                print("  " + _words(span))
    for proof in answer.proofs[:_MOST_PROOFS]:
        print("does not exist: " + " ".join(proof.split())[:300])
    print(f"{total} cells: " + ", ".join(f"{count} {verdict}" for verdict, count in answer.counts.items()))
    _print_newest(answer.newest_good)
    print("assumed: " + ", ".join(f"{name} {value}" for name, value in answer.assumed.items()))
    print(f"measured {answer.measured[:10]} by {answer.tool}")


def _words(span: Span) -> str:
    ranges = ", ".join(
        f"{package} {low}" if low == high else f"{package} {low} … {high}"
        for package, (low, high) in span.versions.items()
    )
    text = f"{span.verdict:16} {ranges}"
    if len(span.environments) > 1:
        text += f" ({len(span.environments)} environments)"
    return text + (f"\n    {span.stage}: {' '.join(span.cause.split())[:160]}" if span.group == "bad" else "")


def _print_newest(environment: KeptEnvironment | None) -> None:
    if environment is None:
        print("no environment is good in all of this")
        return
    print(f"newest good: {environment.id}")
    print("  " + lookup.install_line(environment))


def _as_json(answer: Answer) -> dict[str, Any]:
    newest = answer.newest_good
    return {
        "schema_version": 1,
        "counts": dict(answer.counts),
        "proofs": list(answer.proofs),
        "lines": [
            {
                "axes": dict(line.axes),
                "spans": [
                    {
                        "verdict": span.verdict,
                        "class": span.group,
                        "stage": span.stage,
                        "cause": span.cause,
                        "signature": span.signature,
                        "versions": {package: list(pair) for package, pair in span.versions.items()},
                        "environments": [environment.id for environment in span.environments],
                    }
                    for span in line.spans
                ],
            }
            for line in answer.lines
        ],
        "newest_good": None
        if newest is None
        else {"environment": newest.id, "installed": newest.installed, "install": lookup.install_line(newest)},
        "assumed": dict(answer.assumed),
        "near": list(answer.near),
        "measured": answer.measured,
    }
