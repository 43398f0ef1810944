"""What is a thing called? Ids that depend on content only, equal on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

__all__ = ["cell_id", "digest", "environment_id", "subject_id"]

_LENGTH = 16


def digest(value: object) -> str:
    """sha256 (hex) of the canonical JSON of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def subject_id(asked: Mapping[str, str], probe: Mapping[str, str], backend: str, as_of: str | None) -> str:
    """Id of what was *asked*: environment axes, probe axes, torch backend, as-of date. It joins runs."""
    return digest(["subject", dict(asked), dict(probe), backend, as_of])[:_LENGTH]


def environment_id(
    packages: Iterable[tuple[str, str, str]], system: str, architecture: str, libc: str, python: str
) -> str:
    """Id of what a request *became*: (name, version, wheel digest) of its lock, and the platform.

    No URL, path or isolation enters it. `python` is the minor version, such as 3.11.
    """
    return digest(["environment", sorted(packages), system, architecture, libc, python])[:_LENGTH]


def cell_id(environment: str, probe: Mapping[str, str], checkpoint: str, probe_version: str) -> str:
    """Id of an environment with probe axes, the checkpoint's digest and the probe's version."""
    return digest(["cell", environment, dict(probe), checkpoint, probe_version])[:_LENGTH]
