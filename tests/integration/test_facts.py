"""What is known of the libraries must come out of a real run of the quick selection."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow

Cell = dict[str, Any]


def _cells(results: dict[str, Any], diffusers: str, transformers: str, **axes: str) -> list[Cell]:
    found = [
        cell
        for cell in results["cells"]
        if cell["requested"]["diffusers"] == diffusers
        and cell["requested"]["transformers"] == transformers
        and all(cell["axes"][axis] == value for axis, value in axes.items())
    ]
    assert found, f"no cell for diffusers {diffusers}, transformers {transformers}, {axes}"
    return found


ALL = [("0.32.2", "4.46.3"), ("0.38.0", "4.57.6"), ("0.38.0", "5.6.0"), ("latest", "latest")]


def test_every_cell_has_an_answer(quick: dict[str, Any]) -> None:
    """A complete run leaves no cell without a verdict, and none unanswered."""
    assert {cell["class"] for cell in quick["cells"]} <= {"good", "bad", "not applicable"}
    assert quick["run"]["no_answer_share"] == 0.0


def test_single_file_breaks_with_transformers_5_6_and_is_mended_later(quick: dict[str, Any]) -> None:
    """diffusers 0.38.0 with transformers 5.6 fails every SD1.5 single-file load; newer diffusers does not."""
    for cell in _cells(quick, "0.38.0", "5.6.0", checkpoint="canonical", load="single_file"):
        assert (cell["verdict"], cell["stage"]) == ("load-error", "load")
        assert "'CLIPTextModel' object has no attribute 'text_model'" in cell["cause"]
        assert cell["expected"]
    for cell in _cells(quick, "latest", "latest", checkpoint="canonical", load="single_file"):
        assert cell["verdict"] == "pass"
    for cell in _cells(quick, "0.38.0", "4.57.6", checkpoint="canonical", load="single_file", offload="none"):
        assert cell["verdict"] == "pass"


@pytest.mark.parametrize(("diffusers", "transformers"), ALL[2:])
def test_raw_clip_keys_leave_every_tensor_orphan(quick: dict[str, Any], diffusers: str, transformers: str) -> None:
    """Canonical CLIP keys given raw to transformers 5.6 and later: all 36 tensors of the text encoder are orphans."""
    for cell in _cells(quick, diffusers, transformers, checkpoint="canonical", load="empty_init-raw"):
        assert cell["verdict"] == "orphan-meta"
        assert cell["rebuilt"]
        assert len(cell["tensors"]) == 36
        assert {row["module"] for row in cell["tensors"]} == {"text_encoder"}


@pytest.mark.parametrize(("diffusers", "transformers"), ALL)
def test_remapped_clip_keys_pass(quick: dict[str, Any], diffusers: str, transformers: str) -> None:
    """The same load with its keys renamed to what the class wants passes everywhere."""
    for cell in _cells(
        quick, diffusers, transformers, checkpoint="canonical", load="empty_init-remapped", offload="sequential"
    ):
        assert cell["verdict"] == "pass"


@pytest.mark.parametrize(("diffusers", "transformers"), [ALL[0], ALL[1], ALL[3]])
def test_a_missing_text_encoder_key_stays_on_meta_in_a_single_file(
    quick: dict[str, Any], diffusers: str, transformers: str
) -> None:
    """One key missing from the text encoder of a single file stays on meta silently, in every version that loads it."""
    for cell in _cells(quick, diffusers, transformers, checkpoint="missing-key-text_encoder", load="single_file"):
        assert cell["verdict"] == "orphan-meta"
        assert [row["name"].removeprefix("text_model.") for row in cell["tensors"]] == [
            "encoder.layers.1.mlp.fc1.weight"
        ]


def test_a_missing_unet_key_is_refused_up_to_0_32_and_left_on_meta_later(quick: dict[str, Any]) -> None:
    """`from_pretrained` with one missing UNet key: refused by diffusers 0.32, left on meta from 0.33 on."""
    for cell in _cells(quick, *ALL[0], checkpoint="missing-key-unet", load="pretrained"):
        assert cell["verdict"] == "refused"
    for versions in ALL[1:]:
        for cell in _cells(quick, *versions, checkpoint="missing-key-unet", load="pretrained"):
            assert cell["verdict"] == "orphan-meta"
            assert [row["name"] for row in cell["tensors"]] == ["mid_block.resnets.0.conv1.weight"]


def test_a_missing_text_encoder_key_is_filled_with_random_numbers(quick: dict[str, Any]) -> None:
    """transformers 4.51 and later initialise a missing key at random: not on meta, and not the checkpoint's value."""
    for versions in ALL[1:]:
        for cell in _cells(quick, *versions, checkpoint="missing-key-text_encoder", load="pretrained"):
            assert cell["verdict"] == "corrupt-weights"


@pytest.mark.parametrize(("diffusers", "transformers"), ALL)
def test_a_truncated_file_is_never_loaded(quick: dict[str, Any], diffusers: str, transformers: str) -> None:
    """Half a download is rejected by every load that works at all."""
    for cell in _cells(quick, diffusers, transformers, checkpoint="truncated"):
        assert cell["verdict"] == "refused"


def test_bad_verdicts_have_a_cold_witness(quick: dict[str, Any]) -> None:
    """Each signature of a bad verdict was shown by a cold process, once per environment at least."""
    for environment in quick["environments"]:
        bad = [cell for cell in quick["cells"] if cell["environment"] == environment["id"] and cell["class"] == "bad"]
        for signature in {cell["signature"] for cell in bad}:
            modes = {row["mode"] for cell in bad if cell["signature"] == signature for row in cell["history"]}
            assert "cold" in modes, signature


def test_every_control_is_caught_in_every_environment(quick: dict[str, Any]) -> None:
    """All planted defects are found, with the right kind, in every environment."""
    for environment in quick["environments"]:
        assert len(environment["controls"]) >= 25
        assert all(control["caught"] for control in environment["controls"]), environment["controls"]


def test_no_environment_drifts_from_the_golden_arrays(quick: dict[str, Any]) -> None:
    """The reference of every environment agrees with the stored arrays."""
    assert [environment["drift"] for environment in quick["environments"]] == ["", "", "", ""]
