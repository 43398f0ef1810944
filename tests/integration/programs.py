"""Small programs for environments, and a small environment for them."""

from __future__ import annotations

import hashlib
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import runner.probe
from metamatrix.document import document
from reports.document import CellModel
from runner.engine.engine import Engine, Options
from runner.isolation.archive import write_archive
from runner.isolation.contract import Channel, Isolation
from runner.plan import read_plan
from runner.resolve.lock import Lock
from runner.resolve.resolver import Resolver
from runner.resolve.uv import Uv
from runner.results.folder import RunFolder

__all__ = ["LIMITS", "NO_INDEX", "Notes", "all_of", "program", "run_with_probe", "small_lock"]

LIMITS = {"seconds": 60, "memory_mb": 64, "disk_mb": 16, "processes": 32}
NO_INDEX = "http://127.0.0.1:9/{backend}"


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def environment(self, key: str, state: str) -> None:
        self.notes.append(f"{key} {state}")

    def attempt(self, attempt: Any) -> None:
        self.notes.append(attempt.how)

    def note(self, text: str) -> None:
        self.notes.append(text)


def run_with_probe(main: str, quick: Path, isolation: Isolation, folder: Path) -> dict[str, CellModel]:
    """Run three offload modes of a sound pretrained load with a probe that has another main program.

    `quick` is the folder of a quick run, for its plan; `folder` gets the run. Offload mode -> its cell.
    """
    plan = read_plan(quick / "plan.json").only(
        lambda cell: (
            cell.asked["diffusers"] == "0.32.2"
            and cell.probe["load"] == "pretrained"
            and cell.probe["checkpoint"] == "canonical"
            and cell.probe["offload"] in ("none", "sequential", "disk")
        )
    )
    names = [f"probe/{path.name}" for path in Path(runner.probe.__file__).parent.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch, RunFolder(folder) as run:
        patch.setattr("runner.engine.engine.write_probe", lambda place: write_archive(place, "other", names, main))
        run.keep_plan(plan)
        Engine(plan, run, isolation, folder.parent, Notes(), Options(2)).run()
        return {cell.axes["offload"]: cell for cell in document(run).cells}


def small_lock(python: str = "3.11") -> Lock:
    """A lock of one pure wheel with many modules, resolved by uv."""
    resolution = Resolver(Uv(), NO_INDEX, None).resolve({"python": python, "pygments": "2.19.2"}, "cpu")
    assert resolution.lock is not None, resolution
    return resolution.lock


def program(folder: Path, name: str, source: str) -> Path:
    """A zipapp of one file, in the place and under the kind of name that a probe has."""
    (folder / "probe").mkdir(exist_ok=True)
    archive = folder / "probe" / f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:16]}.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__main__.py", source)
    return archive


def all_of(channel: Channel) -> bytes:
    """What a program says until it ends."""
    said = b""
    deadline = time.monotonic() + 120
    while (data := channel.read(1.0)) != b"":
        said += data or b""
        assert time.monotonic() < deadline, channel.log()
    return said
