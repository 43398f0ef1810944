"""The data set: nothing that it keeps is changed, and a damaged file never answers for other cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.dataset import FILE, Column, DatasetModel, KeptEnvironment, compact, dataset_schema, read_dataset
from reports.document import ResultsModel
from tests.unit.test_pages import HOSTILE, results

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(json_values))
def test_a_column_gives_back_what_it_got(items: list[Any]) -> None:
    """Row by row the same values, each different one kept once."""
    column = Column.of(items)
    assert [column[row] for row in range(len(items))] == items
    keys = [json.dumps(value, sort_keys=True) for value in column.values]
    assert len(keys) == len(set(keys))


def _environment(text: str) -> KeptEnvironment:
    return KeptEnvironment(
        id="e",
        requested={"torch": text},
        exact={"python": "3.11", "torch": text},
        backend="cpu",
        installed={"x": text},
        python=text,
        platform=text,
        packages=[(text, text, text, text)],
        controls=1,
        missed=[{"id": text}],
        drift=text,
        proof=text,
        fault=text,
    )


def _written(folder: Path, found: ResultsModel, text: str) -> DatasetModel:
    made = compact(found, [_environment(text)], "3")
    (folder / FILE).write_bytes(made.as_json().encode("utf-8", "backslashreplace"))
    assert read_dataset(folder) == made
    return made


@pytest.mark.parametrize("text", ["plain", HOSTILE])
def test_cells_come_back_as_they_were(tmp_path: Path, text: str) -> None:
    """All that a data set keeps of a cell is as in results.json, hostile text too; attempts are left out."""
    found = results(text)
    made = _written(tmp_path, found, text)
    jsonschema.validate(json.loads(made.as_json()), dataset_schema())
    for before, after in zip(found.cells, made.cells(), strict=True):
        left_out = {"history", "rerun"}
        assert after.model_dump(exclude=left_out) == before.model_dump(exclude=left_out)


def test_a_cell_without_a_verdict_is_kept_as_unfinished(tmp_path: Path) -> None:
    """Left out, it would seem to be gone; it comes back without a verdict, and is none to look up."""
    found = results("x")
    cell = found.cells[0].model_copy(update={"verdict": None, "group": "unfinished"})
    made = _written(tmp_path, found.model_copy(update={"cells": [cell]}), "x")
    assert [(cell.verdict, cell.group) for cell in made.cells()] == [(None, "unfinished")]
    assert not made.answered
    assert compact(found, [], "3").answered


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["columns"].pop("verdict"), "lacks the columns verdict"),
        (lambda data: data["columns"]["verdict"]["rows"].append(0), "the column verdict does not fit"),
        (lambda data: data["columns"]["cause"].update(rows=[7]), "the column cause does not fit"),
        (lambda data: data["columns"]["cause"].update(rows=[-1]), "the column cause does not fit"),
        (lambda data: data.update(schema_version=99), "newer metamatrix"),
        (lambda data: data.pop("run"), "is no data set"),
    ],
)
def test_a_damaged_data_set_is_refused_in_words(tmp_path: Path, change: Any, said: str) -> None:
    """Cut columns, numbers that lead nowhere, another schema: the error says what, and names the file."""
    data = json.loads(_written(tmp_path, results("x"), "x").as_json())
    change(data)
    (tmp_path / FILE).write_text(json.dumps(data))
    with pytest.raises(ValueError, match=said) as caught:
        read_dataset(tmp_path)
    assert FILE in str(caught.value)


def test_no_data_set_is_said_in_words(tmp_path: Path) -> None:
    """A folder without one, and a file that is no JSON."""
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset(tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ValueError, match="no data set"):
        read_dataset(tmp_path)
