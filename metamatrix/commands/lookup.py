"""`metamatrix lookup`: what was measured, from a data set or a run's folder, and never a guess."""

from __future__ import annotations

import json
from dataclasses import replace
from textwrap import shorten

from metamatrix.sources import answers_from
from reports import lookup
from reports.answers import Answers, install_line
from reports.lookup import Answer, Line, Span
from reports.query import Query, QueryError, parse_query
from reports.wording import RUNNERS, harmless
from runner.errors import MetamatrixError

__all__ = ["run_lookup"]

_NAMED = ("pipeline", "load", "offload", "checkpoint", "lifecycle", "runner")


def run_lookup(terms: list[str], good_for: str, runner: str, data: str | None, as_json: bool) -> int:
    """Print the answer; 0 also where nothing was measured, since that is an answer.

    Raises:
        MetamatrixError: the question cannot be read, or there is no data to ask.
    """
    answers = answers_from(data)
    axes = lookup.known_axes(answers)
    if good_for and any(term.strip().startswith("pipeline") for term in terms):
        raise MetamatrixError("--good-for names the pipelines already", "Leave the term about `pipeline` out.")
    if runner not in axes["runner"]:
        raise MetamatrixError(f"there is no runner {runner!r}", f"Known: {', '.join(RUNNERS)}.")
    asked = [*terms, *([f"pipeline={good_for}"] if good_for else [])]
    try:
        query = parse_query(asked, axes, lookup.known_packages(answers))
    except QueryError as error:
        raise MetamatrixError(str(error), "Names and values: `metamatrix lookup` without terms lists them.") from error
    if not asked:
        print(json.dumps({"schema_version": 1, "axes": axes}, indent=1)) if as_json else _print_known(answers, axes)
        return 0
    if "runner" not in query.names:
        query = replace(query, names={**query.names, "runner": frozenset({runner})})
    answer = lookup.look_up(answers, query)
    if as_json:
        print(json.dumps(answer.as_json(), indent=1))
        return 0
    _print(answer, query, bool(good_for))
    return 0


def _print_known(answers: Answers, axes: dict[str, list[str]]) -> None:
    """What can be asked about."""
    cells = sum(mask.bit_count() for row in answers.combinations for mask in row.kinds.values())
    print(harmless(f"{cells} cells, measured {answers.runs[-1].started[:10]} by {answers.runs[-1].tool}"))
    for name, values in axes.items():
        print(harmless(f"  {name}: {', '.join(values)}"))
    for package, versions in answers.order.items():
        print(f"  {package}: {', '.join(str(version) for version, mask in versions if mask & answers.exist)}")
    print("ask: metamatrix lookup pipeline=sdxl offload=sequential 'diffusers>=0.36'")


def _print(answer: Answer, query: Query, only_good: bool) -> None:
    total = sum(answer.counts.values())
    if not total:
        runners = query.names.get("runner", frozenset())
        unknown = sorted(runners - set(answer.answers.values["runner"]))
        print(f"not measured on {', '.join(unknown)}" if unknown else "nothing was measured that fits all of this")
        for text in answer.near:
            print(harmless("  " + text))
        return
    if not only_good:
        for line in answer.lines:
            print(_heading(line))
            for span in line.spans:
                print("  " + _words(span))
    print(harmless(f"{total} cells: " + ", ".join(f"{count} {name}" for name, count in answer.counts.items())))
    _print_newest(answer)
    for text in answer.notes:
        print("note: " + text)
    if answer.proofs:
        words = shorten(" ".join(answer.proofs[0].split()), 300, placeholder=" …")
        print(harmless(f"{len(answer.proofs)} of the environments cannot exist, for instance: {words}"))
    print("assumed: " + ", ".join(f"{name} {value}" for name, value in answer.assumed.items()))
    days = sorted({started[:10] for started in answer.measured})
    if days:
        print(harmless(f"measured {' … '.join(dict.fromkeys((days[0], days[-1])))} by {answer.answers.runs[-1].tool}"))


def _heading(line: Line) -> str:
    """What is not plain is named, and how sure the answer is where it was not simply measured."""
    axes = line.axes
    names = [axes[name] for name in _NAMED if name in axes and axes[name] not in ("canonical", "single")]
    how = f" (approximate: {line.combination.rebuilt})" if line.combination.rebuilt is not None else ""
    emulated = " (emulated on the CPU)" if line.combination.emulated else ""
    return harmless(" ".join(names) + how + emulated)


def _words(span: Span) -> str:
    ranges = ", ".join(
        f"{package} {low}" if low == high else f"{package} {low} … {high}"
        for package, (low, high) in span.versions.items()
    )
    text = f"{span.verdict:16} {ranges}"
    if span.mask.bit_count() > 1:
        text += f" ({span.mask.bit_count()} environments)"
    kind = span.answers.kinds[span.kind]
    cause = f"\n    {kind.stage}: {shorten(' '.join(kind.cause.split()), 160, placeholder=' …')}" if kind.cause else ""
    return harmless(text + cause)


def _print_newest(answer: Answer) -> None:
    if answer.newest_good is None:
        print("no environment is good in all of this")
        for load, place in answer.good_by_load.items():
            print(harmless(f"newest good with load={load}: {install_line(answer.answers, place)}"))
        return
    print(harmless(f"newest good: {answer.answers.environments[answer.newest_good].id}"))
    print(harmless("  " + install_line(answer.answers, answer.newest_good)))
    if answer.bad_lifecycles:
        print(harmless(f"  there, it is bad with lifecycle={','.join(answer.bad_lifecycles)}"))
