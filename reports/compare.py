"""What has changed between two runs? Their cells joined by subject, each row in exactly one kind of change."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from reports.wording import SILENT

__all__ = ["Change", "Comparison", "Result", "Row", "compare"]


class Result(Protocol):
    """What is compared of a cell."""

    @property
    def subject(self) -> str: ...
    @property
    def verdict(self) -> str | None: ...
    @property
    def group(self) -> str: ...
    @property
    def signature(self) -> str: ...


R = TypeVar("R", bound=Result)


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
class Row(Generic[R]):
    """One subject. `before` or `after` is None where that run does not apply to it, or has no such cell."""

    subject: str
    change: Change
    before: R | None
    after: R | None

    @property
    def cell(self) -> R:
        """The later of the two."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def turned_bad(self) -> bool:
        """Good before and bad now; to fail now and then is bad."""
        if self.change is Change.NEW_RED:
            return True
        if self.before is None or self.after is None:
            return False
        return self.before.group == "good" and self.after.verdict == "flaky"

    @property
    def another_failure(self) -> bool:
        """Bad as before, and not for the same reason."""
        if self.change is not Change.SAME_BAD or self.before is None or self.after is None:
            return False
        return (self.before.verdict, self.before.signature) != (self.after.verdict, self.after.signature)


@dataclass(frozen=True, slots=True)
class Comparison(Generic[R]):
    """All rows, in the order of the later run, then what is gone."""

    rows: tuple[Row[R], ...]

    def counts(self) -> Counter[Change]:
        return Counter(row.change for row in self.rows)

    def of(self, change: Change) -> list[Row[R]]:
        return [row for row in self.rows if row.change is change]


def compare(before: Iterable[R], after: Iterable[R]) -> Comparison[R]:
    """Join two runs by subject.

    What does not apply (no such environment, no such class) is as if it were not there: becoming measurable is `new`,
    ceasing to be is `gone`, and a subject that applies to neither run is no row.
    """
    old, new = _applicable(before), _applicable(after)
    subjects = [*new, *(subject for subject in old if subject not in new)]
    return Comparison(tuple(_row(subject, old.get(subject), new.get(subject)) for subject in subjects))


def _applicable(cells: Iterable[R]) -> dict[str, R]:
    return {cell.subject: cell for cell in cells if cell.group != "not applicable"}


def _row(subject: str, before: R | None, after: R | None) -> Row[R]:
    return Row(subject, _change(before, after), before, after)


def _change(before: Result | None, after: Result | None) -> Change:
    if before is None:
        return Change.NEW
    if after is None:
        return Change.GONE
    if "flaky" in (before.verdict, after.verdict):
        return Change.FLAKY
    if before.group in SILENT or after.group in SILENT:
        return Change.NO_ANSWER
    if before.group != after.group:
        return Change.NEW_RED if after.group == "bad" else Change.NEW_GREEN
    return Change.SAME_BAD if after.group == "bad" else Change.SAME_GOOD
