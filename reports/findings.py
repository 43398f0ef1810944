"""What do all pages and files say? The evidence and what was concluded from it, once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.answers import Answers
from reports.causes import Cause, find_causes
from reports.changes import Changes, News, find_changes, find_news
from reports.dataset import DatasetModel
from reports.evidence import Evidence

__all__ = ["Findings", "conclude"]


@dataclass(frozen=True, slots=True)
class Findings:
    """`changes` are comparisons of two runs, by (before, after); `news` is what each run says that is new."""

    evidence: Evidence
    answers: Answers
    causes: tuple[Cause, ...]
    changes: Mapping[tuple[str, str], Changes]
    news: list[News]


def conclude(datasets: Iterable[DatasetModel]) -> Findings:
    """All that is said of these runs.

    Raises:
        ValueError: there is no run, or one is given twice.
    """
    evidence = Evidence(datasets)
    answers = evidence.answers()
    return Findings(evidence, answers, find_causes(evidence, answers), find_changes(evidence), find_news(evidence))
