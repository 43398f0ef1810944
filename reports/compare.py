"""What has changed between two runs? Their cells joined by subject, each row in exactly one kind of change."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reports.document import CellModel

__all__ = ["Change", "Comparison", "Row", "compare"]


class Change(enum.StrEnum):
    """What became of a cell. The first that holds, in this order."""

    NEW = "new"
    GONE = "gone"
    FLAKY = "flaky"
    NO_ANSWER = "no-answer"
    NEW_RED = "new-red"
    NEW_GREEN = "new-green"
    SAME_BAD = "same-bad"
    SAME_GOOD = "same-good"


@dataclass(frozen=True, slots=True)
class Row:
    """One subject. `before` or `after` is None where that run does not apply to it, or has no such cell."""

    subject: str
    change: Change
    before: CellModel | None
    after: CellModel | None

    @property
    def cell(self) -> CellModel:
        """The later of the two."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def another_failure(self) -> bool:
        """Bad as before, and not for the same reason."""
        if self.change is not Change.SAME_BAD or self.before is None or self.after is None:
            return False
        return (self.before.verdict, self.before.signature) != (self.after.verdict, self.after.signature)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, in the order of the later run, then what is gone."""

    rows: tuple[Row, ...]

    def counts(self) -> Counter[Change]:
        return Counter(row.change for row in self.rows)

    def of(self, change: Change) -> list[Row]:
        return [row for row in self.rows if row.change is change]


_SILENT = ("no answer", "unfinished")


def compare(before: Iterable[CellModel], after: Iterable[CellModel]) -> Comparison:
    """Join two runs by subject.

    What does not apply (no such environment, no such class) is as if it were not there: becoming measurable is `new`,
    ceasing to be is `gone`, and a subject that applies to neither run is no row.
    """
    old, new = _applicable(before), _applicable(after)
    subjects = [*new, *(subject for subject in old if subject not in new)]
    return Comparison(tuple(_row(subject, old.get(subject), new.get(subject)) for subject in subjects))


def _applicable(cells: Iterable[CellModel]) -> dict[str, CellModel]:
    return {cell.subject: cell for cell in cells if cell.group != "not applicable"}


def _row(subject: str, before: CellModel | None, after: CellModel | None) -> Row:
    return Row(subject, _change(before, after), before, after)


def _change(before: CellModel | None, after: CellModel | None) -> Change:
    if before is None:
        return Change.NEW
    if after is None:
        return Change.GONE
    if "flaky" in (before.verdict, after.verdict):
        return Change.FLAKY
    if before.group in _SILENT or after.group in _SILENT:
        return Change.NO_ANSWER
    if before.group != after.group:
        return Change.NEW_RED if after.group == "bad" else Change.NEW_GREEN
    return Change.SAME_BAD if after.group == "bad" else Change.SAME_GOOD
