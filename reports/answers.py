"""What was the verdict on each combination, over all environments? Small enough to be asked at once.

For each combination of probe axes, which environments gave which verdict, as a bit an environment. A million results
are some hundred kilobytes, a question is a few operations on large integers, and the page asks the same file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import compress
from operator import or_
from typing import Any, Protocol

from packaging.version import Version

from reports.versions import public, without_build

__all__ = [
    "Answers",
    "Combination",
    "Ends",
    "Environment",
    "Kind",
    "Packages",
    "RunName",
    "bits",
    "install_line",
    "is_sound",
    "union",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunName:
    """A run that results come from."""

    id: str
    started: str
    tool: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A verdict with what decided it; `cause` is that of one cell."""

    verdict: str
    group: str
    stage: str
    signature: str
    expected: bool
    cause: str


@dataclass(frozen=True, slots=True)
class Environment:
    """`chosen` are the axes that its request named; `proof` says why it does not exist."""

    id: str
    exists: bool
    chosen: tuple[str, ...]
    proof: str


@dataclass(frozen=True, slots=True)
class Combination:
    """Values of the probe axes, and masks: bit n is the n-th environment.

    `kinds`, `runs`, `attempts`: which environments have this kind, were measured by this run, with so many attempts.
    """

    values: tuple[str, ...]
    rebuilt: str | None
    emulated: bool
    kinds: Mapping[int, int]
    runs: Mapping[int, int]
    attempts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Packages:
    """The versions of one package: `values[rows[n]]` in the n-th environment, -1 where it has none."""

    values: tuple[str, ...]
    rows: tuple[int, ...]


Ends = tuple[tuple[int, int], ...]
"""For each package the places of two versions in `Answers.order`; -1 where no environment has it."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """One package's versions in order: each environment's place, and masks of what is at least or at most a version."""

    rows: list[int]
    at_least: list[int]
    at_most: list[int]

    @classmethod
    def of(cls, versions: list[tuple[Version, int]], environments: int) -> _Scale:
        rows, at_most, below = [-1] * environments, [], 0
        for place, (_, mask) in enumerate(versions):
            for environment in bits(mask):
                rows[environment] = place
            below |= mask
            at_most.append(below)
        return cls(
            rows, [below & ~(known & ~mask) for known, (_, mask) in zip(at_most, versions, strict=True)], at_most
        )


@dataclass(frozen=True)
class Answers:
    """Environments in the order of their releases; what does not exist comes first.

    `telling` are the packages that environments are told apart by.
    """

    telling: tuple[str, ...]
    runs: tuple[RunName, ...]
    axes: tuple[str, ...]
    packages: Mapping[str, Packages]
    environments: tuple[Environment, ...]
    kinds: tuple[Kind, ...]
    combinations: tuple[Combination, ...]

    @cached_property
    def exist(self) -> int:
        """The mask of environments that exist."""
        return sum(1 << place for place, entry in enumerate(self.environments) if entry.exists)

    @cached_property
    def all(self) -> int:
        return (1 << len(self.environments)) - 1

    @cached_property
    def order(self) -> dict[str, list[tuple[Version, int]]]:
        """For each package that environments are told apart by, its versions in order, each with its mask."""
        return {name: sorted(self._masks(name)) for name in self.telling if name in self.packages}

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The values of each probe axis that were measured."""
        return {
            axis: list(dict.fromkeys(row.values[place] for row in self.combinations))
            for place, axis in enumerate(self.axes)
        }

    def _masks(self, package: str) -> Iterator[tuple[Version, int]]:
        column = self.packages[package]
        masks: dict[Version, int] = {}
        for place, row in enumerate(column.rows):
            if row >= 0 and (version := _version(column.values[row])) is not None:
                masks[version] = masks.get(version, 0) | 1 << place
        yield from masks.items()

    def having(self, package: str, fits: Callable[[Version], bool]) -> int:
        """The mask of environments whose version of a package fits."""
        if package not in self.packages:
            return 0
        return sum(mask for version, mask in self._masks(package) if fits(version))

    @cached_property
    def _scales(self) -> tuple[_Scale, ...]:
        return tuple(_Scale.of(versions, len(self.environments)) for versions in self.order.values())

    def names(self, mask: int) -> tuple[str, ...]:
        """The ids of the environments of a mask, oldest first."""
        return tuple(compress(self._ids, map(int, reversed(f"{mask:b}"))))

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        return tuple(entry.id for entry in self.environments)

    def ends(self, mask: int) -> Ends:
        """For each package that tells environments apart, the places of the oldest and newest version in a mask."""
        found = []
        for versions in self.order.values():
            low = next((place for place, (_, own) in enumerate(versions) if own & mask), -1)
            places = range(len(versions) - 1, low - 1, -1) if low >= 0 else ()
            found.append((low, next((place for place in places if versions[place][1] & mask), -1)))
        return tuple(found)

    def span(self, ends: Ends) -> dict[str, tuple[str, str]]:
        """The oldest and newest version of each package that has one."""
        return {
            package: (str(versions[low][0]), str(versions[high][0]))
            for (package, versions), (low, high) in zip(self.order.items(), ends, strict=True)
            if low >= 0
        }

    def widened(self, ends: Ends | None, environment: int) -> Ends:
        """The same with one environment more."""
        own = [scale.rows[environment] for scale in self._scales]
        if ends is None:
            return tuple((row, row) for row in own)
        return tuple(
            (row, row) if low < 0 else (low, high) if low <= row <= high or row < 0 else (min(low, row), max(high, row))
            for row, (low, high) in zip(own, ends, strict=True)
        )

    def within(self, ends: Ends) -> int:
        """The environments whose versions all lie between the ends."""
        found = self.exist
        for scale, (low, high) in zip(self._scales, ends, strict=True):
            if low >= 0:
                found &= scale.at_least[low] & scale.at_most[high]
        return found

    def version(self, environment: int, package: str) -> str | None:
        """What is installed in an environment; of one that does not exist, what was asked for."""
        column = self.packages.get(package)
        if column is None or column.rows[environment] < 0:
            return None
        return column.values[column.rows[environment]]

    def as_json(self) -> dict[str, Any]:
        """Plain data: masks as hexadecimal numbers, environments as columns."""
        return {
            "schema_version": SCHEMA_VERSION,
            "runs": [{"id": run.id, "started": run.started, "tool": run.tool} for run in self.runs],
            "axes": list(self.axes),
            "telling": list(self.telling),
            "packages": {
                name: {"values": list(column.values), "rows": list(column.rows)}
                for name, column in self.packages.items()
            },
            "environments": [
                {"id": entry.id, "exists": entry.exists, "chosen": list(entry.chosen), "proof": entry.proof}
                for entry in self.environments
            ],
            "kinds": [
                {
                    "verdict": kind.verdict,
                    "class": kind.group,
                    "stage": kind.stage,
                    "signature": kind.signature,
                    "expected": kind.expected,
                    "cause": kind.cause,
                }
                for kind in self.kinds
            ],
            "combinations": [
                {
                    "values": list(row.values),
                    "rebuilt": row.rebuilt,
                    "emulated": row.emulated,
                    "kinds": _hexadecimal(row.kinds),
                    "runs": _hexadecimal(row.runs),
                    "attempts": _hexadecimal(row.attempts),
                }
                for row in self.combinations
            ],
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Answers:
        """What `as_json` gave; keys of a later, additive version are left out.

        Raises:
            ValueError: it is something else, or its numbers lead nowhere.
        """
        try:
            found = _read(json.loads(text))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        _check(found)
        return found


def union(masks: Iterable[int]) -> int:
    """The environments of any of the masks."""
    return reduce(or_, masks, 0)


def bits(mask: int) -> Iterator[int]:
    """The places of the bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def install_line(answers: Answers, place: int) -> str:
    """The command that installs the chosen packages of an environment at the versions that were measured."""
    chosen = [package for package in answers.environments[place].chosen if package != "python"]
    versions = [(name, answers.version(place, name)) for name in chosen]
    pins = [f"{name.replace('_', '-')}=={without_build(version)}" for name, version in versions if version is not None]
    return "pip install " + " ".join(shlex.quote(pin) for pin in pins)


class _Probed(Protocol):
    @property
    def values(self) -> tuple[str, ...]: ...
    @property
    def rebuilt(self) -> str | None: ...


def is_sound(axes: Sequence[str], row: _Probed) -> bool:
    """Whether a combination speaks of the libraries: a sound checkpoint, loaded by the libraries' own ways."""
    return row.rebuilt is None and row.values[axes.index("checkpoint")] == "canonical"


def _version(text: str) -> Version | None:
    """A version to compare with; None for what is none, such as a commit."""
    try:
        return public(text)
    except ValueError:  # also a number with thousands of digits
        return None


def _hexadecimal(masks: Mapping[int, int]) -> dict[str, str]:
    return {str(number): f"{mask:x}" for number, mask in sorted(masks.items())}


def _masks(entry: Mapping[str, str]) -> dict[int, int]:
    return {int(number): int(mask, 16) for number, mask in entry.items()}


def _read(data: Mapping[str, Any]) -> Answers:
    if data["schema_version"] > SCHEMA_VERSION:
        raise ValueError(f"written by a newer metamatrix (schema {data['schema_version']})")
    return Answers(
        telling=tuple(data["telling"]),
        runs=tuple(RunName(entry["id"], entry["started"], entry["tool"]) for entry in data["runs"]),
        axes=tuple(data["axes"]),
        packages={
            name: Packages(tuple(column["values"]), tuple(column["rows"])) for name, column in data["packages"].items()
        },
        environments=tuple(
            Environment(entry["id"], entry["exists"], tuple(entry["chosen"]), entry["proof"])
            for entry in data["environments"]
        ),
        kinds=tuple(
            Kind(
                entry["verdict"],
                entry["class"],
                entry["stage"],
                entry["signature"],
                entry["expected"],
                entry["cause"],
            )
            for entry in data["kinds"]
        ),
        combinations=tuple(
            Combination(
                tuple(entry["values"]),
                entry["rebuilt"],
                entry["emulated"],
                _masks(entry["kinds"]),
                _masks(entry["runs"]),
                _masks(entry["attempts"]),
            )
            for entry in data["combinations"]
        ),
    )


def _check(found: Answers) -> None:
    """Every number leads somewhere, every text is one, and no environment has two verdicts on a combination."""
    count = len(found.environments)
    texts = [text for run in found.runs for text in (run.id, run.started, run.tool)]
    texts += [text for entry in found.environments for text in (entry.id, entry.proof, *entry.chosen)]
    texts += [
        text for kind in found.kinds for text in (kind.verdict, kind.group, kind.stage, kind.signature, kind.cause)
    ]
    texts += [text for row in found.combinations for text in (*row.values, row.rebuilt or "")]
    texts += [text for column in found.packages.values() for text in column.values]
    if not all(isinstance(text, str) for text in (*texts, *found.axes, *found.telling)):
        raise ValueError("something that should be text is none")
    if not found.runs:
        raise ValueError("there is no run")
    if missing := {"pipeline", "load", "offload", "checkpoint", "lifecycle", "runner"}.difference(found.axes):
        raise ValueError(f"the axes lack {', '.join(sorted(missing))}")
    for name, column in found.packages.items():
        if len(column.rows) != count or not all(
            type(row) is int and -1 <= row < len(column.values) for row in column.rows
        ):
            raise ValueError(f"the versions of {name} do not fit the environments")
    for row in found.combinations:
        if len(row.values) != len(found.axes):
            raise ValueError("a combination does not fit the axes")
        union = 0
        for masks, most in ((row.kinds, len(found.kinds)), (row.runs, len(found.runs)), (row.attempts, 1 << 31)):
            together = 0
            for number, mask in masks.items():
                if not 0 <= number < most or mask <= 0 or mask >> count or mask & together:
                    raise ValueError("the verdicts of a combination do not fit the environments")
                together |= mask
            if union and together != union:
                raise ValueError("the verdicts of a combination do not fit the environments")
            union = together
