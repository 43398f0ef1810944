"""The parts of the probe that need no library: frames, expected values."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.requests import Requests
from runner.isolation.archive import write_probe
from runner.probe import failure
from runner.probe.expected import Weights, aliases
from runner.probe.frames import LIMIT, FrameError, Frames, encode
from tests.strategies import messages


def test_a_full_disk_is_no_fault_of_a_library() -> None:
    """Wherever it stands in the chain, and also where only its text is left."""
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert failure.is_of_the_machine(wrapped)
    assert failure.is_of_the_machine(RuntimeError("Error: I/O error: No space left on device (os error 28)"))
    assert not failure.is_of_the_machine(FileNotFoundError(errno.ENOENT, "no such file"))
    assert not failure.is_of_the_machine(ValueError("shape"))


@given(st.lists(messages, max_size=4), st.data())
def test_messages_survive_any_chunking(sent: list[dict[str, Any]], data: st.DataObject) -> None:
    """However the bytes arrive, the same messages come out, in order, and nothing is left over."""
    content = b"".join(encode(message) for message in sent)
    frames, received = Frames(), []
    while content:
        size = data.draw(st.integers(1, len(content)))
        received += list(frames.feed(content[:size]))
        content = content[size:]
    assert received == sent
    assert frames.pending == 0


@pytest.mark.parametrize("content", [struct.pack(">I", LIMIT + 1), encode({})[:4] + b"[]", struct.pack(">I", 1) + b"x"])
def test_nonsense_is_a_frame_error(content: bytes) -> None:
    """A length over the limit, a body that is no object, a body that is no JSON."""
    with pytest.raises(FrameError):
        list(Frames().feed(content))


def _weights(pipeline: str, folder: Path) -> Weights:
    requests = Requests(folder, str)
    return Weights(requests.pipelines([pipeline])[pipeline]["weights"])


def test_expected_values_are_found_under_both_names_of_a_tie(tmp_path: Any) -> None:
    """T5 stores its embedding once; the module's second name leads to the same value."""
    weights = _weights("flux", tmp_path)
    shared = weights.find("text_encoder_2", "shared.weight")
    assert shared is not None
    assert weights.find("text_encoder_2", "encoder.embed_tokens.weight") == shared
    assert weights.find("text_encoder", "encoder.embed_tokens.weight") is None


def test_expected_values_are_found_under_both_names_of_clip(tmp_path: Any) -> None:
    """transformers 5.6 dropped a prefix; both names lead to the same value, unknown names to none."""
    weights = _weights("sd15", tmp_path)
    for name in ("text_model.final_layer_norm.weight", "final_layer_norm.weight"):
        found = weights.find("text_encoder", name)
        assert found is not None
        assert found[0] == "text_model.final_layer_norm.weight"
    assert weights.find("unet", "nothing") is None
    assert "text_model.embeddings.position_ids" not in weights.required("text_encoder")
    assert len(weights.required("unet")) == 208


@given(st.text(alphabet="abc._", min_size=1))
def test_aliases_know_each_other(name: str) -> None:
    """Each alias of a name has the name among its own aliases."""
    assert all(name in aliases(alias) for alias in aliases(name))


def test_the_archive_is_the_same_bytes_twice(tmp_path: Any) -> None:
    """The probe's archive depends on its sources only."""
    one, two = write_probe(tmp_path / "a"), write_probe(tmp_path / "b")
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_the_memory_limit_is_met_as_a_failed_allocation() -> None:
    """A child beyond its limit gets MemoryError, which counts as out of memory; its parent is not touched."""
    code = """
import errno
import os
from runner.probe import failure, limits
pid = os.fork()
if pid == 0:
    limits.apply({"memory_mb": 64, "disk_mb": 16}, os.getppid())
    try:
        bytearray(200 << 20)
    except MemoryError as error:
        os._exit(7 if failure.is_out_of_memory(RuntimeError()) is False and failure.is_out_of_memory(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
bytearray(200 << 20)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
