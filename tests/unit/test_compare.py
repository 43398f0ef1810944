"""Comparing two runs: every subject has exactly one change, and the totals add up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reports.compare import Change, compare
from reports.document import CellModel
from tests.unit.test_pages import results

KINDS = {
    "pass": "good",
    "refused": "good",
    "orphan-meta": "bad",
    "load-error": "bad",
    "flaky": "bad",
    "unsupported": "not applicable",
    "harness-error": "no answer",
    None: "unfinished",
}
PLAIN = results("x").cells[0]
runs = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(list(KINDS)))


def _cells(run: dict[str, str | None]) -> list[CellModel]:
    return [
        PLAIN.model_copy(update={"subject": subject, "verdict": verdict, "group": KINDS[verdict]})
        for subject, verdict in run.items()
    ]


@given(runs, runs)
def test_every_subject_that_applies_has_one_change(before: dict[str, str | None], after: dict[str, str | None]) -> None:
    """Rows are the subjects that apply to either run, once each; the counts add up to them."""
    found = compare(_cells(before), _cells(after))
    applies = {s for run in (before, after) for s, verdict in run.items() if KINDS[verdict] != "not applicable"}
    assert sorted(row.subject for row in found.rows) == sorted(applies)
    assert sum(found.counts().values()) == len(applies)


@given(runs)
def test_a_run_does_not_differ_from_itself(run: dict[str, str | None]) -> None:
    """Nothing is new, gone, red or green, and no failure is another one."""
    found = compare(_cells(run), _cells(run))
    changes = {Change.SAME_GOOD, Change.SAME_BAD, Change.FLAKY, Change.NO_ANSWER}
    assert {row.change for row in found.rows} <= changes
    assert not any(row.another_failure for row in found.rows)


@given(runs, runs)
def test_to_look_back_turns_each_change_around(before: dict[str, str | None], after: dict[str, str | None]) -> None:
    """Red is green and new is gone when time runs backwards; the rest stays."""
    turned = {
        Change.NEW: Change.GONE,
        Change.GONE: Change.NEW,
        Change.NEW_RED: Change.NEW_GREEN,
        Change.NEW_GREEN: Change.NEW_RED,
    }
    there = {row.subject: row.change for row in compare(_cells(before), _cells(after)).rows}
    back = {row.subject: row.change for row in compare(_cells(after), _cells(before)).rows}
    assert back == {subject: turned.get(change, change) for subject, change in there.items()}


def test_the_changes_mean_what_they_say() -> None:
    """One example of each; a no-answer is never counted as red, green or the same."""
    before = {"a": "pass", "b": "orphan-meta", "c": "pass", "d": "load-error", "e": "pass", "g": "unsupported"}
    after = {"a": "orphan-meta", "b": "pass", "c": "refused", "d": "orphan-meta", "e": None, "f": "pass", "g": "pass"}
    found = {row.subject: row for row in compare(_cells(before), _cells(after)).rows}
    assert {subject: row.change.value for subject, row in found.items()} == {
        "a": "new-red",
        "b": "new-green",
        "c": "same-good",
        "d": "same-bad",
        "e": "no-answer",
        "f": "new",
        "g": "new",
    }
    assert found["d"].another_failure


@given(runs, runs)
def test_what_turned_bad_was_good(before: dict[str, str | None], after: dict[str, str | None]) -> None:
    """A gate stops for each cell that was good and is bad now, flaky ones too, and for no other."""
    turned = {row.subject for row in compare(_cells(before), _cells(after)).rows if row.turned_bad}
    both = before.keys() & after.keys()
    assert turned == {s for s in both if KINDS[before[s]] == "good" and KINDS[after[s]] == "bad"}
