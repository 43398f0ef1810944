"""What must a line of the exchange files look like? As much as verdicts and pages rely on; the rest is kept as it is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AttemptModel", "EnvironmentsModel"]

_Stage = Literal["import", "load", "offload", "step", "lifecycle"]
_Kind = Literal[
    "harness", "orphan", "unexpected-meta", "corrupt", "out-of-memory", "exception", "bad-output", "unsupported"
]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
_Id = Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}\z")]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Count = Annotated[int, Field(ge=0, le=2**53)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class _Tensor(_Model):
    module: str
    name: str
    kind: str
    state: str
    shape: list[int]
    detail: str


class _Raised(_Model):
    type: str
    message: str
    cause_type: str
    cause_message: str
    traceback: str


class _Finding(_Model):
    kind: _Kind
    text: str
    tensors: list[_Tensor] = []
    exception: _Raised | None = None
    during: _Stage = "lifecycle"
    doing: str = ""
    whole: list[str] = []


class _Control(_Model):
    id: str
    expected: _Kind
    got: list[_Kind]
    where: str
    caught: bool


class _Golden(_Model):
    within: bool
    array: str
    difference: float | str


class _Facts(_Model):
    arrays: _Digest | None = None
    controls: list[_Control] = []
    golden: _Golden | None = None


class _Report(_Model):
    stage: _Stage
    findings: list[_Finding]
    facts: _Facts
    seconds: _Seconds


class _Conditions(_Model):
    limits: dict[str, _Count]
    isolation: str


class AttemptModel(_Model):
    """A line of `attempts.ndjson`."""

    id: _Id
    cell: _Id
    environment: _Id
    mode: Literal["fork", "cold"]
    alone: bool
    how: str
    signal: Annotated[int, Field(ge=0, le=255)]
    text: str
    stages: list[_Report]
    log: _Digest
    started: Annotated[str, Field(max_length=64)]
    seconds: _Seconds
    peak_rss_kb: _Count
    probe_version: str
    conditions: _Conditions


class _Record(_Model):
    """Of what was built."""

    installed: dict[str, str] = {}
    python: str | None = None
    platform: str | None = None
    torch_build: str = ""
    direct_url: dict[str, Any] = {}

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="python", exclude_unset=True)


class _State(_Model):
    record: _Record | None = None
    fault: str = ""
    missing: dict[str, str] = {}


class EnvironmentsModel(_Model):
    """`environments.json`."""

    environments: dict[str, _State]
