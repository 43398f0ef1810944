"""What was measured of what somebody asks? Verdicts over ranges of versions, the newest good environment, near misses.

Only what was measured is said. Where nothing was, the answer says what is near and what was never tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from reports.answers import Answers, Combination, bits
from reports.query import ANY, Query
from reports.versions import in_order, without_build

__all__ = ["Answer", "Line", "Span", "environment_json", "install_line", "known_axes", "known_packages", "look_up"]

_ASSUMED = {"checkpoint": "canonical", "lifecycle": "single"}
"""What is meant where a question does not say: a sound file, and no further life after the image."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring environments with one verdict; `mask` has a bit for each of them."""

    answers: Answers
    kind: int
    mask: int
    attempts: int
    runs: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return self.answers.kinds[self.kind].verdict

    @property
    def group(self) -> str:
        return self.answers.kinds[self.kind].group

    @property
    def environments(self) -> tuple[str, ...]:
        """Their ids, oldest first."""
        return tuple(self.answers.environments[place].id for place in bits(self.mask))

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        """The lowest and highest version of each package among them."""
        found = {}
        for package, versions in self.answers.order.items():
            low = next((version for version, mask in versions if mask & self.mask), None)
            if low is not None:
                high = next(version for version, mask in reversed(versions) if mask & self.mask)
                found[package] = (str(low), str(high))
        return found

    def as_json(self) -> dict[str, Any]:
        kind = self.answers.kinds[self.kind]
        return {
            "verdict": kind.verdict,
            "class": kind.group,
            "stage": kind.stage,
            "cause": kind.cause,
            "signature": kind.signature,
            "versions": {package: list(pair) for package, pair in self.versions.items()},
            "environments": list(self.environments),
            "attempts": self.attempts,
            "runs": list(self.runs),
        }


@dataclass(frozen=True)
class Line:
    """One combination of probe axes over all environments that exist; `masks` has those that are meant, by kind."""

    answers: Answers
    combination: Combination
    masks: Mapping[int, int]

    @property
    def axes(self) -> dict[str, str]:
        return dict(zip(self.answers.axes, self.combination.values, strict=True))

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The environments, oldest first, cut where the verdict or its signature changes."""
        return tuple(_spans(self.answers, self.combination, self.masks))

    def as_json(self) -> dict[str, Any]:
        return {
            "axes": self.axes,
            "rebuilt": self.combination.rebuilt,
            "emulated": self.combination.emulated,
            "spans": [span.as_json() for span in self.spans],
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found: `lines` by combination, how many cells have each verdict, the newest environment that is good.

    `proofs` why environments that are asked about do not exist; `assumed` is what the question left open and how it was
    taken; `near` says in words what else was measured; `newest_good` is a place in `answers.environments`.
    """

    answers: Answers
    lines: tuple[Line, ...]
    counts: Mapping[str, int]
    proofs: tuple[str, ...]
    newest_good: int | None
    assumed: Mapping[str, str]
    near: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        newest = self.newest_good
        return {
            "schema_version": 1,
            "counts": dict(self.counts),
            "proofs": list(self.proofs),
            "lines": [line.as_json() for line in self.lines],
            "newest_good": None if newest is None else environment_json(self.answers, newest),
            "assumed": dict(self.assumed),
            "near": list(self.near),
            "measured": self.answers.runs[-1].started,
        }


def environment_json(answers: Answers, place: int) -> dict[str, Any]:
    """An environment with its versions and the line that installs it."""
    installed = {name: version for name in answers.packages if (version := answers.version(place, name)) is not None}
    return {
        "environment": answers.environments[place].id,
        "installed": installed,
        "install": install_line(answers, place),
    }


def install_line(answers: Answers, place: int) -> str:
    """The command that installs the chosen packages of an environment at the versions that were measured."""
    chosen = [package for package in answers.environments[place].chosen if package != "python"]
    versions = [(name, answers.version(place, name)) for name in chosen]
    pins = [f"{name.replace('_', '-')}=={without_build(version)}" for name, version in versions if version is not None]
    return "pip install " + " ".join(pins)


def known_axes(answers: Answers) -> dict[str, list[str]]:
    """The probe axes with the values that were measured, and `verdict` with its verdicts and classes."""
    found = {axis: [*values, ANY] for axis, values in answers.values.items()}
    verdicts = [kind.verdict for kind in answers.kinds] + [kind.group for kind in answers.kinds]
    found["verdict"] = list(dict.fromkeys(verdicts))
    return found


def known_packages(answers: Answers) -> list[str]:
    """The packages whose versions were chosen in some environment, or installed with it; Python too."""
    return sorted(answers.packages)


def look_up(answers: Answers, query: Query) -> Answer:
    """The answer to a question."""
    assumed = {axis: value for axis, value in _ASSUMED.items() if axis not in query.names}
    asked = _Asked(answers, query, assumed)
    lines, counts, used = [], Counter[str](), 0
    for row in asked.rows():
        masks = asked.masks(row)
        for kind, mask in masks.items():
            counts[answers.kinds[kind].verdict] += mask.bit_count()
            used |= mask
        there = {kind: mask & answers.exist for kind, mask in masks.items() if mask & answers.exist}
        if there:  # what cannot be installed has no place in a range; it is counted
            lines.append(Line(answers, row, there))
    ruled_out = bits(used & ~answers.exist)
    return Answer(
        answers,
        lines=tuple(sorted(lines, key=lambda line: line.combination.values)),
        counts=counts,
        proofs=tuple(proof for place in ruled_out if (proof := answers.environments[place].proof)),
        newest_good=_newest_good(answers, query, assumed),
        assumed={**assumed, **({} if "load" in query.names else {"load": "the libraries' own"})},
        near=() if counts else tuple(_near(answers, query, assumed)),
    )


class _Asked:
    """Which cells a question means, as masks."""

    def __init__(self, answers: Answers, query: Query, assumed: Mapping[str, str]) -> None:
        self._answers, self._query = answers, query
        wanted = {axis: {value} for axis, value in assumed.items()}
        wanted |= {axis: set(values) for axis, values in query.names.items() if ANY not in values}
        self._wanted = [(answers.axes.index(axis), values) for axis, values in wanted.items() if axis in answers.axes]
        self.environments = answers.all
        for package, ranges in query.versions.items():
            self.environments &= answers.having(package, partial(_in_any, ranges))
        self._fits = [query.fits_verdict(kind.verdict, kind.group) for kind in answers.kinds]

    def rows(self) -> Iterator[Combination]:
        own = "load" not in self._query.names
        for row in self._answers.combinations:
            if own and row.rebuilt is not None:
                continue
            if all(row.values[place] in values for place, values in self._wanted):
                yield row

    def masks(self, row: Combination) -> dict[int, int]:
        """The environments that are meant, by kind of verdict."""
        return {
            kind: there for kind, mask in row.kinds.items() if self._fits[kind] and (there := mask & self.environments)
        }


def _in_any(ranges: Sequence[SpecifierSet], version: Version) -> bool:
    return any(version in allowed for allowed in ranges)


def _spans(answers: Answers, row: Combination, masks: Mapping[int, int]) -> Iterator[Span]:
    """The environments in their order, cut where the verdict or its signature changes."""
    looks: dict[tuple[str, str], tuple[int, int]] = {}
    for number, mask in masks.items():
        kind = answers.kinds[number]
        first, together = looks.get((kind.verdict, kind.signature), (number, 0))
        looks[kind.verdict, kind.signature] = (first, together | mask)
    left = 0
    for mask in masks.values():
        left |= mask
    while left:
        lowest = left & -left
        kind_number, mask = next(entry for entry in looks.values() if entry[1] & lowest)
        other = left & ~mask
        span = mask & left & ((other & -other) - 1) if other else left
        yield Span(
            answers,
            kind_number,
            span,
            sum(number * (mask & span).bit_count() for number, mask in row.attempts.items()),
            tuple(answers.runs[number].id for number, mask in sorted(row.runs.items()) if mask & span),
        )
        left &= ~span


def _newest_good(answers: Answers, query: Query, assumed: Mapping[str, str]) -> int | None:
    """The newest environment where all that is asked about was measured good, each of its pipelines at least once.

    An old environment that lacks a pipeline does not win because there is less of it that could fail.
    """
    asked = _Asked(answers, query.without("verdict"), assumed)
    pipeline = answers.axes.index("pipeline")
    spoilt, passed = 0, dict[str, int]()
    for row in asked.rows():
        for kind, mask in asked.masks(row).items():
            group = answers.kinds[kind].group
            before = passed.setdefault(row.values[pipeline], 0)
            if group == "good":
                passed[row.values[pipeline]] = before | mask
            elif group != "not applicable":
                spoilt |= mask
    good = answers.exist & ~spoilt if passed else 0
    for mask in passed.values():
        good &= mask
    return good.bit_length() - 1 if good else None


def _near(answers: Answers, query: Query, assumed: Mapping[str, str]) -> Iterator[str]:
    """What was measured when one thing that is asked about is left open."""
    for name in query.about:
        asked = _Asked(answers, query.without(name), assumed)
        found = [(row, masks) for row in asked.rows() if (masks := asked.masks(row))]
        if not found:
            continue
        used, count = 0, 0
        for _, masks in found:
            for mask in masks.values():
                used |= mask
                count += mask.bit_count()
        if name == "verdict":
            measured = sorted({answers.kinds[kind].verdict for _, masks in found for kind in masks})
        elif name in query.names:
            measured = sorted({row.values[answers.axes.index(name)] for row, _ in found})
        else:
            versions = {without_build(version) for place in bits(used) if (version := answers.version(place, name))}
            measured = sorted(versions, key=in_order)
        yield f"with any {name}: {count} cells; measured: {', '.join(measured)}"
