"""What is a file called that is named after something from outside?"""

from __future__ import annotations

import hashlib
import re

__all__ = ["API", "DATASET", "file_name", "version_name"]

API = "api/v1"
"""Where a site has what is for programs."""
DATASET = "dataset.json"
"""A data set, in a folder of its own."""

_HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9]+(?:\.[A-Za-z0-9]+){1,7}")
_LONGEST = 40


def file_name(text: str) -> str:
    """The text itself where it can be a file's name everywhere, a digest of it otherwise: never a path, never long."""
    if _HARMLESS.fullmatch(text):
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def version_name(text: str) -> str:
    """The same for what may be a version: it keeps its dots, since nobody looks for the digest of 0.42.1."""
    return text if len(text) <= _LONGEST and _VERSION.fullmatch(text) else file_name(text)
