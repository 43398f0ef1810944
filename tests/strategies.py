"""Hypothesis strategies and small builders that several tests share."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from runner.matrix.load import Limits, Matrix, parse_matrix
from runner.plan import Plan, PlannedCell, PlannedEnvironment, checkpoint_digest
from runner.resolve.lock import Platform
from runner.results.attempt import Attempt

messages = st.dictionaries(
    st.text(max_size=8), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), max_size=5
)

SMALL = b"""
axes:
  torch: "2.13.0"
  diffusers: ["0.38.0", latest]
  transformers: [">=5.6,<5.9", latest]
  accelerate: latest
  offload: [none, sequential]
  load: [pretrained, single_file]
exclude:
  - when: diffusers == 0.38.0 and load == single_file
    reason: known
selections:
  few: [offload == none]
"""

RELEASES = {
    "torch": ["2.13.0", "2.12.1"],
    "diffusers": ["0.42.1", "0.42.0", "0.38.0"],
    "transformers": ["5.24.0", "5.8.0", "5.7.0", "5.6.0"],
    "accelerate": ["1.15.0"],
}


def matrix(content: bytes = SMALL) -> Matrix:
    """A small checked matrix."""
    return parse_matrix(content, "matrix.yaml")


def releases(package: str, specifier: str, pre: bool, count: int) -> list[str]:
    """A small package index."""
    from packaging.specifiers import SpecifierSet

    return [version for version in RELEASES[package] if version in SpecifierSet(specifier)][:count]


def cell(**probe: str) -> PlannedCell:
    """A planned cell of one environment, sound and plain unless said otherwise."""
    axes = {
        "pipeline": "sd15",
        "checkpoint": "canonical",
        "load": "pretrained",
        "offload": "none",
        "lifecycle": "single",
        "dtype": "float32",
        "runner": "cpu",
        **probe,
    }
    plain = PlannedCell(
        "", "subject", "environment", {"torch": "2.13.0"}, axes, checkpoint_digest(axes["pipeline"], axes["checkpoint"])
    )
    return plain.at()


_PLACES = [
    (load, offload) for load in ("pretrained", "components", "single_file") for offload in ("none", "model", "disk")
]
"""Enough cells for an environment."""


_LOCK = """lock-version = "1.0"
created-by = "nobody"
[[packages]]
name = "torch"
version = "2.13.0"
wheels = [{path = "torch-2.13.0-py3-none-any.whl", hashes = {sha256 = "00"}}]
"""


def plan_of(environments: dict[str, int]) -> Plan:
    """A plan with so many cells in each environment; one with none has a proof that it does not exist."""
    planned, cells, locks = [], [], {}
    for key, count in environments.items():
        asked = {"torch": "2.13.0", "diffusers": key, "transformers": "5.6.0", "accelerate": "1.15.0"}
        entry = PlannedEnvironment(
            key, asked, {"python": "3.11", **asked}, "cpu", proof="" if count else "it cannot be"
        )
        if count:
            text = f"# {key}\n{_LOCK}"
            lock = hashlib.sha256(text.encode()).hexdigest()
            locks[lock] = text
            entry = replace(entry, lock=lock, versions=asked)
        planned.append(entry)
        for load, offload in _PLACES[: max(1, count)]:
            plain = cell(load=load, offload=offload)
            subject = f"{key}-{load}-{offload}"
            cells.append(replace(replace(plain, environment=key).at(), subject=subject, asked=asked))
    return Plan(
        matrix="matrix.yaml",
        matrix_digest="digest",
        select=None,
        created="2026-12-01T00:00:00+00:00",
        limits=Limits(seconds=120, memory_mb=4096, disk_mb=1024),
        environments=tuple(planned),
        cells=tuple(cells),
        excluded=(),
        locks=locks,
        platform=Platform.here(),
    )


ALL_STAGES = ("import", "load", "offload", "step", "lifecycle")


def attempt(
    planned: PlannedCell,
    found: dict[str, list[dict[str, Any]]] | None = None,
    mode: str = "fork",
    how: str = "exited",
    stages: tuple[str, ...] = ALL_STAGES,
    facts: dict[str, Any] | None = None,
    identifier: str = "a",
) -> Attempt:
    """An attempt that reported `stages`, with the findings given for some of them."""
    reports = [
        {"stage": stage, "findings": (found or {}).get(stage, []), "facts": facts or {}, "seconds": 0.1}
        for stage in stages
    ]
    return Attempt(
        id=identifier,
        cell=planned.id,
        environment="environment",
        mode=mode,
        alone=False,
        how=how,
        signal=11 if how == "signal" else 0,
        text="",
        stages=reports,
        log="",
        started="2026-12-01T00:00:00+00:00",
        seconds=0.5,
        peak_rss_kb=1,
        probe_version="1",
        conditions={"limits": {"seconds": 120}},
    )


def exception(kind: str = "ValueError", message: str = "no") -> dict[str, Any]:
    """A finding of an exception."""
    body = {"type": kind, "message": message, "cause_type": kind, "cause_message": message, "traceback": ""}
    return {"kind": "exception", "text": f"{kind}: {message}", "exception": body}
