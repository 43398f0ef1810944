"""Real runs, shared: the quick selection is run once for all tests of this folder."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str


def metamatrix(*arguments: str, seconds: int = 1500) -> Finished:
    """Run the command line as a user does."""
    answer = subprocess.run(
        [sys.executable, "-m", "metamatrix", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Finished(answer.returncode, answer.stdout, answer.stderr)


def run_text(folder: Path, text: str, *flags: str) -> dict[str, Any]:
    """Run a matrix that is given as text, to its end; its results. The run's folder is `folder / "run"`."""
    matrix = folder / "matrix.yaml"
    matrix.write_text(text, encoding="utf-8")
    done = metamatrix("run", "--matrix", str(matrix), "--output", str(folder / "run"), *flags)
    assert done.status == 0, done.stderr
    results: dict[str, Any] = json.loads((folder / "run" / "results.json").read_text(encoding="utf-8"))
    return results


def verdicts(results: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Subject -> (verdict, stage)."""
    return {cell["subject"]: (cell["verdict"], cell["stage"]) for cell in results["cells"]}


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
    results: dict[str, Any] = json.loads((quick_folder / "results.json").read_text(encoding="utf-8"))
    return results
