"""`metamatrix image`: one environment of a run as an image that stands alone, with its bill of materials."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from metamatrix import __version__
from metamatrix.document import document
from runner.checkpoints.golden import golden_arrays
from runner.engine.requests import Requests
from runner.environments.store import BuildFailed
from runner.errors import InfrastructureError, MetamatrixError, RunFolderError
from runner.isolation.choose import docker_isolation
from runner.isolation.containers.export import HOME, Contents
from runner.isolation.contract import CELL_VARIABLES
from runner.plan import Plan, PlannedCell, PlannedEnvironment
from runner.probe.words import PROBE_VERSION
from runner.resolve.bill import bill_of_materials
from runner.resolve.uv import Uv
from runner.results.attempt import Attempt
from runner.results.conclude import reference_arrays, reference_cell
from runner.results.folder import RunFolder
from runner.verdicts import Verdict
from runner.whole_files import write_whole

__all__ = ["run_image"]


def run_image(
    environment: str, folder: Path, tag: str | None, push: str | None, bill: Path | None, as_json: bool
) -> int:
    """Make the image, check nothing (it checks itself when it is run), push it where asked to."""
    console = Console(stderr=True)
    with RunFolder(folder, writing=False) as run, tempfile.TemporaryDirectory(prefix="metamatrix-image-") as work:
        plan = run.plan()
        if plan is None:
            raise RunFolderError(f"{folder} has no plan", "Run `metamatrix run --output` with this folder first.")
        planned = _find(plan, environment)
        passed = [cell.id for cell in document(run).cells if cell.verdict == Verdict.PASS]
        attempts = run.attempts(PROBE_VERSION, plan.limits.as_json())
        cells = [cell for cell in plan.of(planned.key) if cell.id in passed and cell.probe["runner"] == "cpu"]
        if not cells:
            raise MetamatrixError(
                f"no cell of {planned.key} has passed on the CPU in {folder}, so an image of it could show nothing",
                "Choose another environment; `metamatrix report` shows which are good.",
            )
        lock = plan.lock(planned)
        name = push or tag or f"localhost/metamatrix-image:{planned.key}"
        if ":" not in name.rpartition("/")[2]:
            name = f"{name}:{planned.key}"
        with docker_isolation(Uv(), __version__, lambda text: console.print(text, markup=False)) as isolation:
            system = isolation.system_packages(lock.python)
            made = datetime.fromisoformat(plan.created)
            materials = bill_of_materials(lock, system, made, f"metamatrix {__version__}")
            given: list[Path] = []
            requests = Requests(Path(work) / "checkpoints", lambda path: _give(given, path))
            work_list = _cells(plan, cells, requests, _shared(run, cells, attempts))
            contents = Contents(planned.key, lock.text, work_list, tuple(given), materials)
            try:
                identifier = isolation.export(lock, contents, name, Path(work))
            except BuildFailed as error:
                raise InfrastructureError(
                    f"the environment could not be built: {error}", "Check the network and the disk, then try again."
                ) from error
            digest = isolation.push(name) if push else ""
    if bill is not None:
        write_whole(bill, materials.encode())
    answer = {"schema_version": 1, "image": name, "id": identifier, "cells": len(cells), "pushed": digest}
    if as_json:
        print(json.dumps(answer))
    else:
        print(f"{name}: {len(cells)} cells. Check it: docker run --rm --network none {name}")
    return 0


def _find(plan: Plan, environment: str) -> PlannedEnvironment:
    """The one environment whose id begins so."""
    known = [entry for entry in plan.environments if entry.lock is not None]
    found = [entry for entry in known if entry.key.startswith(environment)]
    if len(found) != 1:
        what = "no environment" if not found else f"{len(found)} environments"
        names = ", ".join(entry.key for entry in known)
        raise MetamatrixError(f"{what} of this run has an id that begins with {environment!r}", f"There are: {names}.")
    return found[0]


def _give(given: list[Path], path: Path) -> str:
    """Where a checkpoint lies in the image."""
    given.append(path)
    return f"{HOME}/checkpoints/{path.name}"


def _shared(run: RunFolder, cells: list[PlannedCell], attempts: Mapping[str, Sequence[Attempt]]) -> dict[str, Any]:
    """What every cell compares its output with, by pipeline."""
    first = {cell.probe["pipeline"]: cell for cell in cells}
    golden = {pipeline: golden_arrays(pipeline) for pipeline in first}
    kept = {pipeline: reference_arrays(cell, attempts) for pipeline, cell in first.items()}
    return {
        "golden": {pipeline: arrays for pipeline, arrays in golden.items() if arrays},
        "reference": {pipeline: run.arrays(digest) for pipeline, digest in kept.items() if digest},
    }


def _cells(plan: Plan, cells: list[PlannedCell], requests: Requests, shared: dict[str, Any]) -> dict[str, Any]:
    """What the image's own check reads."""
    firsts = {cell.probe["pipeline"]: reference_cell(cell) for cell in cells}
    opening = {
        "kind": "open",
        "warm": True,
        "container": False,
        "pipelines": requests.pipelines(firsts),
        "rehearsals": [requests.request(cell) for cell in firsts.values()],
    }
    names = ("pipeline", "checkpoint", "load", "offload", "lifecycle", "dtype")
    return {
        "open": opening,
        "shared": shared,
        "limits": plan.limits.as_json(),
        "variables": CELL_VARIABLES,
        "cells": [
            {
                "id": cell.id,
                "name": " ".join(cell.probe[axis] for axis in names),
                "request": requests.request(cell),
            }
            for cell in cells
        ],
    }
