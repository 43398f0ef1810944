"""Which arrays are known to be right? Stored per pipeline, computed once, reviewed when they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["golden_arrays", "golden_path"]


def golden_path(pipeline: str) -> Path:
    """Where the golden arrays of a pipeline are kept: float32, CPU; image and component outputs."""
    return Path(__file__).parent / "golden" / f"{pipeline}.json"


def golden_arrays(pipeline: str) -> dict[str, Any] | None:
    """The golden arrays in plain form (see `runner.probe.step.to_plain`), or None where none are stored."""
    path = golden_path(pipeline)
    if not path.exists():
        return None
    arrays: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["arrays"]
    return arrays
