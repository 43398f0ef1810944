"""What is kept of a run, and where? One folder: the database, the exchange file, logs and locks by content.

    plan.json         the plan, with its locks
    whole-plan.json   in the folder of a shard: the plan that it is a part of
    results.sqlite    the truth on this machine (WAL)
    attempts.ndjson   the same attempts, append-only, for exchange
    merged.json       in a folder that was merged and not run since: the shards in it
    environments.json what became of the environments, for exchange
    logs/ locks/ arrays/   by sha256

Killing the program at any instant loses at most the attempts under way.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from runner.errors import InfrastructureError, RunFolderError, WrongShard
from runner.plan import Plan, read_plan, write_plan
from runner.results.attempt import Attempt
from runner.results.conclude import EnvironmentState
from runner.whole_files import write_once, write_whole

__all__ = ["MERGED", "RunFolder", "read_text"]

MERGED = "merged.json"
SCHEMA_VERSION = 2
_MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE environments (key TEXT PRIMARY KEY, record TEXT, fault TEXT NOT NULL) STRICT;
    CREATE TABLE attempts (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        cell TEXT NOT NULL,
        environment TEXT NOT NULL,
        mode TEXT NOT NULL CHECK (mode IN ('fork', 'cold')),
        probe_version TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX attempts_by_cell ON attempts (cell);
    CREATE TRIGGER attempts_never_change BEFORE UPDATE ON attempts
        BEGIN SELECT RAISE(ABORT, 'attempts are never changed'); END;
    CREATE TRIGGER attempts_never_go BEFORE DELETE ON attempts
        BEGIN SELECT RAISE(ABORT, 'attempts are never removed'); END;
    """,
    "ALTER TABLE environments ADD COLUMN missing TEXT NOT NULL DEFAULT '{}';",
)
_FIELDS = {field.name for field in fields(Attempt)}


class RunFolder:
    """A run's folder, held by one process at a time while it is open for writing."""

    def __init__(self, path: Path, writing: bool = True) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._lock: IO[str] | None = None
        self._database: sqlite3.Connection | None = None
        try:
            if writing:
                self._claim()
            elif not (path / "results.sqlite").exists():
                raise RunFolderError(f"{path} holds no results", "Give the folder of a run: `metamatrix run --output`.")
            self._open(writing)
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        """Make the folder ours, until this process ends at the latest."""
        try:
            for name in ("logs", "locks", "arrays"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunFolderError(
                f"{self.path} is in use by another run", "Wait for it to end, or give another folder with --output."
            ) from error
        except OSError as error:
            raise InfrastructureError(
                f"{self.path} cannot be used: {error.strerror}", "Give another --output."
            ) from error

    def _open(self, writing: bool) -> None:
        self._database = sqlite3.connect(self.path / "results.sqlite", check_same_thread=False, isolation_level=None)
        self._prepare(writing)
        if writing:
            self._reconcile()

    @property
    def _rows(self) -> sqlite3.Connection:
        assert self._database is not None
        return self._database

    def _prepare(self, writing: bool) -> None:
        try:
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA synchronous = FULL")
            (version,) = self._rows.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError as error:
            raise InfrastructureError(
                f"{self.path / 'results.sqlite'} cannot be opened: {error}",
                "Wait for who writes it, or check the rights on the folder; a copy of it may help.",
            ) from error
        except sqlite3.DatabaseError as error:
            raise RunFolderError(
                f"{self.path / 'results.sqlite'} is no database: {error}", "Move the folder away and run again."
            ) from error
        if version > SCHEMA_VERSION:
            raise RunFolderError(
                f"{self.path} was written by a newer metamatrix (schema {version})", "Upgrade, or give another folder."
            )
        # An older folder is brought up to date for readers too: a migration only adds.
        if writing or 0 < version < SCHEMA_VERSION:
            for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
                self._rows.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        if self._lock is not None:
            self._lock.close()

    # --- the plan

    def keep_plan(self, plan: Plan, whole: Plan | None = None) -> None:
        """Make `plan` this folder's plan; attempts of an earlier plan stay and serve where cells are the same.

        Args:
            plan: what is run.
            whole: the plan that it is a shard of, so that a merge knows what the other shards owe.

        Raises:
            WrongShard: the folder is that of another shard, or one of both is no shard. A shard's folder speaks of
                its own environments only: who merges it relies on that.
        """
        kept = self._kept_plan()
        if kept is not None and (kept.shard, kept.whole) != (plan.shard, plan.whole):
            raise WrongShard(
                f"{self.path} holds {_part(kept)}; this run is {_part(plan)}",
                "Give each shard a folder of its own with --output, or go on with the shard and plan that it holds.",
            )
        if whole is not None:
            write_plan(whole, self.path / "whole-plan.json")
        for digest, text in plan.locks.items():
            write_once(self.path / "locks" / digest, text.encode())
        write_plan(plan, self.path / "plan.json")
        (self.path / MERGED).unlink(missing_ok=True)

    def plan(self) -> Plan | None:
        """This folder's plan, or None where it has none yet."""
        path = self.path / "plan.json"
        return read_plan(path) if path.exists() else None

    def whole_plan(self) -> Plan | None:
        """The plan that this folder's plan is a shard of; its own plan where it is none."""
        path = self.path / "whole-plan.json"
        return read_plan(path) if path.exists() else self.plan()

    def _kept_plan(self) -> Plan | None:
        """This folder's plan; None also where it is of another release, and of no use."""
        try:
            return self.plan()
        except RunFolderError:
            return None

    def started(self, fallback: str) -> tuple[str, str]:
        """(id, start) of the run that this folder holds: set once, by the first run."""
        with self._guard:
            found = dict(self._rows.execute("SELECT key, value FROM meta").fetchall())
            if "run" not in found and self._lock is None:
                # A reader of a folder whose run has not begun, or that an early release wrote: it must not write.
                return hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16], fallback
            if "run" not in found:
                found = {"run": os.urandom(8).hex(), "started": fallback}
                self._rows.execute("BEGIN IMMEDIATE")
                self._rows.executemany("INSERT INTO meta VALUES (?, ?)", list(found.items()))
                self._rows.execute("COMMIT")
            return found["run"], found["started"]

    # --- environments

    def keep_environment(self, key: str, state: EnvironmentState) -> None:
        with self._guard:
            self._keep_environment(key, state)
            self._exchange_environments()

    def _keep_environment(self, key: str, state: EnvironmentState) -> None:
        record = json.dumps(dict(state.record)) if state.record is not None else None
        self._rows.execute(
            "INSERT INTO environments (key, record, fault, missing) VALUES (?, ?, ?, ?) ON CONFLICT (key) "
            "DO UPDATE SET record = excluded.record, fault = excluded.fault, missing = excluded.missing",
            (key, record, state.fault, json.dumps(dict(state.missing))),
        )

    def environments(self) -> dict[str, EnvironmentState]:
        with self._guard:
            return self._environments()

    def _environments(self) -> dict[str, EnvironmentState]:
        rows = self._rows.execute("SELECT key, record, fault, missing FROM environments ORDER BY key").fetchall()
        return {
            key: EnvironmentState(json.loads(record) if record else None, fault, json.loads(missing))
            for key, record, fault, missing in rows
        }

    def _exchange_environments(self) -> None:
        """Write what became of the environments into a file that another machine reads without our database."""
        states = {key: asdict(state) for key, state in self._environments().items()}
        content = json.dumps({"schema_version": 1, "environments": states}, indent=1).encode()
        write_whole(self.path / "environments.json", content)

    # --- attempts

    def keep_attempt(self, attempt: Attempt) -> None:
        """Write one attempt down for good: first the database, then the exchange file."""
        body = json.dumps(attempt.as_json(), separators=(",", ":"))
        with self._guard:
            self._insert(attempt, body)
            with (self.path / "attempts.ndjson").open("ab") as file:
                file.write(body.encode() + b"\n")

    def _insert(self, attempt: Attempt, body: str) -> None:
        self._rows.execute(
            "INSERT INTO attempts (id, cell, environment, mode, probe_version, body) VALUES (?, ?, ?, ?, ?, ?)",
            (attempt.id, attempt.cell, attempt.environment, attempt.mode, attempt.probe_version, body),
        )

    def fill(
        self, run: tuple[str, str], states: Mapping[str, EnvironmentState], attempts: Iterable[tuple[Attempt, str]]
    ) -> None:
        """Write a run down at once, into a new folder: (id, start), environments, attempts with their JSON in order."""
        with self._guard:
            self._rows.execute("BEGIN IMMEDIATE")
            self._rows.executemany("INSERT INTO meta VALUES (?, ?)", zip(("run", "started"), run, strict=True))
            for key, state in states.items():
                self._keep_environment(key, state)
            for attempt, body in attempts:
                self._insert(attempt, body)
            self._rows.execute("COMMIT")
            self._reconcile()

    def take_over(self, aside: Path) -> None:
        """Put the rows of another folder, which is closed, in the place of ours.

        The exchange files come first: whoever is killed between them and the database finds everything in them.
        """
        with self._guard:
            self._rows.close()
            for name in ("attempts.ndjson", "environments.json"):
                os.replace(aside / name, self.path / name)
            for name in ("results.sqlite", "results.sqlite-wal", "results.sqlite-shm"):
                (self.path / name).unlink(missing_ok=True)
            os.replace(aside / "results.sqlite", self.path / "results.sqlite")
            self._open(writing=True)

    def tried(self) -> set[str]:
        """The ids of the cells that have an attempt."""
        with self._guard:
            return {cell for (cell,) in self._rows.execute("SELECT DISTINCT cell FROM attempts")}

    def attempts(self, probe_version: str, limits: dict[str, int]) -> dict[str, list[Attempt]]:
        """All attempts of one probe version and the same limits, by cell, in the order they were made."""
        with self._guard:
            rows = self._rows.execute(
                "SELECT cell, body FROM attempts WHERE probe_version = ? ORDER BY sequence", (probe_version,)
            ).fetchall()
        found: dict[str, list[Attempt]] = {}
        for cell, body in rows:
            data = _read_body(body)
            if data["conditions"].get("limits") == limits:
                attempt = Attempt(**{name: value for name, value in data.items() if name in _FIELDS})
                found.setdefault(cell, []).append(attempt)
        return found

    def _reconcile(self) -> None:
        """Make the exchange files whole after a kill: cut a torn last line, add what the database has more."""
        path = self.path / "attempts.ndjson"
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        seen = {json.loads(line)["id"] for line in whole.splitlines() if line.strip()}
        rows = self._rows.execute("SELECT id, body FROM attempts ORDER BY sequence").fetchall()
        lost = [body for identifier, body in rows if identifier not in seen]
        if len(whole) != len(content) or lost or not path.exists():
            added = "".join(body + "\n" for body in lost).encode()
            write_whole(path, whole + added)
        self._exchange_environments()

    # --- content-addressed files

    def keep_log(self, text: str) -> str:
        """Keep what a cell printed; its sha256."""
        return self._keep("logs", text.encode("utf-8", "backslashreplace"))

    def keep_arrays(self, arrays: dict[str, Any]) -> str:
        """Keep the arrays of a reference; their sha256."""
        return self._keep("arrays", json.dumps(arrays, sort_keys=True).encode())

    def arrays(self, digest: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "arrays" / digest).read_text(encoding="utf-8"))
        return found

    def _keep(self, kind: str, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        write_once(self.path / kind / digest, content)
        return digest


def _read_body(body: str) -> dict[str, Any]:
    """An attempt's row. Half a character, which JSON can say and UTF-8 cannot, is shown as a number."""
    data: dict[str, Any] = json.loads(body)
    if "\\ud" in body:
        data = _whole(data)
    return data


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_whole(entry) for entry in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(entry) for name, entry in value.items()}
    return value


def _part(plan: Plan) -> str:
    """For messages."""
    return f"shard {plan.shard} of plan {(plan.whole or '')[:12]}" if plan.shard else "a plan that is no shard"


def read_text(path: Path, limit: int = 64 * 1024) -> str:
    """The first `limit` bytes of a kept text, as text whatever they are; empty where it is gone."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""
