"""What will be run? Environments with their locks, and cells, as one file that needs no index again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from runner.checkpoints import damage, files
from runner.errors import RunFolderError
from runner.identifiers import cell_id, digest
from runner.matrix.expand import Asked, Cells, Excluded
from runner.matrix.load import Expect, Limits, Matrix
from runner.probe.words import PROBE_VERSION
from runner.resolve.lock import Lock, Platform, read_lock
from runner.resolve.resolver import Resolution
from runner.whole_files import write_whole

__all__ = ["Expectation", "Plan", "PlannedCell", "PlannedEnvironment", "make_plan", "read_plan", "write_plan"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Expectation:
    """A known failure that covers a cell; `expires` is a day, YYYY-MM-DD."""

    verdict: str
    expires: str
    link: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedEnvironment:
    """One environment of a plan.

    `key` is its id where it resolves, and a digest of the request where it does not; then `proof` has
    the derivation, or `fault` the reason why there is no answer. `lock` is the sha256 of the lock's text.
    """

    key: str
    asked: dict[str, str]
    exact: dict[str, str]
    backend: str
    lock: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    proof: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell: ids, its environment's key, what was asked, its probe axes, the checkpoint's digest."""

    id: str
    subject: str
    environment: str
    asked: dict[str, str]
    probe: dict[str, str]
    checkpoint: str
    expectation: Expectation | None = None

    def at(self, **probe: str) -> PlannedCell:
        """The neighbour of this cell that differs in some probe axes."""
        axes = {**self.probe, **probe}
        checkpoint = checkpoint_digest(axes["pipeline"], axes["checkpoint"])
        identifier = cell_id(self.environment, axes, checkpoint, PROBE_VERSION)
        return replace(self, id=identifier, subject="", probe=axes, checkpoint=checkpoint, expectation=None)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run needs to know. `locks` maps the sha256 of a lock to its text.

    `platform` is what the locks are for: None in plans of the first release, which were for their own machine.
    A part of another plan says which one: `shard` is "2/8", `whole` the digest of that plan (see `runner/shard.py`).
    """

    matrix: str
    matrix_digest: str
    select: str | None
    created: str
    limits: Limits
    environments: tuple[PlannedEnvironment, ...]
    cells: tuple[PlannedCell, ...]
    excluded: tuple[Excluded, ...]
    locks: dict[str, str]
    warnings: tuple[str, ...] = ()
    platform: Platform | None = None
    shard: str | None = None
    whole: str | None = None

    def lock(self, environment: PlannedEnvironment) -> Lock:
        """The lock of an environment that resolved."""
        assert environment.lock is not None
        target = self.platform or Platform.here()
        return read_lock(self.locks[environment.lock], environment.exact["python"], target)

    def of(self, environment: str) -> list[PlannedCell]:
        """The cells of an environment, each id once (two subjects may have become one cell)."""
        return list({cell.id: cell for cell in self.cells if cell.environment == environment}.values())

    def only(self, keep: Callable[[PlannedCell], bool]) -> Plan:
        """The same plan with fewer cells, and the environments that they need."""
        cells = tuple(cell for cell in self.cells if keep(cell))
        used = {cell.environment for cell in cells}
        environments = tuple(environment for environment in self.environments if environment.key in used)
        return replace(self, cells=cells, environments=environments)


@cache
def checkpoint_digest(pipeline: str, name: str) -> str:
    """The digest of a checkpoint's files; a damage that does not apply has a digest of its name only."""
    applies = damage.not_applicable(name, pipeline) is None
    return files.digest(files.contents(pipeline, name)) if applies else digest(["not applicable", name])


def make_plan(
    matrix: Matrix,
    select: str | None,
    cells: Cells,
    resolve: Callable[[dict[str, str], str], Resolution],
    on_resolve: Callable[[int, int], None] = lambda done, total: None,
) -> Plan:
    """Resolve every environment that `cells` ask for, once each, and give ids.

    Args:
        matrix: where the cells come from.
        select: what they were selected by, to be written down.
        cells: the expanded cells.
        resolve: (exact environment axes, torch backend) -> resolution.
        on_resolve: told how many of how many environments are resolved.
    """
    environments: dict[str, PlannedEnvironment] = {}
    by_request: dict[str, str] = {}
    locks: dict[str, str] = {}
    requests = {_request(asked): asked for asked in cells.asked}
    for done, (request, asked) in enumerate(requests.items()):
        on_resolve(done, len(requests))
        environment = _environment(asked, request, resolve(asked.exact, asked.backend), locks)
        environments.setdefault(environment.key, environment)
        by_request[request] = environment.key
    on_resolve(len(requests), len(requests))
    planned = tuple(_cell(asked, by_request[_request(asked)], matrix.expect) for asked in cells.asked)
    return Plan(
        matrix=matrix.file,
        matrix_digest=matrix.digest,
        select=select,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        limits=matrix.limits,
        environments=tuple(environments.values()),
        cells=planned,
        excluded=cells.excluded,
        locks=locks,
    )


def _request(asked: Asked) -> str:
    return digest(["request", asked.exact, asked.backend])[:16]


def _environment(asked: Asked, request: str, resolution: Resolution, locks: dict[str, str]) -> PlannedEnvironment:
    lock = resolution.lock
    if lock is None:
        return PlannedEnvironment(
            request, asked.asked, asked.exact, asked.backend, proof=resolution.proof, fault=resolution.fault
        )
    locks[lock.digest] = lock.text
    versions = {axis: lock.version(axis) or "" for axis in asked.exact if axis != "python"}
    return PlannedEnvironment(
        lock.environment,
        asked.asked,
        asked.exact,
        asked.backend,
        lock=lock.digest,
        versions=versions,
    )


def _cell(asked: Asked, environment: str, expect: Iterable[Expect]) -> PlannedCell:
    checkpoint = checkpoint_digest(asked.probe["pipeline"], asked.probe["checkpoint"])
    known = next((entry for entry in expect if entry.when.matches(asked.row())), None)
    expectation = (
        Expectation(known.verdict.value, known.expires.isoformat(), known.link, known.reason) if known else None
    )
    identifier = cell_id(environment, asked.probe, checkpoint, PROBE_VERSION)
    return PlannedCell(identifier, asked.subject, environment, asked.asked, asked.probe, checkpoint, expectation)


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan file, whole or not at all."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(plan)}, indent=1)
    write_whole(path, text.encode())


def read_plan(path: Path) -> Plan:
    """Read a plan file.

    Raises:
        RunFolderError: it is no plan file, or of another release.
    """
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = data.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise RunFolderError(f"{path} is a plan of schema {version}; this release reads {SCHEMA_VERSION}")
        return Plan(
            matrix=data["matrix"],
            matrix_digest=data["matrix_digest"],
            select=data["select"],
            created=data["created"],
            limits=Limits(**data["limits"]),
            environments=tuple(PlannedEnvironment(**entry) for entry in data["environments"]),
            cells=tuple(_read_cell(entry) for entry in data["cells"]),
            excluded=tuple(Excluded(**entry) for entry in data["excluded"]),
            locks=data["locks"],
            warnings=tuple(data["warnings"]),
            platform=_read_platform(data.get("platform")),
            shard=data.get("shard"),
            whole=data.get("whole"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(
            f"{path} is no plan file: {error}", "Make one with `metamatrix plan --output FOLDER`."
        ) from error


def _read_platform(entry: dict[str, Any] | None) -> Platform | None:
    if entry is None:
        return None
    glibc = entry.pop("glibc")
    return Platform(**entry, glibc=(int(glibc[0]), int(glibc[1])) if glibc else None)


def _read_cell(entry: dict[str, Any]) -> PlannedCell:
    expectation = entry.pop("expectation")
    return PlannedCell(**entry, expectation=Expectation(**expectation) if expectation else None)
