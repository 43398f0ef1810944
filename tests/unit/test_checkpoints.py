"""Checkpoints are the same bytes everywhere, small, and both layouts hold the same tensors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from runner.checkpoints import damage, files
from runner.checkpoints.golden import golden_arrays, golden_path
from runner.checkpoints.pipelines import PIPELINES
from runner.checkpoints.tensors import Tensor, identity, read_safetensors, seeded, write_safetensors

DIGESTS = {
    "sd15": "550b9cc2e1899261e943b328c5f8b296398d16df0a2d8dec9a2f91dbd4cee7cb",
    "sdxl": "e2ed6993dc96e8591f538645d61f0e18b9156ea08e2c23a28c196f90157880c8",
    "sd3": "e82c2d5e14e9729ad8d44b77db13cfc2a05b68729470a7e0d3c2b858968034ed",
    "flux": "435283e605d0311efd008f7796da2cc570f34f6d61a2096685d28174dd5f932b",
    "pixart-sigma": "8b6001fd659047eacc53a28e550b739cb08b9c7e63c25d8f9820dcdbc7c5df7e",
}
WITH_SINGLE = [name for name, pipeline in PIPELINES.items() if not pipeline.no_single]
DAMAGES = [(name, kind) for name in PIPELINES for kind in damage.NAMES if not damage.not_applicable(kind, name)]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_canonical_checkpoint_has_its_digest(pipeline: str) -> None:
    """Any change of a byte is a change of every result and must be seen; the golden arrays belong to these bytes."""
    assert files.digest(files.contents(pipeline, "canonical")) == DIGESTS[pipeline]
    assert json.loads(golden_path(pipeline).read_text())["checkpoint"] == DIGESTS[pipeline]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_each_form_is_under_a_megabyte(pipeline: str) -> None:
    """The folder and the single file are each smaller than 1 MB."""
    content = files.contents(pipeline, "canonical")
    folder = sum(len(data) for path, data in content.items() if path.startswith("folder/"))
    assert folder < 1_000_000
    assert len(content.get("single.safetensors", b"")) < 1_000_000


@pytest.mark.parametrize("pipeline", WITH_SINGLE)
def test_single_file_and_folder_hold_the_same_numbers(pipeline: str) -> None:
    """As many numbers, the same ones part by part, whatever is joined, transposed or swapped; names do not collide."""
    single = read_safetensors(files.contents(pipeline, "canonical")["single.safetensors"])
    found = 0
    for part in PIPELINES[pipeline].parts.values():
        assert part.original is not None
        original = part.original(part.tensors)
        assert set(original) <= set(single)
        found += len(original)
        # Readers of SD3's file take the identity for the one projection that it leaves out.
        kept = {name: t for name, t in part.tensors.items() if t.data != identity(32).data}
        assert Counter(n for t in original.values() for n in _numbers(t)) == Counter(
            n for t in kept.values() for n in _numbers(t)
        )
    assert found == len(single)


def _numbers(tensor: Tensor) -> list[bytes]:
    return [tensor.data[at : at + 4] for at in range(0, len(tensor.data), 4)]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_no_two_tensors_are_equal(pipeline: str) -> None:
    """A swap of two tensors can always be seen; only what classes compute is the same everywhere."""
    data = [
        tensor.data
        for part in PIPELINES[pipeline].parts.values()
        for name, tensor in part.tensors.items()
        if name not in part.derived
    ]
    assert len(data) == len(set(data))


def test_no_two_pipelines_share_a_tensor() -> None:
    """A component of another pipeline can always be told from the right one."""
    seen = [
        {
            tensor.data
            for part in pipeline.parts.values()
            for name, tensor in part.tensors.items()
            if name not in part.derived
        }
        for pipeline in PIPELINES.values()
    ]
    assert len(set().union(*seen)) == sum(len(data) for data in seen)


@pytest.mark.parametrize(("pipeline", "name"), [pair for pair in DAMAGES if pair[1].startswith("missing-key")])
def test_a_missing_key_is_missing_once_in_both_layouts(pipeline: str, name: str) -> None:
    """The damage takes exactly one tensor out of the folder and the same one out of the single file, if that has it."""
    whole, damaged = files.contents(pipeline, "canonical"), files.contents(pipeline, name)
    part = name.removeprefix("missing-key-")
    for path in whole:
        if path.endswith(".safetensors"):
            lost = set(read_safetensors(whole[path])) - set(read_safetensors(damaged[path]))
            expected = 1 if path in ("single.safetensors", files.path(pipeline, part)) else 0
            assert len(lost) == expected, path


@pytest.mark.parametrize(("pipeline", "name"), [pair for pair in DAMAGES if pair[1] != "canonical"])
def test_every_other_checkpoint_differs_from_the_canonical_one(pipeline: str, name: str) -> None:
    """A damage that changes nothing would prove nothing."""
    assert files.contents(pipeline, name) != files.contents(pipeline, "canonical")


def test_a_renamed_key_is_lost_and_another_found() -> None:
    """The same numbers under a name that no class knows."""
    path = files.path("sd15", "unet")
    whole, renamed = (read_safetensors(files.contents("sd15", name)[path]) for name in ("canonical", "renamed"))
    (lost,), (found,) = set(whole) - set(renamed), set(renamed) - set(whole)
    assert whole[lost] == renamed[found]


def test_ties_are_stored_once_twice_or_under_the_twin() -> None:
    """The layouts in which T5 is published, the damaged one, and the one without the name that ties begin with."""
    path = files.path("flux", "text_encoder_2")
    layouts = {
        name: read_safetensors(files.contents("flux", name)[path])
        for name in ("canonical", "duplicated-tie", "untied", "twin-only")
    }
    shared, twin = "shared.weight", "encoder.embed_tokens.weight"
    assert twin not in layouts["canonical"]
    assert layouts["duplicated-tie"][twin] == layouts["duplicated-tie"][shared] == layouts["canonical"][shared]
    assert layouts["untied"][twin] != layouts["untied"][shared]
    assert shared not in layouts["twin-only"]
    assert layouts["twin-only"][twin] == layouts["canonical"][shared]


@pytest.mark.parametrize(
    ("name", "reason"), [("truncated", "beyond the end"), ("wrong-header", "longer than the file")]
)
def test_a_spoiled_file_is_no_whole_file(name: str, reason: str) -> None:
    """What is cut off, or lies about its header, cannot be read as safetensors."""
    with pytest.raises(ValueError, match=reason):
        read_safetensors(files.contents("sd15", name)["single.safetensors"])


def test_what_does_not_apply_says_why() -> None:
    """SD1.5 ties no tensors and has no third encoder: the damage is refused with the reason, not made up."""
    for name, reason in (("untied", "ties no two tensors"), ("missing-key-text_encoder_3", "has no text_encoder_3")):
        assert reason in str(damage.not_applicable(name, "sd15"))
        with pytest.raises(ValueError, match=reason):
            files.contents("sd15", name)
    assert damage.not_applicable("untied", "sd3") is None


def test_only_sound_checkpoints_must_not_be_refused() -> None:
    """Both layouts of a tie are published; everything else is damage."""
    assert [name for name in damage.NAMES if not damage.damaged(name)] == ["canonical", "duplicated-tie"]


def test_safetensors_round_trip() -> None:
    """What is written is what is read."""
    tensors = {"b": seeded("b", (2, 3)), "a": seeded("a", (4,), 1.0, 0.5)}
    assert read_safetensors(write_safetensors(tensors, {"format": "pt"})) == tensors


def test_a_checkpoint_is_written_once(tmp_path: Path) -> None:
    """Writing it again touches no file, and leaves no half-made folder."""
    first = files.write("sd15", "canonical", tmp_path)
    times = {path: path.stat().st_mtime_ns for path in first.path.rglob("*")}
    assert files.write("sd15", "canonical", tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in first.path.rglob("*")} == times
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_a_checkpoint_that_has_rotted_is_written_anew(tmp_path: Path) -> None:
    """What the guard compares with comes from the files: a changed byte, or a lost file, must not vouch for itself."""
    written = files.write("sd15", "canonical", tmp_path).path
    weights = next((written / "folder" / "vae").glob("*.safetensors"))
    sound = weights.read_bytes()
    weights.write_bytes(sound[:-4] + b"\0\0\0\0")
    assert files.write("sd15", "canonical", tmp_path).path == written
    assert weights.read_bytes() == sound
    weights.unlink()
    files.write("sd15", "canonical", tmp_path)
    assert weights.read_bytes() == sound


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_golden_arrays_are_there(pipeline: str) -> None:
    """Image, latents, noise and what each text encoder gives are all stored."""
    arrays = golden_arrays(pipeline)
    assert arrays is not None
    encoders = [name for name in PIPELINES[pipeline].parts if name.startswith("text_encoder")]
    expected = {name.replace("text_encoder", "prompt_embeds") for name in encoders}
    assert set(arrays) == {"image", "latents", "noise_pred", *expected}
    assert golden_arrays("nothing") is None
