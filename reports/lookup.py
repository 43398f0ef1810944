"""What was measured of what somebody asks? Verdicts over ranges of versions, the newest good environment, near misses.

Only what was measured is said. Where nothing was, the answer says what is near and what was never tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from reports.answers import Answers, Combination, Ends, bits, install_line, union
from reports.query import ANY, Query
from reports.versions import in_order, without_build
from reports.wording import CAVEATS, RUNNERS

__all__ = ["Answer", "Line", "Span", "environment_json", "known_axes", "known_packages", "look_up"]

_ASSUMED = {"checkpoint": "canonical", "lifecycle": "single"}
"""What is meant where a question does not say: a sound file, and no further life after the image."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring environments with one verdict; `mask` has a bit for each of them."""

    answers: Answers
    kind: int
    mask: int
    ends: Ends
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
        return self.answers.names(self.mask)

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        """The lowest and highest version of each package among them."""
        return self.answers.span(self.ends)

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
    """One combination of probe axes over the environments that exist and are `asked` about.

    `fits` says which kinds of verdict are.
    """

    answers: Answers
    combination: Combination
    asked: int
    fits: Sequence[bool]

    @property
    def axes(self) -> dict[str, str]:
        return dict(zip(self.answers.axes, self.combination.values, strict=True))

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The environments, oldest first, cut where the verdict or its signature changes."""
        return tuple(_spans(self.answers, self.combination, self.asked, self.fits))

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
    taken; `near` says in words what else was measured; `newest_good` is a place in `answers.environments`. Where
    nothing is good in all ways to load, `good_by_load` has the newest for each way that is.
    `bad_lifecycles` are those that nobody asked about, and that fail in the newest good environment.
    """

    answers: Answers
    lines: tuple[Line, ...]
    counts: Mapping[str, int]
    proofs: tuple[str, ...]
    newest_good: int | None
    good_by_load: Mapping[str, int]
    bad_lifecycles: tuple[str, ...]
    assumed: Mapping[str, str]
    near: tuple[str, ...]

    @property
    def measured(self) -> tuple[str, ...]:
        """When: the start of each run that the answer is from, oldest first."""
        used = {run for line in self.lines for span in line.spans for run in span.runs}
        return tuple(run.started for run in self.answers.runs if run.id in used)

    @property
    def notes(self) -> list[str]:
        """What the verdicts do not say."""
        return [text for about, text in CAVEATS if any(about.items() <= line.axes.items() for line in self.lines)]

    def as_json(self) -> dict[str, Any]:
        newest = self.newest_good
        return {
            "schema_version": 1,
            "counts": dict(self.counts),
            "proofs": list(self.proofs),
            "lines": [line.as_json() for line in self.lines],
            "newest_good": None if newest is None else environment_json(self.answers, newest),
            "good_by_load": {load: environment_json(self.answers, place) for load, place in self.good_by_load.items()},
            "bad_lifecycles": list(self.bad_lifecycles),
            "assumed": dict(self.assumed),
            "notes": list(self.notes),
            "near": list(self.near),
            "measured": list(self.measured),
        }


def environment_json(answers: Answers, place: int) -> dict[str, Any]:
    """An environment with its versions and the line that installs it."""
    installed = {name: version for name in answers.packages if (version := answers.version(place, name)) is not None}
    return {
        "environment": answers.environments[place].id,
        "installed": installed,
        "install": install_line(answers, place),
    }


def known_axes(answers: Answers) -> dict[str, list[str]]:
    """The probe axes with the values that were measured, and `verdict` with its verdicts and classes."""
    found = {axis: [*values, ANY] for axis, values in answers.values.items()}
    verdicts = [kind.verdict for kind in answers.kinds] + [kind.group for kind in answers.kinds]
    found["verdict"] = list(dict.fromkeys(verdicts))
    found["runner"] = list(dict.fromkeys([*found.get("runner", []), *RUNNERS]))
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
        if any(mask & answers.exist for mask in masks.values()):
            # What cannot be installed has no place in a range; it is counted.
            lines.append(Line(answers, row, asked.environments & answers.exist, asked.fits))
    ruled_out = bits(used & ~answers.exist)
    newest = _newest_good(answers, query, assumed)
    return Answer(
        answers,
        lines=tuple(sorted(lines, key=lambda line: line.combination.values)),
        counts=counts,
        proofs=tuple(proof for place in ruled_out if (proof := answers.environments[place].proof)),
        newest_good=newest,
        good_by_load=_by_load(answers, query, assumed) if newest is None else {},
        bad_lifecycles=() if newest is None else _bad_lifecycles(answers, query, assumed, newest),
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
        self.fits = [query.fits_verdict(kind.verdict, kind.group) for kind in answers.kinds]

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
            kind: there for kind, mask in row.kinds.items() if self.fits[kind] and (there := mask & self.environments)
        }


def _in_any(ranges: Sequence[SpecifierSet], version: Version) -> bool:
    return any(version in allowed for allowed in ranges)


def _spans(answers: Answers, row: Combination, asked: int, fits: Sequence[bool]) -> Iterator[Span]:
    """The environments in their order, cut where the verdict or its signature changes, and those spans that fit.

    A cell that is not asked about ends a span all the same: a range must not jump over what is bad.
    """
    looks: dict[tuple[str, str], tuple[int, int]] = {}
    for number, mask in row.kinds.items():
        kind = answers.kinds[number]
        first, together = looks.get((kind.verdict, kind.signature), (number, 0))
        looks[kind.verdict, kind.signature] = (first, together | mask & asked)
    left = whole = union(mask for _, mask in looks.values())
    while left:
        lowest = left & -left
        first, mask = next(entry for entry in looks.values() if entry[1] & lowest)
        other = left & ~mask
        stretch = mask & left & ((other & -other) - 1) if other else left
        left &= ~stretch
        if fits[first]:
            for span, ends in _unmixed(answers, stretch, whole & ~mask):
                yield Span(
                    answers,
                    next(number for number in row.kinds if row.kinds[number] & span),
                    span,
                    ends,
                    sum(number * (mask & span).bit_count() for number, mask in row.attempts.items()),
                    tuple(answers.runs[number].id for number, mask in sorted(row.runs.items()) if mask & span),
                )


def _unmixed(answers: Answers, stretch: int, others: int) -> Iterator[tuple[int, Ends]]:
    """A stretch cut so that the ranges of its versions hold none of the other environments.

    Neighbours in the order of releases need not be neighbours in every package.
    """
    whole = answers.ends(stretch)
    if not answers.within(whole) & others:
        yield stretch, whole
        return
    span, inside, left = 0, 0, stretch
    ends: Ends | None = None
    while left:
        outside = left & ~inside
        first = outside & -outside
        span |= left & (first - 1) if first else left  # what lies within the ranges already widens nothing
        left &= ~span
        if not first:
            break
        place = first.bit_length() - 1
        wider = answers.widened(ends, place)
        wide = answers.within(wider)
        if span and ends is not None and wide & others:
            yield span, ends
            span, wider = 0, answers.widened(None, place)
            wide = answers.within(wider)
        span, ends, inside, left = span | first, wider, wide, left & ~first
    if ends is not None:
        yield span, ends


def _newest_good(answers: Answers, query: Query, assumed: Mapping[str, str]) -> int | None:
    """The newest environment where all that is asked about was measured good, each pipeline and named value at least once.

    An old environment that lacks a pipeline does not win because there is less of it that could fail.
    """
    asked = _Asked(answers, query.without("verdict"), assumed)
    spoilt, passed = 0, dict[tuple[int, str], int]()
    named = {answers.axes.index(axis): values for axis, values in query.names.items() if axis in answers.axes}
    required = {place: values for place, values in named.items() if ANY not in values}
    for place, values in required.items():
        passed |= {(place, value): 0 for value in values}
    pipeline = answers.axes.index("pipeline")
    for row in asked.rows():
        for kind, mask in asked.masks(row).items():
            group = answers.kinds[kind].group
            for place in {pipeline, *required}:
                before = passed.setdefault((place, row.values[place]), 0)
                passed[place, row.values[place]] = before | (mask if group == "good" else 0)
            if group not in ("good", "not applicable"):
                spoilt |= mask
    good = answers.exist & ~spoilt if passed else 0
    for mask in passed.values():
        good &= mask
    return good.bit_length() - 1 if good else None


def _by_load(answers: Answers, query: Query, assumed: Mapping[str, str]) -> dict[str, int]:
    """Where the loads were left open and not all are good: the newest good environment of each that has one."""
    if "load" in query.names:
        return {}
    own = {row.values[answers.axes.index("load")] for row in _Asked(answers, query, assumed).rows()}
    found = {}
    for load in sorted(own):
        narrowed = replace(query, names={**query.names, "load": frozenset({load})})
        newest = _newest_good(answers, narrowed, assumed)
        if newest is not None:
            found[load] = newest
    return found


def _bad_lifecycles(answers: Answers, query: Query, assumed: Mapping[str, str], environment: int) -> tuple[str, ...]:
    """The lifecycles beyond the assumed one in which something that is asked about is bad in an environment."""
    if "lifecycle" not in assumed or "lifecycle" not in answers.axes:
        return ()
    others = {axis: value for axis, value in assumed.items() if axis != "lifecycle"}
    asked = _Asked(answers, query.without("verdict"), others)
    place = answers.axes.index("lifecycle")
    found = {
        row.values[place]
        for row in asked.rows()
        for kind, mask in asked.masks(row).items()
        if answers.kinds[kind].group == "bad" and mask >> environment & 1
    }
    return tuple(sorted(found))


def _near(answers: Answers, query: Query, assumed: Mapping[str, str]) -> Iterator[str]:
    """What was measured when one thing that is asked about is left open; where that is not enough, of each alone."""
    told = False
    for name in query.about:
        asked = _Asked(answers, query.without(name), assumed)
        found = [(row, masks) for row in asked.rows() if (masks := asked.masks(row))]
        if found:
            told = True
            count = sum(mask.bit_count() for _, masks in found for mask in masks.values())
            yield f"with any {name}: {count} cells; measured: {', '.join(_measured(answers, name, query, found))}"
    if not told:
        for name in query.versions:
            if not answers.having(name, partial(_in_any, query.versions[name])):
                versions = {without_build(v) for v in answers.packages[name].values}
                yield f"{name}: measured: {', '.join(sorted(versions, key=in_order))}"


def _measured(
    answers: Answers, name: str, query: Query, found: Sequence[tuple[Combination, Mapping[int, int]]]
) -> list[str]:
    """The verdicts, values or versions that some cells have."""
    if name == "verdict":
        return sorted({answers.kinds[kind].verdict for _, masks in found for kind in masks})
    if name in query.names:
        return sorted({row.values[answers.axes.index(name)] for row, _ in found})
    used = union(mask for _, masks in found for mask in masks.values())
    versions = {without_build(version) for place in bits(used) if (version := answers.version(place, name))}
    return sorted(versions, key=in_order)
