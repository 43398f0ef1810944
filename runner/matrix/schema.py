"""What may stand in `matrix.yaml`? The file's shape; its JSON Schema for editors is made from this."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from runner.matrix.positions import Unquoted
from runner.verdicts import Verdict

__all__ = ["CoverageModel", "ExcludeModel", "ExpectModel", "LimitsModel", "MatrixModel"]

_DEFAULT_INDEX = "https://download.pytorch.org/whl/{backend}"


def _quoted(value: object) -> object:
    """Refuse what YAML has already changed: an unquoted 2.10 is the number 2.1."""
    if isinstance(value, Unquoted):
        raise ValueError(f'unquoted, YAML takes {value} for a number and loses digits; write "{value}"')
    if isinstance(value, int):
        raise ValueError(f'a version is text; write "{value}"')
    return value


def _listed(value: object) -> object:
    """One value may stand without a list around it."""
    return [value] if isinstance(value, (str, int)) else value


Text = Annotated[str, BeforeValidator(_quoted), StringConstraints(min_length=1, max_length=400)]
Values = Annotated[list[Text], BeforeValidator(_listed), Field(min_length=1, max_length=400)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ExcludeModel(_Model):
    """Cells that are not planned, and why."""

    when: Text = Field(description="An expression over axes, such as `diffusers<0.36 and transformers>=5`.")
    reason: Text = Field(description="Why these cells are left out; it is printed with the plan.")


class ExpectModel(_Model):
    """A known failure. Until it expires it counts as expected."""

    when: Text = Field(description="An expression over axes.")
    verdict: Verdict = Field(description="The verdict that is expected there.")
    link: Text | None = Field(None, description="Where the failure is described.")
    reason: Text | None = Field(None, description="What is known about it.")
    expires: datetime.date = Field(description="After this day a warning asks to look at it again (YYYY-MM-DD).")


class CoverageModel(_Model):
    """Which cells of a selection are enough."""

    strength: Literal["pairwise", "three-wise"] = Field(
        description="Every pair (or triple) of values of probe axes that may occur together occurs in each environment."
    )
    anchors: list[Text] = Field(
        default_factory=list,
        max_length=100,
        description="Expressions over axes; what fits one of them always runs, unless it can say nothing in any version.",
    )


class LimitsModel(_Model):
    """What one cell may use."""

    seconds: int = Field(120, ge=1, le=86400, description="Time of one cell, in seconds.")
    memory_mb: int = Field(4096, ge=64, description="Memory of one cell beyond the imported libraries, in MiB.")
    disk_mb: int = Field(1024, ge=16, description="Size of one file that a cell writes, in MiB.")
    processes: int = Field(64, ge=8, description="Processes and threads of one cell; enforced in containers.")


class MatrixModel(_Model):
    """A compatibility matrix: versions, probes, and what is known about them."""

    axes: dict[str, Values] = Field(
        description="Axis name to its values: exact versions, ranges, `latest`, `latest-N`, `pre`; names for probe axes."
    )
    include: list[dict[str, Values]] = Field(
        default_factory=list,
        description="Rows added to the product; an axis that a row leaves out takes its values from `axes`.",
    )
    exclude: list[ExcludeModel] = Field(default_factory=list)
    selections: dict[str, Values] = Field(
        default_factory=dict, description="Named subsets: a cell is in one if any of its expressions fits."
    )
    coverage: dict[str, CoverageModel] = Field(
        default_factory=dict, description="Selection name to how much of it is run; all of it where none is given."
    )
    expect: list[ExpectModel] = Field(default_factory=list)
    limits: LimitsModel = Field(default_factory=LimitsModel)
    torch_index: Text = Field(_DEFAULT_INDEX, description="Index of torch builds; `{backend}` becomes the backend.")
    torch_backend: dict[str, Text] = Field(
        default_factory=lambda: {"cpu": "cpu", "cuda": "cu128"}, description="Runner to torch backend."
    )
    as_of: datetime.date | None = Field(None, description="Ignore releases after this day (YYYY-MM-DD).")
