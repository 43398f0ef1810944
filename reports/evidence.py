"""What was ever measured? All published runs in one table of numbers: a cell is a combination in an environment.

Numbers instead of cells: a million results are joined, counted and compared without a million objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

from reports.answers import Answers, Combination, Environment, Kind, Packages, RunName
from reports.dataset import KNOWN, Column, DatasetModel, KeptEnvironment
from reports.versions import PACKAGES, in_order, normal, without_build
from reports.wording import SILENT, clipped

__all__ = ["Cell", "Evidence", "Probed", "Run"]

_AXES = ("pipeline", "load", "offload", "checkpoint", "lifecycle", "dtype", "runner")
"""The order in which people name them; others come after."""
_ALSO = ("python", "huggingface_hub", "safetensors", "peft")
"""What tells environments apart whose other packages are alike, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Probed:
    """Values of all probe axes, in the order of `Evidence.axes`."""

    values: tuple[str, ...]
    rebuilt: str | None
    emulated: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One run; the n-th row of each list is its n-th cell, as numbers of the evidence's lists.

    `data` is as it was kept, `columns` are its columns with long texts cut.
    """

    data: DatasetModel
    columns: Mapping[str, Column]
    subjects: Sequence[str]
    kinds: Sequence[int]
    environments: Sequence[int]
    combinations: Sequence[int]
    attempts: Sequence[int]

    @property
    def id(self) -> str:
        return self.data.run.id

    @property
    def started(self) -> str:
        return self.data.run.started


class Cell(NamedTuple):
    """A cell as numbers: places in the evidence's lists, its number of attempts, and its row in its run."""

    combination: int
    environment: int
    kind: int
    run: int
    attempts: int
    row: int


class Evidence:
    """All runs, oldest first.

    `environments` are in the order of their releases, oldest first; what does not exist comes before all that does.
    """

    def __init__(self, datasets: Iterable[DatasetModel]) -> None:
        """Take in the data sets of runs.

        Raises:
            ValueError: there is none, or two of them claim to be the same run.
        """
        ordered = sorted(datasets, key=lambda data: (data.run.started, data.run.id))
        if not ordered:
            raise ValueError("there is no run")
        names = [data.run.id for data in ordered]
        if len(set(names)) != len(names):
            raise ValueError(f"the run {next(name for name in names if names.count(name) > 1)!r} is given twice")
        measured = {name.removeprefix("axes.") for data in ordered for name in data.columns if name.startswith("axes.")}
        self.axes = tuple(axis for axis in _AXES if axis in measured) + tuple(sorted(measured.difference(_AXES)))
        known = {entry.id: entry for data in ordered for entry in data.environments}
        self.telling = _telling(list(known.values()))
        self.environments: list[KeptEnvironment] = sorted(known.values(), key=self._age)
        self._places = {entry.id: place for place, entry in enumerate(self.environments)}
        self.kinds: list[Kind] = []
        self.combinations: list[Probed] = []
        self._kinds: dict[tuple[object, ...], int] = {}
        self._combinations: dict[Probed, int] = {}
        self.runs = tuple(self._run(data) for data in ordered)

    def _age(self, entry: KeptEnvironment) -> tuple[Any, ...]:
        """The order of releases; what does not exist comes first; the id where all is equal."""
        versions = _released(entry) if entry.installed else {}
        there = ((name in versions, in_order(versions.get(name, ""))) for name in self.telling)
        return (*there, entry.id)

    def _run(self, data: DatasetModel) -> Run:
        known = {name: column for name, column in data.columns.items() if name in KNOWN or name.startswith("axes.")}
        columns = {name: _clipped(column) for name, column in known.items()}
        absent = Column(values=[""], rows=[0] * len(data))
        axes = [columns.get("axes." + name, absent) for name in self.axes]
        return Run(
            data,
            columns,
            subjects=_spelled(columns["subject"]),
            kinds=_numbered(
                [columns[name] for name in ("verdict", "group", "stage", "signature", "expected", "cause")], self._kind
            ),
            environments=_numbered([columns["environment"]], lambda values: self._places[values[0]]),
            combinations=_numbered([*axes, columns["rebuilt"], columns["emulated"]], self._combination),
            attempts=_spelled(columns["attempts"]),
        )

    def _kind(self, values: Sequence[Any]) -> int:
        # Failures are told apart by their signature; what does not apply, or has no answer, by its reason.
        *what, signature, expected, cause = values
        key = (*what, signature, expected, "" if signature else cause)
        if key not in self._kinds:
            self._kinds[key] = len(self.kinds)
            self.kinds.append(Kind(*values))
        return self._kinds[key]

    def _combination(self, values: Sequence[Any]) -> int:
        *axes, rebuilt, emulated = values
        found = Probed(tuple(axes), rebuilt, emulated)
        if found not in self._combinations:
            self._combinations[found] = len(self.combinations)
            self.combinations.append(found)
        return self._combinations[found]

    @property
    def newest(self) -> Run:
        return self.runs[-1]

    def subjects(self) -> dict[str, tuple[int, int]]:
        """What was asked, each with the result that counts: (run, row). Subjects of the newest run come first."""
        silent = self._silent()
        order = dict.fromkeys(subject for run in reversed(self.runs) for subject in run.subjects)
        found: dict[str, tuple[int, int]] = {}
        for number in self._by_weight():
            run = self.runs[number]
            places = zip(run.subjects, zip(repeat(number), range(len(run.subjects))), run.kinds, strict=False)
            found.update({subject: place for subject, place, kind in places if not (silent[kind] and subject in found)})
        return {subject: found[subject] for subject in order}

    @cached_property
    def cells(self) -> list[Cell]:
        """Every combination in every environment that has a result that counts, once."""
        silent = self._silent()
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for number in self._by_weight():
            run = self.runs[number]
            if run.data.probe_version != self.newest.data.probe_version:
                continue
            for row, place in enumerate(zip(run.combinations, run.environments, strict=True)):
                if not (silent[run.kinds[row]] and place in found):
                    found[place] = (number, row)
        cells = []
        for (combination, environment), (number, row) in found.items():
            run = self.runs[number]
            cells.append(Cell(combination, environment, run.kinds[row], number, run.attempts[row], row))
        return cells

    def _by_weight(self) -> list[int]:
        """Runs, the one whose word counts most last.

        The newest result counts, but no answer never takes the place of an answer: that was measured all the same. What
        another version of the probe found counts less, whenever it was: it may have overlooked what this one sees.
        """
        own = [run.data.probe_version == self.newest.data.probe_version for run in self.runs]
        return sorted(range(len(self.runs)), key=lambda number: (own[number], number))

    def _silent(self) -> list[bool]:
        return [kind.group in SILENT for kind in self.kinds]

    def answers(self) -> Answers:
        """Every cell once, to be asked."""
        masks: dict[int, tuple[dict[int, int], dict[int, int], dict[int, int]]] = {}
        for combination, environment, kind, run, attempts, _ in self.cells:
            bit = 1 << environment
            for found, number in zip(masks.setdefault(combination, ({}, {}, {})), (kind, run, attempts), strict=True):
                found[number] = found.get(number, 0) | bit
        installed = [_all_versions(entry) for entry in self.environments]
        names = sorted({name for versions in installed for name in versions})
        return Answers(
            telling=self.telling,
            runs=tuple(RunName(run.id, run.started, run.data.run.tool) for run in self.runs),
            axes=self.axes,
            packages={name: _packages([versions.get(name) for versions in installed]) for name in names},
            environments=tuple(
                Environment(entry.id, bool(entry.installed), tuple(entry.exact), entry.proof)
                for entry in self.environments
            ),
            kinds=tuple(self.kinds),
            combinations=tuple(
                Combination(known.values, known.rebuilt, known.emulated, *masks[number])
                for number, known in enumerate(self.combinations)
                if number in masks
            ),
        )


def _packages(versions: Sequence[str | None]) -> Packages:
    """The versions in their order, so that readers need not know how versions are ordered."""
    values = sorted({version for version in versions if version is not None}, key=in_order)
    places = {version: place for place, version in enumerate(values)}
    return Packages(tuple(values), tuple(-1 if version is None else places[version] for version in versions))


def _clipped(column: Column) -> Column:
    """The column with texts that can be read: every page would carry a message of ten megabytes."""
    return Column.model_construct(values=[clipped(value) for value in column.values], rows=column.rows)


def _spelled(column: Column) -> list[Any]:
    values = column.values
    return [values[row] for row in column.rows]


def _numbered(columns: Sequence[Column], number: Callable[[Sequence[Any]], int]) -> list[int]:
    """One number a row; `number` is asked once for each different combination of values."""
    known: dict[tuple[int, ...], int] = {}
    rows = list(zip(*(column.rows for column in columns), strict=True))
    for key in dict.fromkeys(rows):
        values = [column.values[place] for column, place in zip(columns, key, strict=True)]
        known[key] = number(values)
    return [known[row] for row in rows]


def _telling(environments: Sequence[KeptEnvironment]) -> tuple[str, ...]:
    """The packages that tell environments apart: those that are bumped most, and what else it takes."""
    existing = [_released(entry) for entry in environments if entry.installed]
    names = sorted({name for versions in existing for name in versions}.difference(PACKAGES))
    found = list(PACKAGES)

    def alike() -> int:
        return len(existing) - len({tuple(versions.get(name) for name in found) for versions in existing})

    for name in [*(first for first in _ALSO if first in names), *(name for name in names if name not in _ALSO)]:
        before = alike()
        if not before:
            break
        found.append(name)
        if alike() == before:
            found.pop()
    return tuple(found)


def _all_versions(entry: KeptEnvironment) -> dict[str, str]:
    """What is installed in an environment, by normal name; of one that does not exist, what was asked for; Python too."""
    return {normal(name): version for name, version in {**entry.exact, **entry.installed}.items()}


def _released(entry: KeptEnvironment) -> dict[str, str]:
    """The same without builds, which do not tell environments apart."""
    return {name: without_build(version) for name, version in _all_versions(entry).items()}
