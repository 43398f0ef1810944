"""What does `results.json` hold? The published contract; its JSON Schema is made from this.

Changes are additive only. Readers ignore keys that they do not know.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

__all__ = [
    "AttemptModel",
    "CellModel",
    "EnvironmentModel",
    "Group",
    "ResultsModel",
    "RunModel",
    "json_schema",
    "read_results",
]

SCHEMA_VERSION = 1

Group = Literal["good", "bad", "not applicable", "no answer", "unfinished"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RunModel(_Model):
    """The run that the results come from."""

    id: str
    started: str = Field(description="ISO 8601, UTC.")
    tool: str = Field(description="metamatrix and its version.")
    no_answer_share: float = Field(ge=0, le=1, description="Cells without an answer, of all whose runner is here.")
    not_run: int = Field(0, ge=0, description="Cells that ask for a runner which is not here; counted apart.")
    matrix: str
    select: str | None
    isolation: str
    limits: dict[str, int]
    excluded: list[dict[str, Any]] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


class EnvironmentModel(_Model):
    """One environment: what was asked, what it became, what was found on it as a whole."""

    id: str
    requested: dict[str, str]
    installed: dict[str, str]
    lock: str | None = Field(description="sha256: and the digest of its lock, a file below locks/.")
    python: str | None
    platform: str | None
    torch_build: str
    direct_url: dict[str, Any]
    controls: list[dict[str, Any]] = Field(
        description="Negative controls: pipeline, id, expected and got (findings), expected_verdict, verdict, where, caught."
    )
    drift: str = Field(description="How the reference misses the golden arrays; empty where it does not.")
    proof: str = Field(description="The derivation that no such environment exists.")
    fault: str = Field(description="Why there is no answer for it.")


class AttemptModel(_Model):
    """One execution of a cell."""

    id: str
    mode: str
    alone: bool
    how: str
    verdict: str
    stage: str
    started: str
    seconds: float
    peak_rss_kb: int
    log: str
    conditions: dict[str, Any]
    stages: list[dict[str, Any]]


class CellModel(_Model):
    """One cell with its verdict. `verdict` is null while it has none."""

    id: str
    subject: str
    environment: str
    axes: dict[str, str]
    requested: dict[str, str]
    verdict: str | None
    group: Group = Field(validation_alias=AliasChoices("class", "group"), serialization_alias="class")
    stage: str
    cause: str
    signature: str
    emulated: bool
    rebuilt: str | None
    expected: bool
    expectation: dict[str, Any] | None
    expired: bool
    attempts: int
    tensors: list[dict[str, Any]]
    history: list[AttemptModel]
    rerun: str


class ResultsModel(_Model):
    """All results of a run."""

    schema_version: int
    run: RunModel
    environments: list[EnvironmentModel]
    cells: list[CellModel]

    def counts(self) -> Counter[str]:
        """How many cells have each verdict; a cell without one counts as `unfinished`."""
        return Counter(cell.verdict or "unfinished" for cell in self.cells)

    def environment(self, identifier: str) -> EnvironmentModel:
        return next(environment for environment in self.environments if environment.id == identifier)

    def as_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True) + "\n"


def read_results(path: Path) -> ResultsModel:
    """Read a `results.json` of this schema version or an older one."""
    return ResultsModel.model_validate_json(path.read_bytes())


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `results.json`."""
    schema = ResultsModel.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "metamatrix results"
    return schema
