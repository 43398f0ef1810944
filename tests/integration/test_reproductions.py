"""What we blame on a library shows without us: each script of docs/reproductions, with the versions that it names."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.checkpoints import files
from runner.isolation.venv import default_store
from tests.integration.conftest import ROOT, variables

pytestmark = pytest.mark.slow

SCRIPTS = ROOT / "docs" / "reproductions"
OLD, FOUR, FIVE, NEW = ("0.32.2", "4.46.3"), ("0.38.0", "4.57.6"), ("0.38.0", "5.6.0"), ("latest", "latest")
CASES = {
    "clip_of_a_single_file": ("sd15", "canonical", {OLD: 3, FOUR: 3, FIVE: 0, NEW: 3}),
    "t5_of_a_single_file_trains": ("sd3", "canonical", {OLD: 0, FOUR: 0, FIVE: 0, NEW: 0}),
    "t5_of_a_single_file_loses_its_tie": ("sd3", "canonical", {OLD: 3, FOUR: 3, FIVE: 0, NEW: 0}),
    "raw_clip_keys": ("sd15", "canonical", {OLD: 3, FOUR: 3, FIVE: 0, NEW: 0}),
    "used_offload_folder": ("sd15", "canonical", {OLD: 0, FOUR: 0, FIVE: 0, NEW: 0}),
    "move_after_offload": ("sd15", "canonical", {OLD: 0, FOUR: 0, FIVE: 0, NEW: 0}),
}
"""Script -> its checkpoint, and what it ends with in each stack: 0 where the fault shows, 3 where it does not."""


def test_every_reproduction_is_tried() -> None:
    """A script that nothing runs proves nothing."""
    assert {path.stem for path in SCRIPTS.glob("*.py")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_it_shows_where_it_says(name: str, quick: dict[str, Any], tmp_path: Path) -> None:
    """In the environments of the quick selection, by itself: the fault shows with these versions, and not with those."""
    pipeline, checkpoint, expected = CASES[name]
    place = files.write(pipeline, checkpoint, tmp_path / "checkpoints").path
    found, said = {}, {}
    for environment in quick["environments"]:
        stack = (environment["requested"]["diffusers"], environment["requested"]["transformers"])
        python = default_store() / "environments" / environment["id"] / "bin" / "python"
        done = subprocess.run(
            [str(python), "-B", str(SCRIPTS / f"{name}.py"), str(place)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=variables(HF_HUB_OFFLINE="1", HOME=str(tmp_path)),
        )
        found[stack], said[stack] = done.returncode, done.stdout + done.stderr[-800:]
    assert found == expected, said
