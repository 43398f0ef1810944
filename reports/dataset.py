"""What is left of a run when it is kept for years? Every verdict with its cause, and how to run each cell again.

Columns instead of cells, each value once: a table of twenty thousand cells fits into a repository. Logs, arrays and
single attempts stay with the run. Changes of the format are additive only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reports.document import CellModel, Group, ResultsModel, RunModel
from reports.names import DATASET
from reports.versions import PACKAGES

__all__ = [
    "FILE",
    "Column",
    "DatasetModel",
    "KeptEnvironment",
    "compact",
    "dataset_schema",
    "parse_dataset",
    "read_dataset",
]

SCHEMA_VERSION = 1
FILE = DATASET
UNFINISHED = "unfinished"
"""The verdict of a cell that has none yet."""
_TENSORS = 40
"""How many tensors of a cell are kept by name; the cause tells their number."""
_WHOLE = ("id", "subject", "environment", "verdict", "group", "stage", "cause", "signature", "expected", "attempts")


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class KeptEnvironment(_Model):
    """One environment with its lock: every package with the wheel that was installed and its sha256."""

    id: str
    requested: dict[str, str]
    exact: dict[str, str] = Field(description="What the request meant on the day of the run.")
    backend: str = Field(description="The torch backend that was asked for.")
    installed: dict[str, str]
    python: str | None
    platform: str | None
    packages: list[tuple[str, str, str, str]] = Field(description="Name, version, wheel, sha256 of the wheel.")
    controls: int = Field(ge=0, description="How many defects were planted, over all pipelines.")
    missed: list[dict[str, Any]] = Field(description="Those that the guard did not catch.")
    drift: str
    proof: str
    fault: str


class Column(_Model):
    """One value a cell: `values[rows[n]]` for the n-th cell."""

    values: list[Any]
    rows: list[int]

    @classmethod
    def of(cls, items: Iterable[Any]) -> Column:
        values: list[Any] = []
        places: dict[str, int] = {}
        rows = []
        for item in items:
            key = json.dumps(item, sort_keys=True)
            if key not in places:
                places[key] = len(values)
                values.append(item)
            rows.append(places[key])
        return cls(values=values, rows=rows)

    def __getitem__(self, row: int) -> Any:
        return self.values[self.rows[row]]


class DatasetModel(_Model):
    """The results of one run."""

    schema_version: int
    run: RunModel
    probe_version: str
    environments: list[KeptEnvironment]
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(self.columns["subject"].rows)

    @property
    def answered(self) -> bool:
        """Whether any cell has a verdict."""
        return any(verdict != UNFINISHED for verdict in self.columns["verdict"].values)

    def cells(self) -> Iterator[CellModel]:
        """Every cell as `results.json` has it, without its attempts, and with the first of its tensors only.

        Whether an expectation has expired depends on the day, and is left to who asks.
        """
        names = [name.removeprefix("axes.") for name in self.columns if name.startswith("axes.")]
        for row in range(len(self)):
            known = {name: self.columns[name][row] for name in _WHOLE}
            known["verdict"] = None if known["verdict"] == UNFINISHED else known["verdict"]
            yield CellModel(
                **known,
                axes={name: self.columns["axes." + name][row] for name in names},
                requested=self.columns["requested"][row],
                emulated=self.columns["emulated"][row],
                rebuilt=self.columns["rebuilt"][row],
                tensors=self.columns["tensors"][row],
                expectation=self.columns["expectation"][row],
                expired=False,
                history=[],
                rerun="",
            )

    def as_json(self) -> str:
        """One line a column and an environment, so that two data sets can be compared."""
        data = self.model_dump(mode="json")
        columns = ",\n".join(f"{_line(name)}: {_line(column)}" for name, column in sorted(data["columns"].items()))
        environments = ",\n".join(_line(entry) for entry in data["environments"])
        head = {name: data[name] for name in ("schema_version", "probe_version", "run")}
        return f'{_line(head)[:-1]},\n"environments": [\n{environments}\n],\n"columns": {{\n{columns}\n}}}}\n'


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def compact(results: ResultsModel, environments: Iterable[KeptEnvironment], probe_version: str) -> DatasetModel:
    """What is kept of `results`. A cell without a verdict is kept as `unfinished`: left out, it would seem to be gone."""
    cells = results.cells
    columns = {name: Column.of(getattr(cell, name) for cell in cells) for name in _WHOLE}
    columns["verdict"] = Column.of(cell.verdict or UNFINISHED for cell in cells)
    axes = dict.fromkeys(name for cell in cells for name in cell.axes)
    columns |= {f"axes.{name}": Column.of(cell.axes[name] for cell in cells) for name in axes}
    for name in ("requested", "emulated", "rebuilt", "expectation"):
        columns[name] = Column.of(getattr(cell, name) for cell in cells)
    columns["tensors"] = Column.of(cell.tensors[:_TENSORS] for cell in cells)
    columns["seconds"] = Column.of(round(cell.history[0].seconds, 2) if cell.history else None for cell in cells)
    columns["peak_rss_mb"] = Column.of(cell.history[0].peak_rss_kb // 1024 if cell.history else None for cell in cells)
    return DatasetModel(
        schema_version=SCHEMA_VERSION,
        run=results.run,
        probe_version=probe_version,
        environments=list(environments),
        columns=columns,
    )


def read_dataset(folder: Path) -> DatasetModel:
    """The data set in a folder, of this schema version or an older one.

    Raises:
        ValueError: there is none, or it is damaged; the text says which file.
    """
    path = folder / FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    return parse_dataset(content, str(path))


def parse_dataset(content: bytes, place: str) -> DatasetModel:
    """A data set from its text; `place` says where it is from.

    Raises:
        ValueError: it is none, or it is damaged.
    """
    try:
        found = DatasetModel.model_validate_json(content)
    except ValidationError as error:
        raise ValueError(f"{place} is no data set: {error.errors()[0]['msg']}") from error
    if found.schema_version > SCHEMA_VERSION:
        raise ValueError(f"{place} was written by a newer metamatrix (schema {found.schema_version})")
    _check(found, place)
    return found


def _check(found: DatasetModel, path: str) -> None:
    """Columns of one length whose numbers lead to values: a cut file must not answer for other cells."""
    if "subject" in found.columns and not len(found):
        raise ValueError(f"{path} has no cell")
    needed = {*_WHOLE, "requested", "emulated", "rebuilt", "expectation", "tensors", "axes.pipeline", "axes.checkpoint"}
    needed |= {"axes.load", "axes.offload", "axes.lifecycle", "axes.runner"}
    if missing := needed - found.columns.keys():
        raise ValueError(f"{path} lacks the columns {', '.join(sorted(missing))}")
    for name, column in found.columns.items():
        if len(column.rows) != len(found) or not 0 <= min(column.rows) <= max(column.rows) < len(column.values):
            raise ValueError(f"{path}: the column {name} does not fit the others")
        fits = _FITS.get(name, _is_text if name.startswith("axes.") else _is_anything)
        if not all(fits(value) and _is_finite(value) for value in column.values):
            raise ValueError(f"{path}: the column {name} holds something that it cannot hold")
    if taken := {f"axes.{name}" for name in _TAKEN} & found.columns.keys():
        raise ValueError(f"{path}: an axis cannot be called {', '.join(sorted(taken))}")
    subjects = found.columns["subject"]
    if len({subjects.values[row] for row in subjects.rows}) != len(found):
        raise ValueError(f"{path}: two cells have the same subject")
    known = {entry.id for entry in found.environments}
    if len(known) != len(found.environments) or not known.issuperset(found.columns["environment"].values):
        raise ValueError(f"{path}: the column environment does not fit the environments")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_anything(_: Any) -> bool:
    return True


def _is_finite(value: Any) -> bool:
    """Whether JSON can say it: no number in it is infinite or none."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else True


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("shape", []), list)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("id", "subject", "environment", "verdict", "stage", "cause", "signature"), _is_text),
    "group": lambda value: value in get_args(Group),
    "expected": _is_flag,
    "emulated": _is_flag,
    "attempts": lambda value: isinstance(value, int) and _is_number(value) and value < 1 << 31,
    "seconds": _is_number,
    "peak_rss_mb": _is_number,
    "rebuilt": lambda value: value is None or isinstance(value, str),
    "requested": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "expectation": lambda value: value is None or isinstance(value, dict),
    "tensors": lambda value: isinstance(value, list) and all(map(_is_tensor, value)),
}
"""What each column may hold: pages, feeds and badges are made of it without a further look."""


KNOWN = frozenset({*_FITS, *_WHOLE})
"""The columns that this release knows, but those of axes. Others are kept, and nothing is made of them."""
_TAKEN = (*PACKAGES, "python", "environment", "verdict", "class", "cause")
"""Names that mean something else where axes are named."""


def dataset_schema() -> dict[str, Any]:
    """The JSON Schema of a data set."""
    schema = DatasetModel.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "metamatrix data set"
    return schema
