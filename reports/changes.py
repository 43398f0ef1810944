"""What has changed from one published run to another? The comparison of two runs, as numbers for a page and a feed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from reports.compare import Change, Row, compare
from reports.evidence import Evidence, Run
from reports.versions import PACKAGES
from reports.wording import SILENT

__all__ = ["Changes", "News", "Seen", "find_changes", "find_news"]

_MOST_RUNS = 30
"""How many runs back the newest is compared with; the API has the data of all."""


class Seen(NamedTuple):
    """A cell of a run, as far as it is compared: numbers are places in the evidence's lists."""

    subject: str
    verdict: str
    group: str
    signature: str
    kind: int
    environment: int
    combination: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The comparison of two runs. `told` are its rows without those that are good as before: they are only counted."""

    evidence: Evidence
    before: Run
    after: Run
    counts: Mapping[Change, int]
    told: tuple[Row[Seen], ...]

    def of(self, change: Change) -> list[Row[Seen]]:
        return [row for row in self.told if row.change is change]

    def as_json(self) -> dict[str, Any]:
        """Rows as columns of numbers."""
        told, counts, changes = self.told, self.counts, list(Change)
        kinds, environments, combinations = _Table(), _Table(), _Table()
        rows: dict[str, list[Any]] = {
            "subject": [row.subject for row in told],
            "change": [changes.index(row.change) for row in told],
            "another_failure": [int(row.another_failure) for row in told],
            "combination": [combinations.place(row.cell.combination) for row in told],
        }
        for side in ("before", "after"):
            seen = [getattr(row, side) for row in told]
            rows[side] = [-1 if cell is None else kinds.place(cell.kind) for cell in seen]
            rows[f"{side}_environment"] = [
                -1 if cell is None else environments.place(cell.environment) for cell in seen
            ]
        return {
            "schema_version": 1,
            "before": {"id": self.before.id, "started": self.before.started},
            "after": {"id": self.after.id, "started": self.after.started},
            "counts": {str(change): counts[change] for change in Change},
            "another_failure": sum(rows["another_failure"]),
            "changes": [str(change) for change in changes],
            "axes": list(self.evidence.axes),
            "combinations": [list(self.evidence.combinations[place].values) for place in combinations],
            "environments": [self._environment(place) for place in environments],
            "kinds": [self._kind(place) for place in kinds],
            "rows": rows,
        }

    def _environment(self, place: int) -> dict[str, Any]:
        entry = self.evidence.environments[place]
        versions = {name: entry.installed[name] for name in PACKAGES if name in entry.installed}
        return {"id": entry.id, "requested": entry.requested, "installed": versions}

    def _kind(self, place: int) -> dict[str, Any]:
        kind = self.evidence.kinds[place]
        return {"verdict": kind.verdict, "class": kind.group, "signature": kind.signature, "cause": kind.cause}


class _Table:
    """Numbers in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def place(self, number: int) -> int:
        return self._places.setdefault(number, len(self._places))

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)


def _seen(evidence: Evidence, run: Run, without: Collection[str]) -> Iterator[Seen]:
    known = [(kind.verdict, kind.group, kind.signature) for kind in evidence.kinds]
    for subject, kind, environment, combination in zip(
        run.subjects, run.kinds, run.environments, run.combinations, strict=True
    ):
        if subject not in without:
            yield Seen(subject, *known[kind], kind, environment, combination)


def find_changes(evidence: Evidence) -> Mapping[tuple[str, str], Changes]:
    """Each of the last runs against the one before it, and the newest against each of them, by (before, after)."""
    runs = evidence.runs[-_MOST_RUNS:]
    pairs = [*pairwise(runs), *((run, runs[-1]) for run in runs[:-2])]
    return {(before.id, after.id): _changes(evidence, before, after) for before, after in pairs}


def _changes(evidence: Evidence, before: Run, after: Run) -> Changes:
    """What is good in both runs, by its number, is counted and not spelled out: it is most, and changes nothing."""
    good = [kind.group == "good" for kind in evidence.kinds]
    was = dict(zip(before.subjects, before.kinds, strict=True))
    settled = {
        subject
        for subject, kind in zip(after.subjects, after.kinds, strict=True)
        if good[kind] and was.get(subject) == kind
    }
    comparison = compare(_seen(evidence, before, settled), _seen(evidence, after, settled))
    counts = comparison.counts()
    counts[Change.SAME_GOOD] += len(settled)
    told = tuple(row for row in comparison.rows if row.change is not Change.SAME_GOOD)
    return Changes(evidence, before, after, counts, told)


@dataclass(frozen=True, slots=True)
class News:
    """What a run says that is new, for somebody who knows all that was said before; `since` is the run before it."""

    since: Run
    run: Run
    rows: tuple[Row[Seen], ...]


def find_news(evidence: Evidence) -> list[News]:
    """For each run but the first: what turned red, green or flaky since the last answer, oldest run first.

    Not since the run before: a night without an answer in between must not swallow what has changed.
    """
    found = []
    silent = [kind.group in SILENT for kind in evidence.kinds]
    first = evidence.runs[0]
    known = {
        subject: (kind, first, row) for row, (subject, kind) in enumerate(zip(first.subjects, first.kinds, strict=True))
    }
    for before, run in pairwise(evidence.runs):
        old, new = [], []
        for row, (subject, kind) in enumerate(zip(run.subjects, run.kinds, strict=True)):
            last = known.get(subject)
            if last is not None and last[0] != kind:
                old.append(_row(evidence, last[1], last[2]))
                new.append(_row(evidence, run, row))
            if last is None or not silent[kind]:
                known[subject] = (kind, run, row)
        found.append(News(before, run, tuple(row for row in compare(old, new).rows if _is_news(row))))
    return found


def _row(evidence: Evidence, run: Run, row: int) -> Seen:
    kind = evidence.kinds[run.kinds[row]]
    places = (run.kinds[row], run.environments[row], run.combinations[row])
    return Seen(run.subjects[row], kind.verdict, kind.group, kind.signature, *places)


def _is_news(row: Row[Seen]) -> bool:
    return row.turned_bad or row.change is Change.NEW_GREEN
