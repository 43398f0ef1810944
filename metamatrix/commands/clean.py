"""`metamatrix clean`: what metamatrix holds on this machine and in its engine, and what of it goes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from metamatrix import __version__
from runner.environments.store import FOLDERS
from runner.environments.tidy import Tidying, plan_tidying
from runner.errors import MetamatrixError
from runner.isolation.venv import default_store

__all__ = ["run_clean"]

_GB = 1 << 30


@dataclass(slots=True)
class _Report:
    """What was found. `removes` are the things that go; `stays` those that something still uses, with the reason."""

    held_bytes: int = 0
    removes: list[dict[str, Any]] = field(default_factory=list)
    stays: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def removal(self, kind: str, name: str, size: int = 0) -> None:
        self.removes.append({"kind": kind, "name": name, "bytes": size})


def run_clean(disk_gb: float, everything: bool, dry_run: bool, as_json: bool) -> int:
    """Remove what killed runs have left, old images, and the least recently used environments over the budget."""
    report = _Report()
    _engine(report, round(disk_gb * _GB), everything, dry_run)  # refuses while a run goes on, before anything goes
    _store(report, default_store(), round(disk_gb * _GB), everything, dry_run)
    if as_json:
        print(json.dumps({"schema_version": 1, "dry_run": dry_run, **asdict(report)}, indent=1))
    else:
        _print(report, dry_run)
    return 0


def _store(report: _Report, root: Path, budget: int, everything: bool, dry_run: bool) -> None:
    """The folder of virtual environments. uv's cache is the user's and stays."""
    if not root.is_dir():
        return
    planned = plan_tidying(root, budget, ())
    if everything:
        names = tuple(name for name in FOLDERS if (root / name).is_dir())
        planned = Tidying(planned.total, names, planned.total)
    _tidied(report, "in " + str(root), planned)
    if not dry_run:
        planned.carry_out(root)


def _tidied(report: _Report, where: str, planned: Tidying) -> None:
    report.held_bytes += planned.total
    for name in planned.names:
        report.removal(where, name)
    if planned.names:
        report.notes.append(f"{where}: {_size(planned.frees)} of {_size(planned.total)} go")


def _engine(report: _Report, budget: int, everything: bool, dry_run: bool) -> None:
    """Containers, images and the volume of the engine that answers, if one does."""
    from runner.isolation.containers import housekeeping
    from runner.isolation.containers.docker import volume_name
    from runner.isolation.containers.engine import EngineFailed, connect
    from runner.isolation.containers.keeper import Keeper

    try:
        engine = connect()
    except EngineFailed as error:
        report.notes.append(f"nothing of an engine was looked at: {error}")
        return

    def remove(things: Iterable[housekeeping.Thing]) -> None:
        for thing in things:
            stays = "" if dry_run else housekeeping.remove_thing(engine, thing)
            if stays:
                report.stays.append({"kind": thing.kind, "name": thing.name, "reason": stays})
            else:
                report.removal(thing.kind, thing.name, thing.bytes)

    def volume(held: int) -> None:
        """The volume can be looked into only through a container, and so through an image that is there."""
        builds = [thing for thing in housekeeping.images(engine) if thing.role == "build"]
        if not builds or not any(thing.id == volume_name() for thing in housekeeping.volumes(engine)):
            return
        keeper = Keeper(engine, builds[0].id, volume_name(), __version__, default_store() / "probe")
        try:
            planned = keeper.tidy(budget - held, housekeeping.environments_in_use(engine), carry_out=not dry_run)
            _tidied(report, f"in the volume {volume_name()}", planned)
        finally:
            keeper.close()

    try:
        remove(housekeeping.dead_containers(engine))
        if everything:
            if living := housekeeping.living_containers(engine):
                raise MetamatrixError(
                    f"{len(living)} containers of a run that goes on use the volume: {living[0].name}",
                    "Wait for that run to end, or stop it with Ctrl-C.",
                )
            remove(housekeeping.volumes(engine))
            remove(housekeeping.images(engine))
            return
        remove(housekeeping.superseded(engine))
        held = sum(thing.bytes for thing in housekeeping.images(engine))
        report.held_bytes += held
        volume(held)
    finally:
        engine.close()


def _print(report: _Report, dry_run: bool) -> None:
    console = Console()
    word = "would go" if dry_run else "gone"
    for row in report.removes:
        size = f" ({_size(row['bytes'])})" if row["bytes"] else ""
        console.print(f"{word}: {row['kind']} {row['name']}{size}", markup=False, highlight=False, soft_wrap=True)
    for row in report.stays:
        text = f"stays: {row['kind']} {row['name']}: {row['reason']}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    if not report.removes:
        console.print(f"nothing to remove; {_size(report.held_bytes)} held", highlight=False)


def _size(count: int) -> str:
    return f"{count / _GB:.2f} GiB" if count >= _GB // 10 else f"{count >> 20} MiB"
