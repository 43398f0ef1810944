"""Real runs, shared: the quick selection is run once for all tests of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engines import EngineProcess, running_engine

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str


def variables(**more: str) -> dict[str, str]:
    """This machine's variables, without its engine: what tests of virtual environments see."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    return {**own, "METAMATRIX_ISOLATION": "venv", **more}


def metamatrix(*arguments: str, seconds: int = 1500, env: dict[str, str] | None = None) -> Finished:
    """Run the command line as a user does; `env` adds variables, such as those of an engine."""
    answer = subprocess.run(
        [sys.executable, "-m", "metamatrix", *arguments],
        cwd=ROOT,
        env=variables(**(env or {})),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Finished(answer.returncode, answer.stdout, answer.stderr)


def start(*arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The same, not waited for."""
    command = [sys.executable, "-m", "metamatrix", *arguments]
    environment = variables(**(env or {}))
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def results(folder: Path) -> dict[str, Any]:
    """The published results of a run's folder."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found


def attempts(folder: Path) -> list[dict[str, Any]]:
    """All attempts that a run's folder has written down for exchange; none where it has none yet."""
    path = folder / "attempts.ndjson"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def wait_for_attempts(folder: Path, count: int, seconds: float = 180) -> None:
    """Wait until that many attempts are written down."""
    deadline = time.monotonic() + seconds
    while len(attempts(folder)) < count:
        assert time.monotonic() < deadline, f"fewer than {count} attempts within {seconds} s"
        time.sleep(0.05)


def run_text(folder: Path, text: str, *flags: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a matrix that is given as text, to its end; its results. The run's folder is `folder / "run"`."""
    matrix = folder / "matrix.yaml"
    matrix.write_text(text, encoding="utf-8")
    done = metamatrix("run", "--matrix", str(matrix), "--output", str(folder / "run"), *flags, env=env)
    assert done.status == 0, done.stderr
    return results(folder / "run")


def verdicts(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Subject -> (verdict, stage)."""
    return {cell["subject"]: (cell["verdict"], cell["stage"]) for cell in found["cells"]}


@pytest.fixture(scope="session")
def quick_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the quick selection."""
    folder = tmp_path_factory.mktemp("quick") / "run"
    done = metamatrix("run", "--select", "quick", "--output", str(folder))
    assert done.status == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def quick(quick_folder: Path) -> dict[str, Any]:
    """The results of the quick selection."""
    return results(quick_folder)


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineProcess]:
    """One engine for all container tests, with its images and its volume."""
    with running_engine() as process:
        yield process


@pytest.fixture(scope="session")
def quick_docker(engine: EngineProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the quick selection in containers."""
    folder = tmp_path_factory.mktemp("quick-docker") / "run"
    done = metamatrix("run", "--select", "quick", "--output", str(folder), env=engine.variables())
    assert done.status == 0, done.stderr
    assert "isolation: docker (Docker Engine" in done.stderr
    return folder
