"""The command line: quick to answer, exit codes and remedies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("pydantic", "rich", "yaml", "jinja2", "sqlite3", "packaging")


def test_help_imports_nothing_heavy() -> None:
    """`--help` is quick because heavy imports wait for the command that needs them."""
    code = f"""
import sys
from typer.testing import CliRunner
from metamatrix.cli import app
for name in {HEAVY!r}:
    assert name not in sys.modules or name == "rich", name
assert "runner.plan" not in sys.modules
print(CliRunner().invoke(app, ["--help"]).output)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "plan" in done.stdout


def test_a_wrong_matrix_exits_with_2_and_words(tmp_path: Path) -> None:
    """No traceback: place, what, and what to do."""
    file = tmp_path / "matrix.yaml"
    file.write_text("axes: {torch: 2.10}\n")
    done = subprocess.run(
        [sys.executable, "-m", "metamatrix", "plan", "--matrix", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{file}:1:15: axes.torch" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Correct the lines above" in done.stderr


def test_a_missing_folder_exits_with_2_and_words(tmp_path: Path) -> None:
    """`report` without results says what to give it."""
    done = subprocess.run(
        [sys.executable, "-m", "metamatrix", "report", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "holds no results" in done.stderr
