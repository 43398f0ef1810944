"""Is the matrix file right? From bytes to a checked `Matrix`, or to all of its faults at once."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import ValidationError

from runner.errors import MatrixError, Problem
from runner.identifiers import digest
from runner.matrix.axes import ENVIRONMENT, PROBE, PROBE_VALUES, normal_name
from runner.matrix.expressions import Expression, ExpressionError, parse
from runner.matrix.positions import MAX_BYTES, Document, dotted, read_yaml
from runner.matrix.schema import CoverageModel, LimitsModel, MatrixModel
from runner.verdicts import Verdict

__all__ = ["REQUIRED", "Coverage", "Exclude", "Expect", "Limits", "Matrix", "is_range", "load_matrix", "parse_matrix"]

_SPECIAL = re.compile(r"latest(-\d{1,2})?|pre")
REQUIRED = ("torch", "diffusers", "transformers", "accelerate")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Exclude:
    """Cells that are not planned, with the reason."""

    when: Expression
    reason: str


@dataclass(frozen=True, slots=True)
class Expect:
    """A known failure: `verdict` counts as expected until `expires`."""

    when: Expression
    verdict: Verdict
    expires: date
    link: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one cell may use: seconds, MiB of memory, MiB of one written file, processes and threads."""

    seconds: int
    memory_mb: int
    disk_mb: int
    processes: int = 64

    def as_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a selection is run: a `strength` of `cover.STRENGTHS`, and what always runs."""

    strength: str
    anchors: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A checked matrix file."""

    file: str
    digest: str
    axes: dict[str, tuple[str, ...]]
    include: tuple[dict[str, tuple[str, ...]], ...]
    exclude: tuple[Exclude, ...]
    selections: dict[str, tuple[Expression, ...]]
    coverage: dict[str, Coverage]
    expect: tuple[Expect, ...]
    limits: Limits
    torch_index: str
    torch_backend: dict[str, str]
    as_of: date | None

    @property
    def packages(self) -> tuple[str, ...]:
        """The environment axes, Python first, in the order of the file."""
        return _packages(self.axes, self.include)

    def expression(self, text: str) -> Expression:
        """Parse `text` over this matrix's axes.

        Raises:
            ExpressionError: it is no expression, or names what this matrix does not have.
        """
        return parse(text, PROBE_VALUES, self.packages)


def _packages(axes: Mapping[str, object], include: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    names = dict.fromkeys(name for row in (axes, *include) for name in row if name not in PROBE)
    return ("python", *(name for name in names if name != "python"))


def load_matrix(path: Path) -> Matrix:
    """Read and check a matrix file.

    Raises:
        MatrixError: the file cannot be read, or is wrong; all its faults are named.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # enough to see that it is too large
    except OSError as error:
        raise MatrixError(str(path), [Problem(1, 1, "", f"cannot be read: {error.strerror}")]) from error
    return parse_matrix(content, str(path))


def parse_matrix(content: bytes, file: str) -> Matrix:
    """Check `content`, which came from `file`. See `load_matrix`."""
    document = read_yaml(content, file)
    problems = list(_unknown_keys(document))
    try:
        model = MatrixModel.model_validate(document.data)
    except ValidationError as error:
        problems += _from_pydantic(error, document)
        raise MatrixError(file, _sorted(problems)) from error
    problems += _axis_problems(document, model)
    if problems:
        raise MatrixError(file, _sorted(problems))
    return _Builder(document, model).matrix()


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(set(problems), key=lambda problem: (problem.line, problem.column, problem.what))


def _problem(document: Document, path: tuple[str | int, ...], what: str, hint: str = "", key: bool = False) -> Problem:
    line, column = document.position(path, key)
    return Problem(line, column, dotted(path), what, hint)


_KNOWN = {
    (): tuple(MatrixModel.model_fields),
    ("limits",): tuple(LimitsModel.model_fields),
    ("exclude", 0): ("when", "reason"),
    ("coverage", "*"): tuple(CoverageModel.model_fields),
    ("expect", 0): ("when", "verdict", "link", "reason", "expires"),
}


def _unknown_keys(document: Document) -> Iterator[Problem]:
    for path in document.keys:
        around = tuple(0 if isinstance(part, int) else part for part in path[:-1])
        known = _KNOWN.get(around) or _KNOWN.get((*around[:-1], "*"))
        if known is not None and path[-1] not in known:
            near = difflib.get_close_matches(str(path[-1]), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
            yield _problem(document, path, "unknown key", hint, key=True)


def _from_pydantic(error: ValidationError, document: Document) -> list[Problem]:
    problems = []
    for detail in error.errors(include_url=False):
        path = detail["loc"]
        kind = detail["type"]
        if kind == "extra_forbidden":
            continue  # reported with a suggestion already
        what = detail["msg"].removeprefix("Value error, ")
        if kind == "missing":
            problems.append(_problem(document, path[:-1], f"the key {detail['loc'][-1]!r} is missing"))
            continue
        found = detail.get("input")
        hint = "" if kind == "value_error" else f"found {str(found)[:60]!r}"
        problems.append(_problem(document, path, what, hint))
    return problems


def _axis_problems(document: Document, model: MatrixModel) -> Iterator[Problem]:
    rows: list[tuple[tuple[str | int, ...], dict[str, list[str]]]] = [(("axes",), model.axes)]
    rows += [(("include", index), row) for index, row in enumerate(model.include)]
    for base, row in rows:
        for axis, values in row.items():
            path = (*base, axis)
            for index, value in enumerate(values):
                where = (*path, index) if (*path, index) in document.values else path
                yield from _value_problems(document, where, axis, value)
            if not _NAME.fullmatch(axis):
                yield _problem(document, path, "no name of a package or of a probe axis", key=True)
            elif axis not in PROBE and axis not in ENVIRONMENT:
                near = difflib.get_close_matches(axis, [*PROBE, *ENVIRONMENT], 1, 0.8)
                if near:
                    yield _problem(document, path, "unknown axis", f"did you mean {near[0]!r}?", key=True)
    for axis in REQUIRED:
        if axis not in model.axes and not (model.include and all(axis in row for row in model.include)):
            yield _problem(document, ("axes",), f"the axis {axis!r} is missing", 'give versions, or "latest"', key=True)


def _value_problems(document: Document, path: tuple[str | int, ...], axis: str, value: str) -> Iterator[Problem]:
    if axis in PROBE:
        known = PROBE_VALUES[axis]
        if value not in known:
            near = difflib.get_close_matches(value, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            yield _problem(document, path, f"unknown value {value!r}", hint)
    elif not _SPECIAL.fullmatch(value) and not _is_version(value) and not is_range(value):
        hint = 'an exact version "2.13.0", a range ">=0.36,<0.43", "latest", "latest-1" or "pre"'
        yield _problem(document, path, f"{value!r} is no version", hint)


def _is_version(value: str) -> bool:
    try:
        Version(value)
    except InvalidVersion:
        return False
    return True


def is_range(value: str) -> bool:
    """Whether an axis value is a version range, such as `>=0.36,<0.43`."""
    try:
        return bool(str(SpecifierSet(value)))
    except InvalidSpecifier:
        return False


class _Builder:
    """Turns a checked model into a matrix; expressions are parsed here, and their faults collected."""

    def __init__(self, document: Document, model: MatrixModel) -> None:
        self.document, self.model = document, model
        self.problems: list[Problem] = []
        self.axes = {normal_name(name): tuple(dict.fromkeys(values)) for name, values in model.axes.items()}
        self.axes.setdefault("python", ("3.11",))
        for axis, known in PROBE_VALUES.items():
            self.axes.setdefault(axis, known[:1])
        self.include = tuple(
            {normal_name(name): tuple(dict.fromkeys(values)) for name, values in row.items()} for row in model.include
        )
        self.packages = _packages(self.axes, self.include)

    def expression(self, text: str, path: tuple[str | int, ...]) -> Expression:
        try:
            return parse(text, PROBE_VALUES, self.packages)
        except ExpressionError as error:
            self.problems.append(_problem(self.document, path, str(error)))
            return Expression(text, frozenset(), lambda row: False)

    def matrix(self) -> Matrix:
        model = self.model
        exclude = tuple(
            Exclude(self.expression(entry.when, ("exclude", index, "when")), entry.reason)
            for index, entry in enumerate(model.exclude)
        )
        selections = {
            name: tuple(self.expression(text, ("selections", name, index)) for index, text in enumerate(texts))
            for name, texts in model.selections.items()
        }
        coverage = {
            name: Coverage(
                entry.strength,
                tuple(
                    self.expression(text, ("coverage", name, "anchors", index))
                    for index, text in enumerate(entry.anchors)
                ),
            )
            for name, entry in model.coverage.items()
        }
        for name in sorted(coverage.keys() - selections.keys()):
            known = ", ".join(selections) or "none"
            path = ("coverage", name)
            self.problems.append(_problem(self.document, path, "no such selection", f"known: {known}", key=True))
        expect = tuple(
            Expect(
                self.expression(entry.when, ("expect", index, "when")),
                entry.verdict,
                entry.expires,
                entry.link,
                entry.reason,
            )
            for index, entry in enumerate(model.expect)
        )
        if self.problems:
            raise MatrixError(self.document.file, _sorted(self.problems))
        limits = Limits(**model.limits.model_dump())
        return Matrix(
            file=self.document.file,
            digest=digest(model.model_dump(mode="json")),
            axes=self.axes,
            include=self.include,
            exclude=exclude,
            selections=selections,
            coverage=coverage,
            expect=expect,
            limits=limits,
            torch_index=model.torch_index,
            torch_backend=dict(model.torch_backend),
            as_of=model.as_of,
        )
