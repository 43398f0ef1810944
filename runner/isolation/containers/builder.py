"""What is done inside the volume? One request as a line of JSON on standard input, one answer as a line of JSON.

Runs in a container of the build image, from a zipapp, with the image's own Python: standard library only,
Python 3.9 and later.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.environments.store import BuildFailed, BuildRequest, Store
from runner.environments.tidy import plan_tidying
from runner.errors import EnvironmentDamaged, InfrastructureError

__all__ = ["main"]

PYTHON = "/opt/metamatrix/python"


def _run_uv(arguments: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(["uv", *arguments], capture_output=True, check=False)
    return done.returncode, done.stderr.decode("utf-8", "backslashreplace")


def _open(store: Store, _request: dict[str, Any]) -> dict[str, Any]:
    """What the store holds already, and how much room there is."""
    names = {folder: sorted(os.listdir(store.root / folder)) for folder in ("environments", "checkpoints", "probe")}
    interpreter = os.path.realpath(sys.executable)
    return {"holds": names, "interpreter": interpreter, "free": shutil.disk_usage(store.root).free}


def _build(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    wanted = request["request"]
    packages = tuple((str(name), str(version), str(wheel)) for name, version, wheel in wanted["packages"])
    asked = BuildRequest(wanted["id"], wanted["lock"], wanted["lock_digest"], packages, PYTHON)
    try:
        built = store.build(asked, request["workers"])
        store.check(built)
    except (BuildFailed, EnvironmentDamaged) as error:
        return {("damaged" if isinstance(error, EnvironmentDamaged) else "failed"): str(error)}
    return {"record": built.record}


def _check(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    found = store.find(request["id"])
    if found is None:
        return {"damaged": f"the environment {request['id']} is gone"}
    try:
        store.check(found)
    except EnvironmentDamaged as error:
        return {"damaged": str(error)}
    return {}


def _place(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    """Give what was uploaded its final name, unless another was faster."""
    source, target = store.root / request["from"], store.root / request["to"]
    try:
        os.rename(source, target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(source, ignore_errors=True)
    return {}


def _tidy(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    """What goes, or with `carry_out` false would go."""
    planned = plan_tidying(store.root, request["budget"], request["keep"])
    if request["carry_out"]:
        planned.carry_out(store.root)
    return {"total": planned.total, "names": planned.names, "frees": planned.frees}


_WORK = {"tidy": _tidy, "open": _open, "build": _build, "check": _check, "place": _place}


def main(root: str) -> None:
    """Answer the one request on standard input."""
    request = json.loads(sys.stdin.readline())
    try:
        answer = _WORK[request["do"]](Store(Path(root), _run_uv), request)
    except (OSError, InfrastructureError, ValueError) as error:
        answer = {"fault": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
