"""Which of many probe rows are enough? A covering array: every pair of values that may occur together, occurs.

The array is made by covertable; what it gives is checked exactly, and what it leaves out is added.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from covertable import make

__all__ = ["STRENGTHS", "combinations", "cover"]

STRENGTHS = {"pairwise": 2, "three-wise": 3}

Row = Mapping[str, str]
Combination = tuple[tuple[str, str], ...]


def combinations(rows: Sequence[Row], strength: int) -> set[Combination]:
    """All combinations of `strength` values that occur in `rows`."""
    return {found for row in rows for found in itertools.combinations(sorted(row.items()), strength)}


def cover(rows: Sequence[Row], strength: int, anchors: Sequence[Row]) -> list[Row]:
    """Few of `rows` in which every combination of `strength` values of `rows` occurs; anchors are always among them.

    Args:
        rows: all rows that may be chosen, with the same axes; at least one.
        strength: 2 for pairs, 3 for triples.
        anchors: those of the rows that are kept whatever the others cover.
    """
    varying = [axis for axis in rows[0] if len({row[axis] for row in rows}) > 1]
    if len(varying) <= strength:
        return list(rows)
    factors = {axis: sorted({row[axis] for row in rows}) for axis in varying}
    presets = [{axis: row[axis] for axis in varying} for row in anchors]
    made = make(factors, strength=strength, constraints=list(_constraints(varying, rows)), presets=presets)
    kept = {tuple(found[axis] for axis in varying) for found in [*made, *presets]}
    chosen = [row for row in rows if tuple(row[axis] for axis in varying) in kept]
    missing = combinations(rows, strength) - combinations(chosen, strength)
    while missing:  # the search gives up on combinations that only few rows allow
        best = max(rows, key=lambda row: len(combinations([row], strength) & missing))
        missing -= combinations([best], strength)
        chosen.append(best)
    return chosen


def _constraints(axes: Sequence[str], rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    """What covertable must know: which values go together two by two, and as a whole.

    The first follows from the second; it lets the search give up early.
    """
    for group in (*itertools.combinations(axes, 2), tuple(axes)):
        together = {tuple(row[axis] for axis in group) for row in rows}
        yield {
            "operator": "fn",
            "requires": list(group),
            "evaluate": lambda row, group=group, together=together: tuple(row[axis] for axis in group) in together,
        }
