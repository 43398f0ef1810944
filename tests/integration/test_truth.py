"""The pipelines that most people run, on an old and a new stack: clean cells pass, known failures are found and named.

One matrix, run once in virtual environments and once in containers, shared by all tests of this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.checkpoints.pipelines import PIPELINES
from runner.probe.controls import CONTROLS
from tests.integration.conftest import metamatrix, results, run_text, verdicts
from tests.integration.engines import EngineProcess

pytestmark = pytest.mark.slow

OLD, NEW = "4.57.6", "latest"
STACKS = (OLD, NEW)
AXES = """
axes:
  python: "3.11"
  torch: "2.13.0"
  diffusers: ["0.38.0", latest]
  transformers: ["4.57.6", latest]
  accelerate: latest
  pipeline: [sd15, sdxl, sd3, flux, pixart-sigma]
  checkpoint: [canonical, duplicated-tie, untied, twin-only, renamed, wrong-shape, swapped-component, wrong-header]
  load: [pretrained, single_file]
  offload: [none, model, sequential, disk]
  lifecycle: [single, two-generations, other-offload, move, unload-reload, shared-component, used-folder, save-load]
exclude:
  - when: diffusers == latest and transformers == 4.57.6
    reason: no such environment exists
  - when: diffusers == 0.38.0 and transformers == latest
    reason: two stacks are enough
selections:
  truth:
    - checkpoint == canonical and load == pretrained and lifecycle == single
    - pipeline in (sdxl, sd3) and checkpoint in (canonical, duplicated-tie) and load == single_file and offload == none and lifecycle == single
    - pipeline in (sd3, flux) and checkpoint in (duplicated-tie, untied, twin-only) and load == pretrained and offload == none and lifecycle == single
    - pipeline == sdxl and checkpoint in (renamed, wrong-shape, swapped-component, wrong-header) and offload == none and lifecycle == single
    - pipeline in (sd15, pixart-sigma) and checkpoint == canonical and load == pretrained and offload in (sequential, disk)
"""
Cell = dict[str, Any]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results in virtual environments."""
    return run_text(tmp_path_factory.mktemp("truth"), AXES, "--select", "truth")


def _of(found: dict[str, Any], transformers: str, **axes: str) -> Cell:
    cells = [
        cell
        for cell in found["cells"]
        if cell["requested"]["transformers"] == transformers
        and all(cell["axes"][axis] == value for axis, value in {"lifecycle": "single", **axes}.items())
    ]
    assert len(cells) == 1, f"{len(cells)} cells for {transformers}, {axes}"
    return cells[0]


def test_every_cell_has_an_answer(truth: dict[str, Any]) -> None:
    """Nothing is left open, and nothing is a fault of ours."""
    assert truth["run"]["no_answer_share"] == 0.0
    assert {cell["class"] for cell in truth["cells"]} <= {"good", "bad", "not applicable"}


@pytest.mark.parametrize("transformers", STACKS)
@pytest.mark.parametrize("offload", ["none", "model", "sequential", "disk"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_clean_pipelines_pass(truth: dict[str, Any], pipeline: str, offload: str, transformers: str) -> None:
    """No false alarm: tied embeddings, computed buffers and a root's own tensors survive every offload."""
    cell = _of(truth, transformers, pipeline=pipeline, checkpoint="canonical", load="pretrained", offload=offload)
    assert cell["verdict"] == "pass", cell["cause"]


def test_every_defect_is_caught_in_every_pipeline(truth: dict[str, Any]) -> None:
    """The whole catalogue, planted into each pipeline of each environment."""
    assert len(CONTROLS) >= 25
    for environment in truth["environments"]:
        planted = {(row["pipeline"], row["id"]) for row in environment["controls"]}
        assert planted == {(pipeline, control) for pipeline in PIPELINES for control in CONTROLS}
        assert [row for row in environment["controls"] if not row["caught"]] == []
        assert environment["drift"] == ""


def test_sd3_single_file_leaves_t5_in_training_mode_with_transformers_4(truth: dict[str, Any]) -> None:
    """Right weights, and dropout at work: diffusers fills the T5 of a single file and never calls eval()."""
    for checkpoint in ("canonical", "duplicated-tie"):
        cell = _of(truth, OLD, pipeline="sd3", checkpoint=checkpoint, load="single_file", offload="none")
        assert (cell["verdict"], cell["stage"]) == ("bad-output", "load")
        assert [(row["module"], row["state"]) for row in cell["tensors"]] == [("text_encoder_3", "training")]


def test_sd3_single_file_loses_the_tie_of_t5_with_transformers_5(truth: dict[str, Any]) -> None:
    """A file that stores the tied embedding once leaves its second name on meta; one that stores both does not."""
    cell = _of(truth, NEW, pipeline="sd3", checkpoint="canonical", load="single_file", offload="none")
    assert (cell["verdict"], cell["stage"]) == ("orphan-meta", "load")
    assert [(row["module"], row["name"]) for row in cell["tensors"]] == [
        ("text_encoder_3", "encoder.embed_tokens.weight")
    ]
    twice = _of(truth, NEW, pipeline="sd3", checkpoint="duplicated-tie", load="single_file", offload="none")
    assert twice["verdict"] != "orphan-meta"


def test_a_tie_of_t5_is_kept_by_transformers_4_and_not_by_5(truth: dict[str, Any]) -> None:
    """Two names with different numbers: 4 ties them at load, 5 takes both as they are stored."""
    for pipeline, part in (("sd3", "text_encoder_3"), ("flux", "text_encoder_2")):
        axes = {"pipeline": pipeline, "checkpoint": "untied", "load": "pretrained", "offload": "none"}
        assert _of(truth, OLD, **axes)["verdict"] == "pass"
        cell = _of(truth, NEW, **axes)
        assert cell["verdict"] == "corrupt-weights"
        assert {row["module"] for row in cell["tensors"]} == {part}
        assert "untied" in {row["state"] for row in cell["tensors"]}


@pytest.mark.parametrize("transformers", STACKS)
def test_both_published_layouts_of_t5_load_from_a_folder(truth: dict[str, Any], transformers: str) -> None:
    """Stored once or twice, the same weights."""
    for pipeline in ("sd3", "flux"):
        cell = _of(
            truth, transformers, pipeline=pipeline, checkpoint="duplicated-tie", load="pretrained", offload="none"
        )
        assert cell["verdict"] == "pass", cell["cause"]


@pytest.mark.parametrize("transformers", STACKS)
def test_damaged_files_are_refused_or_found(truth: dict[str, Any], transformers: str) -> None:
    """A header that lies is refused; a renamed key leaves an orphan; weights of another component are never a pass."""
    for load in ("pretrained", "single_file"):
        axes = {"pipeline": "sdxl", "load": load, "offload": "none"}
        assert _of(truth, transformers, checkpoint="wrong-header", **axes)["verdict"] == "refused"
        for checkpoint in ("renamed", "wrong-shape", "swapped-component"):
            cell = _of(truth, transformers, checkpoint=checkpoint, **axes)
            assert cell["verdict"] in ("refused", "orphan-meta", "corrupt-weights"), cell["cause"]
    renamed = _of(truth, transformers, pipeline="sdxl", checkpoint="renamed", load="pretrained", offload="none")
    assert [row["name"] for row in renamed["tensors"]] == ["mid_block.resnets.0.conv1.weight"]


@pytest.mark.parametrize("transformers", STACKS)
@pytest.mark.parametrize("pipeline", ["sd15", "pixart-sigma"])
@pytest.mark.parametrize("offload", ["sequential", "disk"])
def test_lifecycles(truth: dict[str, Any], pipeline: str, offload: str, transformers: str) -> None:
    """What survives hooks passes; to move or save what is on meta is an error; a used folder gives stale weights."""

    def cell(lifecycle: str) -> Cell:
        axes = {"pipeline": pipeline, "checkpoint": "canonical", "load": "pretrained", "offload": offload}
        return _of(truth, transformers, **axes, lifecycle=lifecycle)

    for lifecycle in ("two-generations", "other-offload", "unload-reload", "shared-component"):
        assert cell(lifecycle)["verdict"] == "pass", cell(lifecycle)["cause"]
    for lifecycle in ("move", "save-load"):
        found = cell(lifecycle)
        assert (found["verdict"], found["stage"]) == ("offload-error", "lifecycle")
        assert "Cannot copy out of meta tensor; no data!" in found["cause"]
    used = cell("used-folder")
    expected = ("corrupt-weights", "offload") if offload == "disk" else ("unsupported", "offload")
    assert (used["verdict"], used["stage"]) == expected


def test_a_failure_has_one_signature_in_both_stacks(truth: dict[str, Any]) -> None:
    """The same failure in two environments is one; different failures are told apart."""
    signatures: dict[str, set[str]] = {}
    for lifecycle, offload in (("move", "sequential"), ("save-load", "sequential"), ("used-folder", "disk")):
        for transformers in STACKS:
            axes = {"checkpoint": "canonical", "load": "pretrained", "offload": offload, "lifecycle": lifecycle}
            found = _of(truth, transformers, pipeline="sd15", **axes)
            signatures.setdefault(lifecycle, set()).add(found["signature"])
    assert [len(found) for found in signatures.values()] == [1, 1, 1]
    assert len(set().union(*signatures.values())) == 3


def test_another_order_one_job_and_a_second_time_change_nothing(truth: dict[str, Any], tmp_path: Path) -> None:
    """Lifecycles and single files, shuffled, one at a time, in a run of their own."""
    found = run_text(
        tmp_path,
        AXES,
        "--select",
        "truth and pipeline == sd3 and transformers == latest",
        "--shuffle",
        "7",
        "--jobs",
        "1",
    )
    again = verdicts(found)
    assert len(again) >= 8
    assert again == {subject: verdict for subject, verdict in verdicts(truth).items() if subject in again}


@pytest.mark.docker
def test_containers_say_the_same(truth: dict[str, Any], engine: EngineProcess, tmp_path: Path) -> None:
    """The same verdicts, stages and signatures in containers, for every pipeline."""
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(AXES, encoding="utf-8")
    folder = tmp_path / "run"
    select = "truth and transformers == latest and pipeline in (sd3, pixart-sigma)"
    done = metamatrix(
        "run", "--matrix", str(matrix), "--select", select, "--output", str(folder), env=engine.variables()
    )
    assert done.status == 0, done.stderr
    said = lambda cell: (cell["verdict"], cell["stage"], cell["signature"])  # noqa: E731
    expected = {cell["subject"]: said(cell) for cell in truth["cells"]}
    found = {cell["subject"]: said(cell) for cell in results(folder)["cells"]}
    assert len(found) >= 20
    assert found == {subject: expected[subject] for subject in found}
