"""When does a failure occur? The smallest rule over axes and version ranges that covers it and nothing that is good.

A rule is a conjunction of conditions, in the words of a lookup. It is a description of what was measured, not a proof of
a cause: where several rules of one size say the same, all are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

from packaging.version import Version

from reports.answers import Answers, bits, union

__all__ = ["Condition", "Rule", "Rules", "Space"]

_LIKELY = ("checkpoint", "lifecycle", "offload", "diffusers", "transformers", "accelerate", "torch", "load", "pipeline")
"""Axes in the order in which they are named first, where the data cannot tell which of them it is."""
_MOST_RULES = 6
_MOST_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Condition:
    """One axis with the values that it must have, or one package with the lowest and highest version."""

    axis: str
    values: tuple[str, ...] = ()
    lowest: Version | None = None
    highest: Version | None = None

    def __str__(self) -> str:
        if self.values:
            return f"{self.axis}={','.join(self.values)}"
        if self.lowest == self.highest:
            return f"{self.axis}={self.lowest}"
        low = f">={self.lowest}" if self.lowest is not None else ""
        high = f"<={self.highest}" if self.highest is not None else ""
        return self.axis + ",".join(part for part in (low, high) if part)


@dataclass(frozen=True, slots=True)
class Rule:
    """All of `conditions`. `cells` failures are covered; `good` cells are, too: 0 where the rule is exact."""

    conditions: tuple[Condition, ...]
    cells: int
    good: int

    def __str__(self) -> str:
        return " ".join(str(condition) for condition in self.conditions) or "always"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of which one holds wherever the failure is; `alternatives` are as small as a single rule, and as right."""

    rules: tuple[Rule, ...]
    alternatives: tuple[Rule, ...] = ()

    @property
    def exact(self) -> bool:
        return not any(rule.good for rule in self.rules)


Cells = Mapping[int, int]
"""Cells as combination -> mask of environments."""


@dataclass(frozen=True)
class Space:
    """Everything that was measured, prepared for many questions."""

    answers: Answers
    packages: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "packages", tuple(self.answers.order))

    @cached_property
    def good(self) -> dict[int, int]:
        """The good cells."""
        return self.of_kinds(number for number, kind in enumerate(self.answers.kinds) if kind.group == "good")

    def of_kinds(self, numbers: Iterable[int]) -> dict[int, int]:
        """The cells of some kinds."""
        wanted = set(numbers)
        found = {}
        for place, row in enumerate(self.answers.combinations):
            mask = union(own for number, own in row.kinds.items() if number in wanted)
            if mask:
                found[place] = mask
        return found

    def explain(self, cells: Cells) -> Rules:
        """The smallest rules that cover `cells` and no good cell; one that is not exact where there are none."""
        whole = _Hull.around(self, cells)
        if not whole.clean():
            parts = self._parts(cells)
            if parts is None:
                return Rules((Rule(whole.conditions(), _count(cells), whole.spoilt()),))
            return Rules(tuple(_Hull.around(self, part).smallest()[0] for part in parts))
        first, *others = whole.smallest()
        return Rules((first,), tuple(others[:_MOST_ALTERNATIVES]))

    def _parts(self, cells: Cells) -> list[dict[int, int]] | None:
        """The cells in few groups that a rule each can cover, each joined to the first group that stays clean."""
        parts: list[dict[int, int]] = []
        for combination, mask in self._atoms(cells):
            for part in parts:
                joined = {**part, combination: part.get(combination, 0) | mask}
                if _Hull.around(self, joined).clean():
                    part[combination] = joined[combination]
                    break
            else:
                if len(parts) == _MOST_RULES or not _Hull.around(self, {combination: mask}).clean():
                    return None
                parts.append({combination: mask})
        return parts

    def _atoms(self, cells: Cells) -> Iterator[tuple[int, int]]:
        """Combinations with neighbouring environments, the largest first; single environments where good lies between."""
        atoms = []
        for combination, mask in cells.items():
            for block in _blocks(mask, self.good.get(combination, 0)):
                if _Hull.around(self, {combination: block}).clean():
                    atoms.append((combination, block))
                else:
                    atoms += [(combination, 1 << place) for place in bits(block)]
        yield from sorted(atoms, key=lambda atom: -atom[1].bit_count())


def _blocks(mask: int, good: int) -> Iterator[int]:
    """A mask cut where a good environment lies between."""
    while mask:
        lowest = mask & -mask
        between = good & ~((lowest << 1) - 1)
        block = mask & ((between & -between) - 1) if between else mask
        yield block
        mask &= ~block


def _count(cells: Cells) -> int:
    return sum(mask.bit_count() for mask in cells.values())


@dataclass(frozen=True)
class _Hull:
    """The tightest condition of each axis around some cells."""

    space: Space
    values: tuple[frozenset[str], ...]
    ranges: tuple[tuple[Version, Version] | None, ...]
    cells: int

    @classmethod
    def around(cls, space: Space, cells: Cells) -> _Hull:
        rows = [space.answers.combinations[combination].values for combination in cells]
        together = union(cells.values())
        ranges = []
        for package in space.packages:
            there = [version for version, mask in space.answers.order[package] if mask & together]
            ranges.append((there[0], there[-1]) if there else None)
        values = tuple(frozenset(row[place] for row in rows) for place in range(len(space.answers.axes)))
        return cls(space, values, tuple(ranges), _count(cells))

    def clean(self) -> bool:
        return 0 not in self._patterns

    def spoilt(self) -> int:
        """How many good cells lie inside."""
        inside = self._inside()
        return sum(
            (mask & inside).bit_count()
            for combination, mask in self.space.good.items()
            if not self._outside(self.space.answers.combinations[combination].values)
        )

    def _inside(self) -> int:
        mask = self.space.answers.all
        for place, package in enumerate(self.space.packages):
            mask &= ~self._excluded(package, place)
        return mask

    def _excluded(self, package: str, place: int) -> int:
        """The environments that the range of a package leaves out."""
        span = self.ranges[place]
        if span is None:
            return 0
        return self._without(package, *span)

    def _without(self, package: str, lowest: Version | None, highest: Version | None) -> int:
        return sum(
            mask
            for version, mask in self.space.answers.order[package]
            if (lowest is not None and version < lowest) or (highest is not None and version > highest)
        )

    def _outside(self, values: tuple[str, ...]) -> int:
        """Which probe axes leave a combination out, as bits."""
        return sum(1 << place for place, value in enumerate(values) if value not in self.values[place])

    @cached_property
    def _patterns(self) -> set[int]:
        """For each good cell the axes that leave it out, as bits; packages come after the probe axes. Each once."""
        by_axes: dict[int, int] = {}
        for combination, mask in self.space.good.items():
            outside = self._outside(self.space.answers.combinations[combination].values)
            by_axes[outside] = by_axes.get(outside, 0) | mask
        environments = [(0, self.space.answers.all)]
        for place, package in enumerate(self.space.packages):
            bit, excluded = 1 << (len(self.values) + place), self._excluded(package, place)
            environments = [
                entry
                for pattern, mask in environments
                for entry in ((pattern, mask & ~excluded), (pattern | bit, mask & excluded))
                if entry[1]
            ]
        return {outside | pattern for outside, good in by_axes.items() for pattern, mask in environments if good & mask}

    def smallest(self) -> list[Rule]:
        """Every set of axes of the smallest size whose conditions leave all good cells out, the plainest first."""
        needed = _minimal(self._patterns)
        axes = [place for place in range(len(self.values) + len(self.ranges)) if any(p >> place & 1 for p in needed)]
        for size in range(len(axes) + 1):
            found = [
                chosen
                for chosen in combinations(axes, size)
                if all(any(pattern >> place & 1 for place in chosen) for pattern in needed)
            ]
            if found:
                rules = [Rule(self._conditions(chosen), self.cells, 0) for chosen in found]
                return sorted(rules, key=_plain)
        raise AssertionError("only a clean hull is made smaller")

    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of all axes that leave anything out."""
        axes = [
            place for place in range(len(self.values) + len(self.ranges)) if any(p >> place & 1 for p in self._patterns)
        ]
        return self._conditions(tuple(axes))

    def _conditions(self, chosen: Iterable[int]) -> tuple[Condition, ...]:
        """Conditions on some axes; of a range only the ends that leave a good cell out.

        Ends are dropped one after the other, each with what the others say by then: two that could each be dropped
        alone may not both be.
        """
        chosen = tuple(chosen)
        ends: dict[int, tuple[Version | None, Version | None]] = {}
        for place in chosen:
            span = self.ranges[place - len(self.values)] if place >= len(self.values) else None
            if span is not None:
                ends[place] = span
        clean = not self._good_inside(chosen, ends)
        for place, (lowest, highest) in list(ends.items()):
            for wider in ((None, highest), (lowest, None)):
                if clean and not self._good_inside(chosen, {**ends, place: wider}):
                    ends[place] = wider
                    break
        return tuple(
            Condition(self.space.packages[place - len(self.values)], (), *ends[place])
            if place in ends
            else Condition(self.space.answers.axes[place], tuple(sorted(self.values[place])))
            for place in chosen
        )

    def _good_inside(self, chosen: Sequence[int], ends: Mapping[int, tuple[Version | None, Version | None]]) -> bool:
        """Whether a good cell fulfils the conditions on the chosen axes."""
        inside = self.space.answers.all
        for place, (lowest, highest) in ends.items():
            inside &= ~self._without(self.space.packages[place - len(self.values)], lowest, highest)
        wanted = sum(1 << place for place in chosen if place < len(self.values))
        return any(
            mask & inside
            for combination, mask in self.space.good.items()
            if not self._outside(self.space.answers.combinations[combination].values) & wanted
        )


def _minimal(patterns: Iterable[int]) -> list[int]:
    """The patterns that contain no other: who hits these hits all."""
    found: list[int] = []
    for pattern in sorted(patterns, key=int.bit_count):
        if not any(known & pattern == known for known in found):
            found.append(pattern)
    return found


def _plain(rule: Rule) -> tuple[int, int, int, str]:
    """What tells most first: how it is used before what is loaded; a half-open range before a closed one; few values."""
    axes = sum(_LIKELY.index(c.axis) if c.axis in _LIKELY else 0 for c in rule.conditions)
    ends = sum((c.lowest is not None) + (c.highest is not None) for c in rule.conditions)
    return axes, ends, sum(len(c.values) for c in rule.conditions), str(rule)
