"""What does a cell cost? The ways to run the same cells of one environment, as ratios in one run.

    nox -s bench            (or: python bench/bench.py [--cells 60] [--fresh 6])

`forked`: what metamatrix does: one zygote, one fork per cell, one at a time. `warm`: the same loads,
steps and guards one after the other in one process, after one import. `fresh`: a fresh process per cell,
with bytecode; a sample of the cells, since it is slow. `docker`: forked, in a container, where an engine answers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from metamatrix import __version__
from metamatrix.planning import plan_matrix
from runner.checkpoints.damage import not_applicable
from runner.engine.requests import Requests
from runner.engine.zygote_client import ZygoteClient
from runner.environments.store import Environment
from runner.isolation.archive import write_probe
from runner.isolation.containers.docker import Docker
from runner.isolation.containers.engine import EngineFailed, connect
from runner.isolation.contract import Isolation, StartRequest, cell_variables
from runner.isolation.scratch import scratch_parent
from runner.isolation.venv import Venv, default_store
from runner.plan import Plan, PlannedCell
from runner.resolve.uv import Uv

SELECT = "quick and diffusers == latest"
LIMITS = {"seconds": 120, "memory_mb": 4096, "disk_mb": 1024, "processes": 64}

_WARM = """
import json, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
start = time.monotonic()
from runner.probe import loads
from runner.probe.child import Cell, import_libraries
from runner.probe.expected import Weights
work = json.load(open(sys.argv[2]))
import_libraries()
loads.pipeline_class(work["requests"][0]["class"])
imported = time.monotonic()
weights = {name: Weights(entry["weights"]) for name, entry in work["pipelines"].items()}
for request in work["requests"]:
    own = weights[request["pipeline"]]
    Cell({**work["shared"], **request}, own, tempfile.mkdtemp(dir=work["scratch"]), lambda report: None).run()
print(json.dumps({"import": imported - start, "cells": time.monotonic() - imported}))
"""


def _open(isolation: Isolation, environment: Environment, work: dict[str, Any], warm: bool) -> ZygoteClient:
    client = ZygoteClient(isolation.start(environment, StartRequest(work["archive"], LIMITS, 1)))
    client.send(
        {
            "kind": "open",
            "warm": warm,
            "pipelines": work["pipelines"],
            "scratch": client.scratch,
            "container": "engine" in client.conditions,
            "rehearsals": work["requests"][:1] if warm else [],
        }
    )
    client.receive(300)
    return client


def _run(client: ZygoteClient, request: dict[str, Any]) -> None:
    client.send({"kind": "cell", "cell": "bench", "request": request, "limits": LIMITS})
    while not any(message["kind"] == "ended" for message in client.receive(180)):
        continue


def forked(isolation: Isolation, environment: Environment, work: dict[str, Any]) -> tuple[float, float]:
    """(seconds to open, seconds of all cells)."""
    start = time.monotonic()
    client = _open(isolation, environment, work, warm=True)
    opened = time.monotonic()
    for request in work["requests"]:
        _run(client, request)
    ended = time.monotonic()
    client.close()
    return opened - start, ended - opened


def warm(python: Path, scratch: Path, work: dict[str, Any]) -> tuple[float, float]:
    """(seconds of the import, seconds of all cells), in one process."""
    file = scratch / "work.json"
    file.write_text(json.dumps({**work, "archive": "", "scratch": str(scratch)}), encoding="utf-8")
    root = Path(__file__).resolve().parent.parent
    command = [str(python), "-I", "-B", "-c", _WARM, str(root), str(file)]
    answer = subprocess.run(
        command, check=True, capture_output=True, text=True, env=cell_variables(os.environ, str(scratch))
    )
    times = json.loads(answer.stdout.splitlines()[-1])
    return times["import"], times["cells"]


def fresh(isolation: Isolation, environment: Environment, work: dict[str, Any], count: int) -> float:
    """Seconds per cell in fresh processes, over `count` cells spread over all."""
    requests = work["requests"][:: max(1, len(work["requests"]) // count)][:count]
    start = time.monotonic()
    for request in requests:
        client = _open(isolation, environment, work, warm=False)
        _run(client, request)
        client.close()
    return (time.monotonic() - start) / len(requests)


def _work(isolation: Isolation, cells: list[PlannedCell]) -> dict[str, Any]:
    """What is run, with the paths that the cells of an isolation see."""
    requests = Requests(default_store() / "checkpoints", isolation.give)
    return {
        "pipelines": requests.pipelines(cell.probe["pipeline"] for cell in cells),
        "requests": [requests.request(cell) for cell in cells],
        "shared": {"golden": {}, "reference": {}},
        "archive": write_probe(default_store() / "probe"),
    }


def docker(uv: Uv, plan: Plan, cells: list[PlannedCell], fork_cells: float, opened: float) -> None:
    """The same cells in a container, and how long a container takes that does nothing."""
    try:
        engine = connect()
    except EngineFailed as error:
        print(f"docker: not measured: {error}")
        return
    isolation = Docker(engine, uv, __version__, default_store() / "probe", print)
    try:
        environment = isolation.build(plan.lock(plan.environments[0]), 2)
        work = _work(isolation, cells)
        forked(isolation, environment, {**work, "requests": work["requests"][:1]})  # warm the page cache here, too
        start = time.monotonic()
        isolation.start(environment, StartRequest(work["archive"], LIMITS, 1)).kill()
        started = time.monotonic() - start
        docker_opened, docker_cells = forked(isolation, environment, work)
    finally:
        isolation.close()
    count = len(cells)
    print(f"docker: opened in {docker_opened:.2f} s, cells {docker_cells:.2f} s, {docker_cells / count:.3f} s a cell")
    print(f"        a container that is started and killed: {started:.2f} s")
    print(f"docker / forked, a cell      = {docker_cells / fork_cells:.2f}  (about 1 wanted)")
    print(f"docker opens later by        = {docker_opened - opened:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--fresh", type=int, default=6)
    options = parser.parse_args()
    uv = Uv()
    plan = plan_matrix(Path("matrix.yaml"), SELECT, uv, Console(stderr=True))
    cells = [cell for cell in plan.cells if not_applicable(cell.probe["checkpoint"], "sd15") is None][: options.cells]
    venv = Venv(default_store(), uv)
    environment = venv.build(plan.lock(plan.environments[0]), 2)
    work = _work(venv, cells)
    fresh(venv, environment, work, 1)  # warm the page cache for all three
    opened, fork_cells = forked(venv, environment, work)
    with tempfile.TemporaryDirectory(prefix="metamatrix-bench-", dir=scratch_parent()) as folder:
        imported, warm_cells = warm(environment.python, Path(folder), work)
    per_fresh = fresh(venv, environment, work, options.fresh)
    count = len(cells)
    print(f"{count} cells of {environment.id}")
    print(f"forked: opened in {opened:.2f} s, cells {fork_cells:.2f} s, {fork_cells / count:.3f} s a cell")
    print(f"warm:   import {imported:.2f} s, cells {warm_cells:.2f} s, {warm_cells / count:.3f} s a cell")
    print(f"fresh:  {per_fresh:.2f} s a cell ({options.fresh} cells), {per_fresh * count:.0f} s for all")
    total = opened + fork_cells
    print(f"forked / (2 x warm + import) = {total / (2 * warm_cells + imported):.2f}  (at most 1 wanted)")
    print(f"fresh / forked, a cell       = {per_fresh / (fork_cells / count):.1f}  (at least 15 wanted)")
    print(f"fresh / forked, opening too  = {per_fresh * count / total:.1f}")
    docker(uv, plan, cells, fork_cells, opened)


if __name__ == "__main__":
    main()
