"""What do the published files look like? A model for each kind, of which their JSON Schemas are made.

Fields are added, never renamed, removed or given another meaning. Readers leave out what they do not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from reports.dataset import Column, KeptEnvironment
from reports.document import AttemptModel, Group

__all__ = ["SCHEMAS", "SCHEMA_FOLDER", "api_schemas"]

SCHEMA_FOLDER = Path(__file__).parent / "schemas"

_Mask = str


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Versioned(_Model):
    schema_version: int = Field(
        ge=1, description="Grows only when a reader of an older version would misread it; new fields do not."
    )


class _Run(_Model):
    id: str
    started: str = Field(description="ISO 8601, UTC.")
    tool: str
    select: str | None
    cells: int
    no_answer_share: float = Field(ge=0, le=1)
    verdicts: dict[str, int]
    data: str = Field(description="Where its data set is, from api/v1/.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Of the data set.")


class _Pair(_Model):
    before: str
    after: str


class _Caveat(_Model):
    axes: dict[str, str]
    text: str


class Index(_Versioned):
    """api/v1/index.json: what there is."""

    newest: str = Field(description="The id of the newest run.")
    runs: list[_Run] = Field(description="Oldest first.")
    runners: list[str]
    environments: int
    meanings: dict[str, str] = Field(description="Verdict -> what it means.")
    caveats: list[_Caveat] = Field(description="What verdicts with these values of axes do not say.")
    names: list[tuple[str, str]] = Field(description="Ids that cannot be file names, with the name of their file.")
    compare: list[_Pair]
    files: dict[str, str]


class _AnswerRun(_Model):
    id: str
    started: str
    tool: str


class _AnswerEnvironment(_Model):
    id: str
    exists: bool
    chosen: list[str]
    proof: str


class _Packages(_Model):
    values: list[str] = Field(description="Versions, oldest first.")
    rows: list[int] = Field(description="One an environment: a place in `values`, or -1.")


class _Kind(_Model):
    verdict: str
    group: Group = Field(alias="class")
    stage: str
    signature: str
    expected: bool
    cause: str


class _Combination(_Model):
    values: list[str] = Field(description="One for each of `axes`.")
    rebuilt: str | None
    emulated: bool
    kinds: dict[str, _Mask] = Field(description="Place in `kinds` -> hexadecimal mask: bit n is environment n.")
    runs: dict[str, _Mask] = Field(description="Place in `runs` -> mask of what it measured.")
    attempts: dict[str, _Mask] = Field(description="Number of attempts -> mask.")


class AnswersFile(_Versioned):
    """api/v1/answers.json: every cell, as masks over environments; what `lookup` and the pages ask."""

    runs: list[_AnswerRun]
    axes: list[str]
    telling: list[str] = Field(description="The packages that environments are told apart by.")
    packages: dict[str, _Packages]
    environments: list[_AnswerEnvironment] = Field(description="In the order of their releases.")
    kinds: list[_Kind]
    combinations: list[_Combination]


class Results(_Versioned):
    """api/v1/results.json: the result that counts of everything that was ever asked, as columns."""

    columns: dict[str, Column] = Field(description="`values[rows[n]]` is the n-th cell's value.")


class EnvironmentFile(KeptEnvironment, _Versioned):
    """api/v1/environments/ID.json; the last four are of the newest run only."""

    each_control: list[dict[str, Any]] | None = None
    direct_url: dict[str, Any] | None = None
    torch_build: str | None = None
    lock: str | None = None


class _Life(_Model):
    run: str
    environment: str
    verdict: str
    group: Group = Field(alias="class")
    signature: str


class _Execution(AttemptModel):
    text: str = Field(description="The log, cut after some kilobytes.")


class CellFile(_Versioned):
    """api/v1/cells/SUBJECT.json."""

    subject: str
    id: str
    environment: str
    run: str
    axes: dict[str, str]
    versions: dict[str, str] = Field(description="What was installed of the packages that environments differ in.")
    requested: dict[str, str]
    verdict: str
    group: Group = Field(alias="class")
    stage: str
    cause: str
    signature: str
    expected: bool
    expectation: dict[str, Any] | None
    emulated: bool
    rebuilt: str | None
    attempts: int
    tensors: list[dict[str, Any]]
    seconds: float | None = None
    peak_rss_mb: int | None = None
    history: list[_Life] = Field(description="Oldest first.")
    executions: list[_Execution] | None = Field(None, description="Of the newest run only.")
    rerun: str | None = None


class _ErrorLine(_Model):
    id: str
    verdict: str
    stage: str
    cause: str
    cells: int
    sound: int = Field(description="Of the cells, those with a sound checkpoint and a load of the libraries' own.")
    regex: str | None = Field(description="Finds its message in a log; null where it leaves none.")
    exact: bool = Field(description="Whether the rules cover no good cell.")
    rules: list[str] = Field(description="In the words of a lookup; an axis that is not named may have any value.")
    alternatives: list[str] = Field(description="As small as a single rule, and as right by what was measured.")
    fix: list[str] = Field(description="With one axis changed so, all such cells that were measured pass.")


class Errors(_Versioned):
    """api/v1/errors.json: every failure, most frequent first."""

    errors: list[_ErrorLine]


class _Rule(_Model):
    when: str
    cells: int
    good: int = Field(description="Good cells that it covers, too; 0 where it is exact.")


class _Fix(_Model):
    axis: str
    value: str
    passed: int = Field(alias="pass")
    measured: int


class _Note(_Model):
    reason: str
    link: str
    expires: str


class _Example(_Model):
    environment: str
    axes: dict[str, str]


class ErrorFile(_Versioned):
    """api/v1/errors/ID.json."""

    id: str
    verdict: str
    stage: str
    cause: str
    cells: int
    sound: int
    environments: int
    expected: int
    regex: str | None
    exact: bool
    rules: list[_Rule]
    alternatives: list[_Rule]
    versions: dict[str, tuple[str, str]] = Field(description="Package -> first and last version measured with it.")
    fix: list[_Fix] = Field(description="With one axis changed and all else the same, so many passed.")
    links: list[str]
    notes: list[_Note]
    first_seen: str
    last_seen: str
    in_newest_run: bool
    examples: list[_Example]


class _Counts(_Model):
    id: str
    started: str
    axes: dict[str, dict[str, dict[str, int]]] = Field(description="Axis -> value -> class -> cells.")


class History(_Versioned):
    """api/v1/history.json."""

    runs: list[_Counts]


class _Named(_Model):
    id: str
    started: str


class _ChangedEnvironment(_Model):
    id: str
    requested: dict[str, str]
    installed: dict[str, str]


class _ChangedKind(_Model):
    verdict: str
    group: Group = Field(alias="class")
    signature: str
    cause: str


class Compare(_Versioned):
    """api/v1/compare/BEFORE..AFTER.json; what is good as before is counted, not listed."""

    before: _Named
    after: _Named
    counts: dict[str, int]
    another_failure: int
    changes: list[str]
    axes: list[str]
    combinations: list[list[str]]
    environments: list[_ChangedEnvironment]
    kinds: list[_ChangedKind]
    rows: dict[str, list[Any]] = Field(description="Columns of one length; numbers are places in the lists above.")


class _Badge(_Model):
    axis: str
    value: str
    message: str
    path: str


class Badges(_Versioned):
    """api/v1/badges.json; the badges lie at PATH.svg and PATH.json (an endpoint for shields)."""

    badges: list[_Badge]


class Profiles(_Versioned):
    """api/v1/profiles.json: releases of applications whose libraries were measured."""

    profiles: list[dict[str, Any]]


SCHEMAS: dict[str, type[BaseModel]] = {
    "index": Index,
    "answers": AnswersFile,
    "results": Results,
    "environment": EnvironmentFile,
    "cell": CellFile,
    "errors": Errors,
    "error": ErrorFile,
    "history": History,
    "compare": Compare,
    "badges": Badges,
    "profiles": Profiles,
}
"""The models by the name of their schema."""


def api_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of each kind of file, by name."""
    found = {}
    for name, model in SCHEMAS.items():
        schema = model.model_json_schema(by_alias=True)
        found[name] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **schema,
            "title": f"metamatrix {name}",
        }
    return found
