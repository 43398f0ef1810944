"""How is a folder read that anybody may have written? Nothing in it is believed before it is checked.

What a kill leaves (a torn last line, no database, a log that is gone) is read as far as it goes. What no kill
leaves (a wrong line in the middle, two bodies of one attempt, a digest that does not fit) is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, fields
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from runner.errors import RunFolderError
from runner.identifiers import cell_id
from runner.matrix.axes import PROBE_VALUES
from runner.matrix.load import REQUIRED
from runner.plan import Plan, read_plan
from runner.probe.words import PROBE_VERSION
from runner.results.attempt import Attempt
from runner.results.conclude import EnvironmentState
from runner.results.exchange import AttemptModel, EnvironmentsModel
from runner.results.outcome import judge

__all__ = ["Say", "checked_plan", "kept", "read_attempts", "read_inside", "read_states", "refuse"]

_NAME = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
"""What may become a file's name."""
_FIELDS = {field.name for field in fields(Attempt)}
_ODD = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError)
"""What wrong data may raise where they are read."""

Say = Callable[[str], None]
"""Who is told what could not be read, and does no harm."""


def refuse(place: Path | str, what: str) -> NoReturn:
    """Say what is wrong where.

    Raises:
        RunFolderError: always.
    """
    raise RunFolderError(
        f"{place}: {what}", "No kill leaves that. Run this shard again, or leave its folder out to merge the others."
    )


def read_inside(folder: Path, name: str) -> bytes | None:
    """The content of a plain file in a folder; None where there is none.

    Raises:
        RunFolderError: it is a link, a pipe or a device, which may lead anywhere or never end.
    """
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        refuse(path, f"is no plain file ({error.strerror})")
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            refuse(path, "is no plain file")
        return file.read()


def kept(folder: Path, kind: str, digest: str) -> bytes | None:
    """A content-addressed file of a folder (logs, arrays); None where it is gone.

    Raises:
        RunFolderError: its content does not fit its name, or the place is a link.
    """
    place = folder / kind
    if place.is_symlink():
        refuse(place, "is a link")
    content = read_inside(place, digest)
    if content is not None and hashlib.sha256(content).hexdigest() != digest:
        refuse(place / digest, "its content has another sha256 than its name says")
    return content


# --- plans


@cache
def _plans() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


def checked_plan(path: Path) -> Plan:
    """A plan file, with everything in it of the right kind, and with ids that are those of its content.

    Raises:
        RunFolderError: it is none, or is of another release.
    """
    read_inside(path.parent, path.name)
    try:
        plan = _plans().validate_python(asdict(read_plan(path)))
        for cell in plan.cells:
            if cell.expectation is not None:
                date.fromisoformat(cell.expectation.expires)
            for axis, values in PROBE_VALUES.items():
                if cell.probe[axis] not in values:
                    refuse(path, f"the cell {cell.subject[:80]!r} asks for an {axis} that this release does not have")
    except _ODD as error:
        refuse(path, f"is no plan: {_first_line(error)}")
    keys = [environment.key for environment in plan.environments]
    for name in [*keys, *(cell.subject for cell in plan.cells)]:
        if not _NAME.fullmatch(name):
            refuse(path, f"{name!r} is no id")
    if len(set(keys)) != len(keys):
        refuse(path, "has an environment twice")
    for digest, text in plan.locks.items():
        if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != digest:
            refuse(path, f"the lock {digest[:80]} has another sha256")
    for entry in plan.environments:
        if entry.lock is not None and entry.lock not in plan.locks:
            refuse(path, f"environment {entry.key} has no lock")
        if not entry.asked.keys() >= set(REQUIRED) or "python" not in entry.exact:
            refuse(path, f"environment {entry.key} does not say what it was asked for")
    for cell in plan.cells:
        if cell.environment not in keys:
            refuse(path, f"the cell {cell.subject} has no environment")
        if cell.id != cell_id(cell.environment, cell.probe, cell.checkpoint, PROBE_VERSION):
            refuse(path, f"the cell {cell.subject} is not of probe {PROBE_VERSION}, which this release has")
    return plan


# --- attempts


def read_attempts(folder: Path, cells: Mapping[str, str], strict: bool, say: Say) -> dict[str, str]:
    """Id -> body of every attempt in a folder, as canonical JSON.

    The exchange file is what is read. Where there is a database too, it may have more (a kill between both), and
    must not say anything else.

    Args:
        folder: where they are.
        cells: which cells they may be of: id -> environment.
        strict: whether any other cell is a lie; else it is of an earlier plan, and is left out.
        say: told what was left out.
    """
    found: dict[str, str] = {}
    others = 0
    texts: set[bytes] = set()
    for place, text, torn in (*_lines(folder), *_rows(folder, say)):
        if text in texts:
            continue
        attempt = _attempt(place, text, torn)
        if attempt is None:
            say(f"{place}: the last line is cut; the attempt that it was to hold is not counted")
            continue
        texts.add(text)
        if cells.get(attempt["cell"]) != attempt["environment"]:
            if strict:
                refuse(place, f"attempt {attempt['id']} is of a cell that this shard does not have")
            others += 1
            continue
        body = json.dumps(attempt, sort_keys=True, separators=(",", ":"))
        if found.setdefault(attempt["id"], body) != body:
            refuse(place, f"attempt {attempt['id']} is there twice, and says two things")
    if others:
        say(f"{folder}: {others} attempts of another plan are left out")
    return found


def _lines(folder: Path) -> Iterator[tuple[str, bytes, bool]]:
    """(place, text, whether it is the last and has no end) of every line of the exchange file."""
    path = folder / "attempts.ndjson"
    content = read_inside(folder, path.name) or b""
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}:{number}", line, number == len(lines)


def _rows(folder: Path, say: Say) -> Iterator[tuple[str, bytes, bool]]:
    """The same of the database."""
    for row, body in _select(folder, "attempts", "sequence, body", say):
        yield f"{folder / 'results.sqlite'}, row {row}", str(body).encode("utf-8", "surrogatepass"), False


def _attempt(place: str, text: bytes, torn: bool) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(text.decode())
        AttemptModel.model_validate(data)
        known = {name: data[name] for name in _FIELDS}  # what a newer release has more, this one does not keep
        judge(Attempt(**known))
        return known
    except _ODD as error:
        if torn and isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
            return None
        refuse(place, f"is no attempt: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:200]
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


# --- environments


def read_states(folder: Path, keys: set[str], strict: bool, say: Say) -> list[tuple[str, EnvironmentState]]:
    """What a folder says of environments: its exchange file, and its database, which may be one step ahead."""
    path = folder / "environments.json"
    content = read_inside(folder, path.name)
    said = [] if content is None else [(str(path), _loaded(str(path), content))]
    database = str(folder / "results.sqlite")
    for key, record, fault, missing in _select(folder, "environments", "key, record, fault, missing", say):
        state = {"record": _loaded(database, record), "fault": fault, "missing": _loaded(database, missing)}
        said.append((database, {"environments": {key: state}}))
    found = []
    for place, data in said:
        try:
            states = EnvironmentsModel.model_validate(data).environments
        except _ODD as error:
            refuse(place, f"does not say what became of environments: {_first_line(error)}")
        for key, word in states.items():
            if key in keys:
                record = word.record.as_json() if word.record is not None else None
                found.append((key, EnvironmentState(record, word.fault, word.missing)))
            elif strict:
                refuse(place, f"speaks of environment {key[:80]!r}, which this shard does not have")
    return found


def _loaded(place: str, text: str | bytes | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except _ODD as error:
        refuse(place, f"does not say what became of environments: {_first_line(error)}")


# --- the database


def _select(folder: Path, table: str, columns: str, say: Say) -> list[tuple[Any, ...]]:
    """Rows of a table, of a copy: to open a database writes beside it. Nothing where it is no database of ours."""
    path = folder / "results.sqlite"
    content = read_inside(folder, path.name)
    if content is None:
        return []
    with tempfile.TemporaryDirectory(prefix="metamatrix-merge-") as copy:
        (Path(copy) / path.name).write_bytes(content)
        wal = read_inside(folder, "results.sqlite-wal")
        if wal is not None:
            (Path(copy) / "results.sqlite-wal").write_bytes(wal)
        try:
            with closing(sqlite3.connect(Path(copy) / path.name)) as database:
                database.execute("PRAGMA trusted_schema = OFF")  # its views and triggers are not ours
                kind = database.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
                if kind != ("table",):
                    return []
                return database.execute(f"SELECT {columns} FROM {table}").fetchall()  # noqa: S608 - both are ours
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            say(f"{path} cannot be read ({error}); attempts.ndjson and environments.json are")
            return []
