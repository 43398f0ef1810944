"""The guard, on real modules of every stack of the quick selection: what is planted is what is found."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.checkpoints import files
from runner.isolation.venv import default_store
from tests.integration.conftest import ROOT

pytestmark = pytest.mark.slow

EXPECTED: dict[str, tuple[str, str]] = {
    "disk_file_gone": ("orphan", "unet.conv_in.weight"),
    "disk_of_another": ("corrupt", "unet.conv_in.weight"),
    "hook_of_another_shape": ("orphan", "unet.conv_in.weight"),
    "hook_with_meta_value": ("orphan", "unet.conv_in.weight"),
    "dangling": ("orphan", "unet.conv_in.weight"),
    "attribute_on_meta": ("orphan", "unet.conv_in.table[a][0]"),
    "buffer_on_meta": ("orphan", "position_ids"),
    "buffer_wrong": ("corrupt", "position_ids"),
    "attribute_unknown": ("harness", "unet.conv_in.scale"),
    "parameter_unknown": ("corrupt", "unet.conv_in.extra"),
    "component_gone": ("corrupt", "vae.vae"),
    "parameter_gone": ("corrupt", "vae.quant_conv.bias"),
    "not_a_number": ("corrupt", "unet.conv_in.weight"),
    "other_dtype": ("corrupt", "unet.conv_in.weight"),
    "storage_freed": ("orphan", "vae.encoder.conv_in.weight"),
    "wrapper_over_meta": ("orphan", "vae.encoder.conv_in.weight"),
    "wrapper_over_zeros": ("harness", "vae.encoder.conv_in.weight"),
    "second_hook": ("corrupt", "unet.conv_in.weight"),
    "hook_of_wrong_values": ("corrupt", "unet.conv_in.weight"),
    "hook_without_map": ("orphan", "unet.conv_in.weight"),
    "buffer_that_no_hook_asks_for": ("orphan", "vae.encoder.conv_in.extra"),
    "module_in_a_list": ("orphan", "vae.encoder.helpers[0].weight"),
    "module_in_an_object": ("orphan", "vae.encoder.helper.layer.weight"),
    "processor_on_meta": ("orphan", "processor.scale"),
    "deep_on_meta": ("orphan", "unet.conv_in.table[0][0][0][0][0]"),
    "shadowed": ("corrupt", "vae.encoder.conv_in.weight"),
    "parameter_as_attribute": ("corrupt", "vae.encoder.conv_in.weight"),
    "negated": ("corrupt", "vae.encoder.conv_in.weight"),
}
"""Case -> the one kind of finding, and the name of the tensor that it must hold."""

BACKED = {"clean": 0, "sequential": 368, "placed": 124, "disk": 208}
"""Sound cases -> how many tensors are on meta with their data behind a hook."""


@pytest.fixture(scope="module")
def answers(quick: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Environment id -> what the guard said of each case there."""
    checkpoint = files.write("sd15", "canonical", tmp_path_factory.mktemp("checkpoint")).path / "folder"
    found = {}
    for environment in quick["environments"]:
        python = default_store() / "environments" / environment["id"] / "bin" / "python"
        scratch = tmp_path_factory.mktemp("scratch")
        done = subprocess.run(
            [python, "-B", Path(__file__).with_name("guard_cases.py"), checkpoint, scratch],
            env={"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HOME": str(scratch)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found[environment["id"]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_sound_modules_give_no_finding(answers: dict[str, dict[str, Any]]) -> None:
    """Clean and well-offloaded modules: every tensor real or backed, and nothing to say, where backed is allowed."""
    for said in answers.values():
        for case, backed in BACKED.items():
            assert said[case]["allowed"] == {}, case
            assert said[case]["counts"]["backed"] == backed
            assert said[case]["counts"]["compared"] == 369


def test_backed_tensors_are_unexpected_where_a_mode_leaves_none(answers: dict[str, dict[str, Any]]) -> None:
    """The same modules are `unexpected-meta` at a stage that allows no backed tensor."""
    for said in answers.values():
        for case, backed in BACKED.items():
            assert set(said[case]["forbidden"]) == ({"unexpected-meta"} if backed else set())


@pytest.mark.parametrize("case", EXPECTED)
def test_each_defect_is_found_with_its_kind_and_name(answers: dict[str, dict[str, Any]], case: str) -> None:
    """One kind of finding, and the planted tensor is named, in every stack."""
    kind, name = EXPECTED[case]
    for said in answers.values():
        found = said[case]["allowed"]
        assert set(found) == {kind}
        assert any(tensor.endswith(name) for tensor in found[kind]), found


def test_a_scheduler_is_looked_through_as_well(answers: dict[str, dict[str, Any]]) -> None:
    """It is no module, and a table of it on meta, or wrong, is found all the same."""
    for said in answers.values():
        assert said["schedulers"] == {
            "clean": {},
            "on_meta": {"orphan": ["scheduler.alphas_cumprod"]},
            "not_a_number": {"corrupt": ["scheduler.alphas_cumprod"]},
        }
