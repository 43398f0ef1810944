"""Is it the same failure? A stable id of an error, without what differs from machine to machine."""

from __future__ import annotations

import hashlib
import re

__all__ = ["normalised", "signature"]

_RULES = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    (re.compile(r"(?<![\w.])(?:file:/*)?/(?:[\w.+@~-]+/)*[\w.+@~-]*"), "PATH"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "ADDRESS"),
    (re.compile(r"\b[A-Za-z_]\w*(?:\.\w+){2,}"), "NAME"),
    (re.compile(r"\b\w+\.(?:weight|bias)\b"), "NAME"),
    (re.compile(r"\b\d+(?:\.\d+)*\b"), "N"),
    (re.compile(r"(?:NAME[\s,'\"]*){2,}"), "NAME "),
    (re.compile(r"(?:N[\s,x]*){2,}"), "N "),
    (re.compile(r"\s+"), " "),
)
_LONG = 1000


def normalised(text: str) -> str:
    """`text` without colours, paths, addresses, tensor names and numbers."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()[:_LONG]


def signature(verdict: str, stage: str, what: str) -> str:
    """A short id of a failure: the same for the same verdict, stage and normalised text."""
    return hashlib.sha256(f"{verdict}\0{stage}\0{normalised(what)}".encode()).hexdigest()[:12]
