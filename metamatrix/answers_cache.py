"""Must a folder's results be read again to be asked? To read a million takes seconds, to read their answers milliseconds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from metamatrix import __version__
from reports.answers import Answers
from reports.names import DATASET
from runner.whole_files import write_whole

__all__ = ["kept_answers", "state_of"]

_FILES = ("results.sqlite", "results.sqlite-wal", "plan.json", DATASET)


def kept_answers(folder: Path, make: Callable[[], Answers]) -> Answers:
    """The answers of a folder, from the user's cache where nothing has changed in it since; else made, and kept."""
    state = [__version__, *state_of(folder)]
    name = hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    path = _cache() / f"{name}.json"
    try:
        head, _, text = path.read_bytes().partition(b"\n")
        if json.loads(head) == state:
            return Answers.from_json(text)
    except (OSError, ValueError):
        pass  # there is none, or it was cut: it is made again
    found = make()
    body = json.dumps(found.as_json(), separators=(",", ":"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(state).encode() + b"\n" + body.encode())
    except OSError:
        pass  # a cache that cannot be written costs time and no answer
    return found


def state_of(folder: Path) -> list[list[object]]:
    """What changes when the results in a folder do."""
    found: list[list[object]] = []
    for name in _FILES:
        try:
            status = (folder / name).stat()
        except OSError:
            continue
        found.append([name, status.st_size, status.st_mtime_ns, status.st_ino])
    return found


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metamatrix" / "answers"
