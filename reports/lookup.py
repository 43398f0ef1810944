"""What was measured of what somebody asks? Verdicts over ranges of versions, the newest good environment, near misses.

Only what was measured is said. Where nothing was, the answer says what is near and what was never tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.dataset import DatasetModel, KeptEnvironment
from reports.query import ANY, Query, normal, public

__all__ = ["PACKAGES", "Answer", "Line", "Span", "install_line", "known_axes", "known_packages", "look_up"]

PACKAGES = ("diffusers", "transformers", "accelerate", "torch")
"""In the order in which environments are told apart: what is bumped most comes first."""

_ASSUMED = {"checkpoint": "canonical", "lifecycle": "single"}
"""What is meant where a question does not say: a sound file, and no further life after the image."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring environments with one verdict: the lowest and highest version of each package among them."""

    verdict: str
    group: str
    stage: str
    cause: str
    signature: str
    environments: tuple[KeptEnvironment, ...]

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        found = {}
        for package in PACKAGES:
            there = sorted(public(e.installed[package]) for e in self.environments if package in e.installed)
            if there:
                found[package] = (str(there[0]), str(there[-1]))
        return found


@dataclass(frozen=True, slots=True)
class Line:
    """One combination of probe axes over all environments that exist, oldest first."""

    axes: Mapping[str, str]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found: `lines` by combination, how many cells have each verdict, the newest environment that is good.

    `proofs` why environments that are asked about do not exist; `assumed` is what the question left open and how it was
    taken; `near` says in words what else was measured.
    """

    lines: tuple[Line, ...]
    counts: Mapping[str, int]
    proofs: tuple[str, ...]
    newest_good: KeptEnvironment | None
    assumed: Mapping[str, str]
    near: tuple[str, ...]
    measured: str
    tool: str


def known_axes(dataset: DatasetModel) -> dict[str, list[str]]:
    """The probe axes with the values that were measured, and `verdict` with its verdicts and classes."""
    found = {
        name.removeprefix("axes."): [*column.values, ANY]
        for name, column in dataset.columns.items()
        if name.startswith("axes.")
    }
    found["verdict"] = [*dataset.columns["verdict"].values, *dataset.columns["group"].values]
    return found


def known_packages(dataset: DatasetModel) -> list[str]:
    """The packages whose versions were chosen in some environment, or installed with it; Python too."""
    return sorted({name for environment in dataset.environments for name in _versions(environment)})


def _versions(environment: KeptEnvironment) -> dict[str, str]:
    """What is installed in an environment; of one that does not exist, what was asked for."""
    return {normal(name): version for name, version in {**environment.exact, **environment.installed}.items()}


def look_up(dataset: DatasetModel, query: Query) -> Answer:
    """The answer of a data set to a question."""
    assumed = {axis: value for axis, value in _ASSUMED.items() if axis not in query.names}
    rows = _rows(dataset, query, assumed)
    near = () if rows else tuple(_near(dataset, query, assumed))
    used = {dataset.columns["environment"][row] for row in rows}
    return Answer(
        lines=tuple(_lines(dataset, rows)),
        counts=Counter(dataset.columns["verdict"][row] for row in rows),
        proofs=tuple(entry.proof for entry in dataset.environments if entry.proof and entry.id in used),
        newest_good=_newest_good(dataset, query, assumed),
        assumed={**assumed, **({} if "load" in query.names else {"load": "the libraries' own"})},
        near=near,
        measured=dataset.run.started,
        tool=dataset.run.tool,
    )


def _rows(dataset: DatasetModel, query: Query, assumed: Mapping[str, str]) -> list[int]:
    """The cells that a question means; each column is asked once a value, not once a cell."""
    wanted = {f"axes.{axis}": {value} for axis, value in assumed.items()}
    wanted |= {f"axes.{axis}": set(values) for axis, values in query.names.items() if ANY not in values}
    environments = {entry.id for entry in dataset.environments if query.fits_environment(_versions(entry))}
    tests: list[tuple[Sequence[int], set[int]]] = []
    for name, values in (*wanted.items(), ("environment", environments)):
        tests.append(_test(dataset, name, lambda value, values=values: value in values))
    if "load" not in query.names:
        tests.append(_test(dataset, "rebuilt", lambda value: value is None))
    found: Iterable[int] = range(len(dataset))
    for column, allowed in sorted(tests, key=lambda test: len(test[1])):
        found = [row for row in found if column[row] in allowed]
    verdict, group = dataset.columns["verdict"], dataset.columns["group"]
    return [row for row in found if query.fits_verdict(verdict[row], group[row])]


def _test(dataset: DatasetModel, name: str, holds: Any) -> tuple[Sequence[int], set[int]]:
    column = dataset.columns[name]
    return column.rows, {place for place, value in enumerate(column.values) if holds(value)}


def _age(environment: KeptEnvironment) -> tuple[Any, ...]:
    """Environments in the order of their releases; what is not installed comes first."""
    versions = (environment.installed.get(package) for package in PACKAGES)
    return tuple((version is not None, public(version) if version else None) for version in versions)


def _lines(dataset: DatasetModel, rows: Sequence[int]) -> Iterable[Line]:
    axes = [name for name in dataset.columns if name.startswith("axes.")]
    environments = {entry.id: entry for entry in sorted(dataset.environments, key=_age)}
    order = {identifier: place for place, identifier in enumerate(environments)}
    groups: dict[tuple[str, ...], dict[str, int]] = {}
    for row in rows:
        if not environments[dataset.columns["environment"][row]].installed:
            continue  # what cannot be installed has no place in a range; it is counted
        key = tuple(dataset.columns[name][row] for name in axes)
        groups.setdefault(key, {})[dataset.columns["environment"][row]] = row
    for key, members in sorted(groups.items()):
        spans: list[Span] = []
        for identifier in sorted(members, key=order.__getitem__):
            span = _span(dataset, members[identifier], environments[identifier])
            if spans and (spans[-1].verdict, spans[-1].signature) == (span.verdict, span.signature):
                together = (*spans[-1].environments, *span.environments)
                spans[-1] = Span(**{**_fields(span), "cause": spans[-1].cause, "environments": together})
            else:
                spans.append(span)
        yield Line({name.removeprefix("axes."): value for name, value in zip(axes, key, strict=True)}, tuple(spans))


def _fields(span: Span) -> dict[str, Any]:
    return {name: getattr(span, name) for name in Span.__slots__}


def _span(dataset: DatasetModel, row: int, environment: KeptEnvironment) -> Span:
    names = ("verdict", "group", "stage", "cause", "signature")
    return Span(**{name: dataset.columns[name][row] for name in names}, environments=(environment,))


def _newest_good(dataset: DatasetModel, query: Query, assumed: Mapping[str, str]) -> KeptEnvironment | None:
    """The newest environment where all that is asked about was measured good, each of its pipelines at least once."""
    rows = _rows(dataset, query.without("verdict"), assumed)
    groups: dict[str, set[str]] = {}
    passed: dict[str, set[str]] = {}
    for row in rows:
        environment, group = dataset.columns["environment"][row], dataset.columns["group"][row]
        groups.setdefault(environment, set()).add(group)
        if group == "good":
            passed.setdefault(environment, set()).add(dataset.columns["axes.pipeline"][row])
    # An old environment that lacks a pipeline must not win because there is less of it that could fail.
    asked = {dataset.columns["axes.pipeline"][row] for row in rows}
    good = [
        entry
        for entry in dataset.environments
        if groups.get(entry.id, set()) <= {"good", "not applicable"} and asked <= passed.get(entry.id, set())
    ]
    return max(good, key=_age, default=None)


def _near(dataset: DatasetModel, query: Query, assumed: Mapping[str, str]) -> Iterable[str]:
    """What was measured when one thing that is asked about is left open."""
    for name in query.about:
        rows = _rows(dataset, query.without(name), assumed)
        if not rows:
            continue
        if name == "verdict":
            found = sorted({dataset.columns["verdict"][row] for row in rows})
        elif name in query.names:
            found = sorted({dataset.columns[f"axes.{name}"][row] for row in rows})
        else:
            used = {dataset.columns["environment"][row] for row in rows}
            own = [_versions(entry) for entry in dataset.environments if entry.id in used]
            versions = {public(installed[name]) for installed in own if name in installed}
            found = [str(version) for version in sorted(versions)]
        yield f"with any {name}: {len(rows)} cells; measured: {', '.join(found)}"


def install_line(environment: KeptEnvironment) -> str:
    """The command that installs the chosen packages of an environment at the versions that were measured."""
    versions = _versions(environment)
    chosen = [package for package in environment.exact if package != "python"]
    pins = " ".join(f"{package.replace('_', '-')}=={public(versions[normal(package)])}" for package in chosen)
    return f"pip install {pins}"
