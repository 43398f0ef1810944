"""Which words do probe and engine share? Stages, kinds of findings, states of tensors."""

from __future__ import annotations

__all__ = ["PROBE_VERSION", "STAGES", "finding"]

from typing import Any, Dict, List, Optional

PROBE_VERSION = "3"
"""Raised whenever a change of the probe could change a verdict: results of two versions never mix."""

STAGES = ("import", "load", "offload", "step", "lifecycle")
"""What a cell goes through inside the environment, in order."""

HARNESS = "harness"
ORPHAN = "orphan"
UNEXPECTED_META = "unexpected-meta"
CORRUPT = "corrupt"
EXCEPTION = "exception"
BAD_OUTPUT = "bad-output"
OUT_OF_MEMORY = "out-of-memory"
UNSUPPORTED = "unsupported"


def finding(
    kind: str,
    text: str,
    tensors: Optional[List[Dict[str, Any]]] = None,
    exception: Optional[Dict[str, Any]] = None,
) -> Dict[str, Any]:
    """One thing that was found at a stage, as plain data."""
    found: Dict[str, Any] = {"kind": kind, "text": text}
    if tensors:
        found["tensors"] = tensors
    if exception:
        found["exception"] = exception
    return found
