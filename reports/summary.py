"""The Markdown summary: what a job page shows."""

from __future__ import annotations

from collections import Counter

from reports.document import ResultsModel
from reports.wording import MEANINGS, cell_name, environment_name, one_line

__all__ = ["summary"]

_SHOWN = 20
_HARMLESS = {ord(letter): f"&#{ord(letter)};" for letter in "\\`*_[]<>|&~#!"}


def summary(results: ResultsModel) -> str:
    """Share of no-answers first, verdicts, environments, then causes of bad verdicts, most frequent first."""
    lines = [f"# Compatibility: {_plain(results.run.select or 'all')}", ""]
    lines += [f"No answer: **{results.run.no_answer_share:.1%}** of {len(results.cells) - results.run.not_run} cells."]
    if results.run.not_run:
        lines += ["", f"Not run, because there is no such runner: {results.run.not_run} cells."]
    lines.append("")
    lines += ["| verdict | cells | meaning |", "|---|---:|---|"]
    for verdict, count in sorted(results.counts().items(), key=lambda pair: (-pair[1], pair[0])):
        lines.append(f"| {verdict} | {count} | {MEANINGS.get(verdict, '')} |")
    lines += ["", "| environment | good | bad | not applicable | no answer |", "|---|---:|---:|---:|---:|"]
    for environment in results.environments:
        groups = Counter(cell.group for cell in results.cells if cell.environment == environment.id)
        silent = groups["no answer"] + groups["unfinished"]
        counts = f"{groups['good']} | {groups['bad']} | {groups['not applicable']} | {silent}"
        lines.append(f"| {_plain(environment_name(environment))} | {counts} |")
    return "\n".join([*lines, *_causes(results)]) + "\n"


def _causes(results: ResultsModel) -> list[str]:
    bad = [cell for cell in results.cells if cell.group == "bad"]
    causes = Counter((cell.verdict, cell.signature) for cell in bad)
    if not causes:
        return []
    lines = ["", "| cause | cells | expected | for instance |", "|---|---:|---:|---|"]
    for (verdict, signature), count in causes.most_common(_SHOWN):
        members = [cell for cell in bad if cell.signature == signature]
        expected = sum(1 for cell in members if cell.expected)
        text = f"{_plain(cell_name(members[0]))}: {_plain(members[0].cause)}"
        lines.append(f"| {verdict} `{signature}` | {count} | {expected} | {text} |")
    return lines


def _plain(text: str) -> str:
    """Text from outside as one table cell: no line breaks, no Markdown, no HTML."""
    flat = " ".join(one_line(text).split())[:200]
    return flat.translate(_HARMLESS)
