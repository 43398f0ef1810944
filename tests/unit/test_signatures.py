"""Signatures: the same failure has one id on every machine and in every environment, two failures have two."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.results.outcome import judge
from runner.results.signature import normalised, signature
from tests.strategies import attempt, cell, exception

FAILURES = (
    ("AttributeError", "'CLIPTextModel' object has no attribute 'text_model'"),
    ("AttributeError", "'NoneType' object has no attribute 'type'"),
    ("AttributeError", "module torch has no attribute xpu"),
    ("ImportError", "cannot import name 'cached_download' from 'huggingface_hub' ({path}/__init__.py)"),
    ("ImportError", "cannot import name 'FLAX_WEIGHTS_NAME' from 'transformers.utils' ({path}/utils/__init__.py)"),
    ("NotImplementedError", "Cannot copy out of meta tensor; no data!"),
    ("OSError", "Error no file named model.safetensors found in directory {path}"),
    ("RuntimeError", "Tensor on device meta is not on the expected device cpu!"),
    ("RuntimeError", "Error(s) in loading state_dict for {name}: size mismatch: [{number}, 16] from checkpoint"),
    ("ValueError", "Cannot load <class 'UNet'> from {path} because the following keys are missing: \n {name}."),
    ("SafetensorError", "Error while deserializing header: header too large at {address}"),
)
"""Real errors, with what differs from machine to machine taken out."""

paths = st.lists(st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True), min_size=1, max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)
names = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), min_size=3, max_size=6).map(".".join)
machines = st.fixed_dictionaries(
    {
        "path": paths,
        "name": names,
        "number": st.integers(0, 10**9).map(str),
        "address": st.integers(0, 2**64 - 1).map(hex),
    }
)


def _id(kind: str, message: str, stage: str = "load", **more: Any) -> str:
    return judge(attempt(cell(), {stage: [{**exception(kind, message), **more}]})).signature


@given(st.sampled_from(FAILURES), machines, machines)
def test_what_differs_from_machine_to_machine_does_not_matter(
    failure: tuple[str, str], here: dict[str, str], there: dict[str, str]
) -> None:
    """Paths, tensor names, numbers and addresses may be anything: the id stays."""
    kind, message = failure
    assert _id(kind, message.format(**here)) == _id(kind, message.format(**there))


@given(machines)
def test_different_failures_have_different_ids(here: dict[str, str]) -> None:
    """All of them at one stage, on one machine."""
    assert len({_id(kind, message.format(**here)) for kind, message in FAILURES}) == len(FAILURES)


@given(st.text())
def test_to_normalise_twice_changes_nothing(text: str) -> None:
    """Any text has a normal form, and that is its own."""
    once = normalised(text)
    assert normalised(once) == once or len(once) == 1000


def test_the_deepest_cause_decides() -> None:
    """Wrappers say where it was noticed, the deepest cause what happened."""
    body = {"type": "RuntimeError", "message": "Failed to import diffusers.pipelines.flux because of the following"}
    cause = {"cause_type": "ImportError", "cause_message": "cannot import name 'x' from 'y'", "traceback": ""}
    wrapped = {"kind": "exception", "text": "t", "exception": {**body, **cause}}
    plain = exception("ImportError", "cannot import name 'x' from 'y'")
    assert (
        judge(attempt(cell(), {"import": [wrapped]})).signature == judge(attempt(cell(), {"import": [plain]})).signature
    )


def _tensors(*rows: tuple[str, str, str, str], whole: tuple[str, ...] = ()) -> str:
    found = [
        {"module": module, "name": f"{module}.{index}", "kind": kind, "state": state, "shape": [1], "detail": detail}
        for index, (module, kind, state, detail) in enumerate(rows)
    ]
    finding = {"kind": "orphan", "text": "t", "tensors": found, "whole": list(whole)}
    return judge(attempt(cell(), {"load": [finding]})).signature


LOST = ("unet", "parameter", "orphan", "on meta; no hook holds it")


def test_tensors_are_told_by_what_is_wrong_with_them() -> None:
    """One lost key or three are one failure; all of them, another component, a buffer or a lost tie are others."""
    assert _tensors(LOST) == _tensors(LOST, LOST, LOST)
    others = {
        _tensors(LOST),
        _tensors(LOST, whole=("unet",)),
        _tensors(("vae", *LOST[1:])),
        _tensors(("unet", "buffer", *LOST[2:])),
        _tensors((*LOST[:3], "on meta; no hook holds it; its tie is lost")),
    }
    assert len(others) == 5


def test_what_only_versions_change_is_not_the_failure() -> None:
    """Whether a buffer is persistent, and whether a hook holds a second copy of what is wrong."""
    assert _tensors(("unet", "buffer", *LOST[2:])) == _tensors(("unet", "non-persistent-buffer", *LOST[2:]))
    assert _tensors(LOST) == _tensors(LOST, ("unet", "hook", "orphan", LOST[3]))
    assert _tensors(("unet", "hook", "orphan", LOST[3])) != _tensors(LOST)


@pytest.mark.parametrize("doing", ["pipeline.to(cpu)", "save_pretrained(folder)"])
def test_a_lifecycle_says_what_it_was_doing(doing: str) -> None:
    """The same message from two steps of a lifecycle is two failures."""
    message = "Cannot copy out of meta tensor; no data!"
    found = _id("NotImplementedError", message, "lifecycle", during="offload", doing=doing)
    assert found != _id("NotImplementedError", message, "lifecycle", during="offload", doing="release")
    assert found != signature("offload-error", "offload", message)
