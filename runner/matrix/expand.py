"""Which cells does the matrix ask for? Products, exact versions, excludes, a selection."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from runner.errors import NoSelection
from runner.identifiers import subject_id
from runner.matrix.axes import PROBE, pointless
from runner.matrix.cover import STRENGTHS, cover
from runner.matrix.expressions import Expression, ExpressionError, Row
from runner.matrix.load import Coverage, Matrix, is_range

__all__ = [
    "PYTHONS",
    "Asked",
    "Cells",
    "Excluded",
    "Releases",
    "Selection",
    "asked_environments",
    "excluded_whatever_resolves",
    "expand",
    "selection",
]

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
"""The Python versions that the probe runs on."""

Releases = Callable[[str, str, bool, int], list[str]]
"""(package, range, pre-releases allowed, at most n) -> its newest releases, newest first. The seam to the index."""

MOST_RELEASES = 200
"""How many releases one range may mean."""


@dataclass(frozen=True)
class Asked:
    """One cell that was asked for.

    `asked` are the environment axes as written (`latest` stays `latest`, a range its exact members),
    `exact` the versions that they mean today, `probe` the probe axes; `as_of` the day after which releases are ignored.
    """

    asked: dict[str, str]
    exact: dict[str, str]
    probe: dict[str, str]
    backend: str
    as_of: str | None

    @cached_property
    def subject(self) -> str:
        """Computed when it is asked for: most of a large product is never run."""
        return subject_id(self.asked, self.probe, self.backend, self.as_of)

    def row(self, with_subject: bool = True) -> Row:
        exact = {**self.exact, **self.probe}
        return Row({**exact, "subject": self.subject} if with_subject else exact, self.asked)


@dataclass(frozen=True, slots=True)
class Excluded:
    """How many cells one exclude rule left out."""

    reason: str
    when: str
    count: int


@dataclass(frozen=True, slots=True)
class Cells:
    """What is left after excludes and the selection, and what was left out."""

    asked: tuple[Asked, ...]
    excluded: tuple[Excluded, ...]
    total: int


def _rows(matrix: Matrix) -> Iterator[dict[str, tuple[str, ...]]]:
    """`axes`, then each include row; a row takes from `axes` what it leaves out."""
    base = {axis: values for axis, values in matrix.axes.items() if values}
    if all(package in base for package in ("torch", "diffusers", "transformers", "accelerate")):
        yield base
    for row in matrix.include:
        yield {**base, **row}


def asked_environments(matrix: Matrix) -> list[dict[str, str]]:
    """The environments as written, without asking any index: what one can name before anything runs."""
    found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for row in _rows(matrix):
        names = [axis for axis in matrix.packages if axis in row]
        for values in itertools.product(*(row[axis] for axis in names)):
            asked = dict(zip(names, values, strict=True))
            found.setdefault(tuple(sorted(asked.items())), asked)
    return list(found.values())


def excluded_whatever_resolves(matrix: Matrix, asked: Mapping[str, str]) -> bool:
    """Whether a rule excludes this environment for sure, told without an index.

    Only rules over environment axes count, and only where what was asked for each is an exact version.
    """
    row = Row({axis: value for axis, value in asked.items() if value[:1].isdigit()}, asked)
    return any(
        rule.when.axes <= row.exact.keys() and rule.when.matches(row)
        for rule in matrix.exclude
        if not rule.when.axes & set(PROBE)
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """What is to be run: cells that fit any expression of `any_of` (None: all) and `narrowed`, within `coverage`."""

    name: str = ""
    any_of: tuple[Expression, ...] | None = None
    narrowed: Expression | None = None
    coverage: Coverage | None = None


class _Fits:
    """Whether an expression fits cells. What depends on probe axes alone is asked once, not once an environment."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self._of_probe = expression.axes <= set(PROBE)
        self._with_subject = "subject" in expression.axes
        self._known: dict[tuple[str, ...], bool] = {}

    def __call__(self, values: tuple[str, ...], cell: Asked) -> bool:
        """Whether it fits a cell; `values` are those of its probe axes."""
        if not self._of_probe:
            return self._expression.matches(cell.row(self._with_subject))
        known = self._known.get(values)
        if known is None:
            known = self._known[values] = self._expression.matches(cell.row(False))
        return known


def selection(matrix: Matrix, select: str | None) -> Selection:
    """What `select` means: a selection's name, an expression, or `NAME and EXPRESSION`; everything if None.

    Raises:
        NoSelection: it is none of these.
    """
    if select is None:
        return Selection()
    name, _, rest = (select, "", "") if select in matrix.selections else select.partition(" and ")
    name = name.strip()
    try:
        if name in matrix.selections:
            narrowed = matrix.expression(rest) if rest else None
            return Selection(name, matrix.selections[name], narrowed, matrix.coverage.get(name))
        return Selection(select, (matrix.expression(select),))
    except ExpressionError as error:
        names = ", ".join(matrix.selections) or "none"
        raise NoSelection(
            f"{select!r} is neither a selection nor an expression: {error}",
            f"Selections in {matrix.file}: {names}. An expression looks like `offload==sequential and diffusers>=0.36`.",
        ) from error


def expand(matrix: Matrix, select: str | None, releases: Releases) -> Cells:
    """Every cell of `matrix` that is asked for by `select`, once each.

    Args:
        matrix: a checked matrix.
        select: a selection's name, an expression, both joined by `and`, or None for all cells.
        releases: answers which releases a package has.

    Raises:
        NoSelection: `select` is unknown, or nothing is left.
    """
    wanted = selection(matrix, select)
    any_of = None if wanted.any_of is None else [_Fits(expression) for expression in wanted.any_of]
    rules = [(rule, _Fits(rule.when)) for rule in matrix.exclude]
    left_out: Counter[tuple[str, str]] = Counter()
    kept: list[Asked] = []
    seen: dict[tuple[tuple[str, str], ...], set[tuple[str, ...]]] = {}
    versions = _Versions(releases)
    for row in _rows(matrix):
        for environment, cells in _row_cells(matrix, row, versions):
            rows = seen.setdefault(environment, set())
            for values, cell in cells:
                if values in rows:
                    continue
                rows.add(values)
                rule = next((rule for rule, fits in rules if fits(values, cell)), None)
                if rule is not None:
                    left_out[rule.reason, rule.when.text] += 1
                elif any_of is None or any(fits(values, cell) for fits in any_of):
                    kept.append(cell)
    chosen = kept
    if wanted.coverage is not None:
        useful = _useful(kept)
        chosen = list(_covered(useful, wanted.coverage))
        left_out["nothing can be said in any version", wanted.name] += len(kept) - len(useful)
        reason = f"{wanted.coverage.strength} coverage: their pairs of values occur in other cells"
        left_out[reason, wanted.name] += len(useful) - len(chosen)
    if wanted.narrowed is not None:
        chosen = [cell for cell in chosen if wanted.narrowed.matches(cell.row())]
    if not chosen:
        raise NoSelection(
            f"no cell of {matrix.file} fits {select!r}" if select else f"{matrix.file} asks for no cell",
            "Run `metamatrix plan` without --select to see what there is.",
        )
    excluded = tuple(Excluded(reason, when, count) for (reason, when), count in left_out.items() if count)
    return Cells(tuple(chosen), excluded, sum(len(rows) for rows in seen.values()))


def _useful(cells: Iterable[Asked]) -> list[Asked]:
    """The cells that are not pointless, asked once a probe row."""
    reasons: dict[tuple[str, ...], str | None] = {}
    found = []
    for cell in cells:
        values = tuple(cell.probe.values())
        if values not in reasons:
            reasons[values] = pointless(cell.probe)
        if reasons[values] is None:
            found.append(cell)
    return found


def _covered(cells: Iterable[Asked], coverage: Coverage) -> Iterator[Asked]:
    """The cells that cover each environment; environments with the same probe rows get the same choice."""
    groups: dict[tuple[tuple[str, str], ...], list[Asked]] = {}
    anchored = [_Fits(expression) for expression in coverage.anchors]
    for cell in cells:
        groups.setdefault(tuple(sorted(cell.asked.items())), []).append(cell)
    choices: dict[frozenset[tuple[str, ...]], frozenset[tuple[str, ...]]] = {}
    for members in groups.values():
        rows = {tuple(cell.probe.values()): cell for cell in members}
        anchors = {values for values, cell in rows.items() if any(fits(values, cell) for fits in anchored)}
        key = frozenset((*values, str(values in anchors)) for values in rows)
        if key not in choices:
            kept = [rows[values].probe for values in sorted(anchors)]
            found = cover([cell.probe for cell in members], STRENGTHS[coverage.strength], kept)
            choices[key] = frozenset(tuple(row.values()) for row in found)
        chosen = choices[key]
        yield from (cell for values, cell in rows.items() if values in chosen)


_Environment = tuple[tuple[str, str], ...]


def _row_cells(
    matrix: Matrix, row: Mapping[str, tuple[str, ...]], versions: _Versions
) -> Iterator[tuple[_Environment, Iterator[tuple[tuple[str, ...], Asked]]]]:
    """The environments of a row, each with its cells, and those with the values of their probe axes."""
    packages = [axis for axis in matrix.packages if axis in row]
    environments = itertools.product(*(list(versions.exact(axis, row[axis])) for axis in packages))
    probes = [
        (values, dict(zip(PROBE, values, strict=True))) for values in itertools.product(*(row[axis] for axis in PROBE))
    ]
    as_of = matrix.as_of.isoformat() if matrix.as_of else None
    for pairs in environments:
        asked = {axis: pair[0] for axis, pair in zip(packages, pairs, strict=True)}
        exact = {axis: pair[1] for axis, pair in zip(packages, pairs, strict=True)}
        yield tuple(sorted(asked.items())), _cells_of(matrix, probes, asked, exact, as_of)


def _cells_of(
    matrix: Matrix,
    probes: Iterable[tuple[tuple[str, ...], dict[str, str]]],
    asked: dict[str, str],
    exact: dict[str, str],
    as_of: str | None,
) -> Iterator[tuple[tuple[str, ...], Asked]]:
    for values, probe in probes:
        backend = matrix.torch_backend.get(probe["runner"], probe["runner"])
        yield values, Asked(asked, exact, probe, backend, as_of)


class _Versions:
    """Turns what is asked into (asked, exact) pairs, asking the index once per question."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases
        self._known: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def exact(self, package: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
        for value in values:
            key = (package, value)
            if key not in self._known:
                self._known[key] = self._expand(package, value)
            yield from self._known[key]

    def _expand(self, package: str, value: str) -> list[tuple[str, str]]:
        if value == "latest" or value.startswith("latest-"):
            back = int(value.partition("-")[2] or 0)
            found = self._all(package, "", False, back + 1)
            if len(found) <= back:
                raise NoSelection(
                    f"{package} has only {len(found)} releases, so there is no {value!r}", "Ask for a newer one."
                )
            return [(value, found[back])]
        if value == "pre":
            found = self._all(package, "", True, 1)
            return [(value, found[0])] if found else []
        if is_range(value):
            found = self._all(package, value, False, MOST_RELEASES)
            if not found:
                raise NoSelection(
                    f"no release of {package} fits {value!r}", "Widen the range, or look up which releases exist."
                )
            return [(version, version) for version in reversed(found)]
        return [(value, value)]

    def _all(self, package: str, specifier: str, pre: bool, count: int) -> list[str]:
        if package == "python":
            allowed = SpecifierSet(specifier)
            return [version for version in reversed(PYTHONS) if Version(version) in allowed]
        return self._releases(package, specifier, pre, count)
