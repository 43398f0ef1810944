"""Checkpoints are the same bytes everywhere, small, and both layouts hold the same tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.checkpoints import damage, files, sd15
from runner.checkpoints.golden import golden_arrays, golden_path
from runner.checkpoints.tensors import read_safetensors, seeded, write_safetensors

DIGEST = "550b9cc2e1899261e943b328c5f8b296398d16df0a2d8dec9a2f91dbd4cee7cb"


def test_the_canonical_checkpoint_has_its_digest() -> None:
    """Any change of a byte is a change of every result and must be seen."""
    assert files.digest(files.contents("canonical")) == DIGEST
    assert json.loads(golden_path("sd15").read_text())["checkpoint"] == DIGEST


def test_each_form_is_under_a_megabyte() -> None:
    """The folder and the single file are each smaller than 1 MB."""
    content = files.contents("canonical")
    folder = sum(len(data) for path, data in content.items() if path.startswith("folder/"))
    assert folder < 1_000_000
    assert len(content["single.safetensors"]) < 1_000_000


def test_single_file_and_folder_hold_the_same_numbers() -> None:
    """Every tensor of the folder is in the single file under one name of its own, and nothing else is."""
    content = files.contents("canonical")
    single = read_safetensors(content["single.safetensors"])
    names = set()
    for component, named in sd15.tensors().items():
        for name, tensor in named.items():
            original, renamed = sd15.original(component, name, tensor)
            assert single[original].data == renamed.data
            names.add(original)
    assert names == set(single)


def test_no_two_tensors_are_equal() -> None:
    """A swap of two tensors can always be seen."""
    data = [tensor.data for named in sd15.tensors().values() for tensor in named.values()]
    assert len(data) == len(set(data))


@pytest.mark.parametrize("name", [name for name in damage.NAMES if name.startswith("missing-key")])
def test_a_missing_key_is_missing_once_in_both_layouts(name: str) -> None:
    """The damage takes exactly one tensor out of the folder and the same one out of the single file."""
    whole, damaged = files.contents("canonical"), files.contents(name)
    for path in whole:
        if path.endswith(".safetensors"):
            lost = set(read_safetensors(whole[path])) - set(read_safetensors(damaged[path]))
            component = path.split("/")[1] if path.startswith("folder/") else ""
            expected = 1 if component in ("", name.removeprefix("missing-key-")) else 0
            assert len(lost) == expected, path
    assert damage.missing(name) is not None


def test_a_truncated_file_is_no_whole_file() -> None:
    """What is cut off cannot be read as safetensors."""
    with pytest.raises(ValueError, match="beyond the end"):
        read_safetensors(files.contents("truncated")["single.safetensors"])


def test_untied_does_not_apply_and_says_why() -> None:
    """SD1.5 ties no tensors: the damage is refused with the reason, not made up."""
    assert "ties no two tensors" in str(damage.not_applicable("untied"))
    with pytest.raises(ValueError, match="ties no two tensors"):
        files.contents("untied")


def test_safetensors_round_trip() -> None:
    """What is written is what is read."""
    tensors = {"b": seeded("b", (2, 3)), "a": seeded("a", (4,), 1.0, 0.5)}
    assert read_safetensors(write_safetensors(tensors, {"format": "pt"})) == tensors


def test_a_checkpoint_is_written_once(tmp_path: Path) -> None:
    """Writing it again touches no file, and leaves no half-made folder."""
    first = files.write("canonical", tmp_path)
    times = {path: path.stat().st_mtime_ns for path in first.path.rglob("*")}
    assert files.write("canonical", tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in first.path.rglob("*")} == times
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_a_checkpoint_that_has_rotted_is_written_anew(tmp_path: Path) -> None:
    """What the guard compares with comes from the files: a changed byte, or a lost file, must not vouch for itself."""
    written = files.write("canonical", tmp_path).path
    weights = next((written / "folder" / "vae").glob("*.safetensors"))
    sound = weights.read_bytes()
    weights.write_bytes(sound[:-4] + b"\0\0\0\0")
    assert files.write("canonical", tmp_path).path == written
    assert weights.read_bytes() == sound
    weights.unlink()
    files.write("canonical", tmp_path)
    assert weights.read_bytes() == sound


def test_golden_arrays_are_there() -> None:
    """Image and component outputs are all stored."""
    arrays = golden_arrays("sd15")
    assert arrays is not None
    assert set(arrays) == {"image", "latents", "noise_pred", "prompt_embeds"}
    assert golden_arrays("nothing") is None
