"""Would the guard notice? Every defect of the catalogue, planted into a copy of a pipeline that loaded well.

An environment whose guard misses one of them publishes no `pass`.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, NamedTuple

from runner.probe import defects, hook_defects, words
from runner.probe.expected import Weights
from runner.probe.guard import inspect_components
from runner.probe.patient import Patient

__all__ = ["CONTROLS", "Control", "run"]


class Control(NamedTuple):
    """`plant(patient)` does the harm and names it; `expected` is the finding's kind.

    `backed` says whether the guard is to allow tensors behind hooks, as under sequential offload.
    """

    expected: str
    plant: Callable[[Patient], str]
    backed: bool = True


def _scaled(tensor: Any) -> Any:
    return tensor * 1.0001


def _flat(tensor: Any) -> Any:
    return tensor.flatten()


def _zeros(tensor: Any) -> Any:
    return tensor * 0


def _holed(tensor: Any) -> Any:
    copied = tensor.clone()
    copied.view(-1)[0] = float("nan")
    return copied


def _negated(tensor: Any) -> Any:
    import torch

    return torch._neg_view(tensor)


CONTROLS: Dict[str, Control] = {
    "parameter-on-meta": Control(words.ORPHAN, defects.on_meta),
    "buffer-on-meta": Control(words.ORPHAN, defects.buffer_on_meta),
    "attribute-on-meta": Control(words.ORPHAN, defects.attribute_on_meta),
    "freed-storage": Control(words.ORPHAN, defects.freed_storage),
    "hidden-layer": Control(words.ORPHAN, defects.hidden_layer),
    "layer-in-an-object": Control(words.ORPHAN, defects.layer_in_an_object),
    "subclass-over-meta": Control(words.ORPHAN, defects.subclass_over_meta),
    "quantised-state-on-meta": Control(words.ORPHAN, defects.quantised_state),
    "adapter-on-meta": Control(words.ORPHAN, defects.adapter_on_meta),
    "hook-without-data": Control(words.ORPHAN, hook_defects.empty_hook),
    "hook-data-on-meta": Control(words.ORPHAN, hook_defects.offloaded(hook_defects.hold_meta)),
    "hook-data-of-another-shape": Control(words.ORPHAN, hook_defects.offloaded(hook_defects.hold_another_shape)),
    "hook-data-wrong": Control(words.CORRUPT, hook_defects.offloaded(hook_defects.hold_zeros)),
    "dangling-hook": Control(words.ORPHAN, hook_defects.hooked(lambda owner: {})),
    "hook-without-map": Control(words.ORPHAN, hook_defects.hooked(lambda owner: None)),
    "hook-of-wrong-values": Control(words.CORRUPT, hook_defects.hooked(hook_defects.zeros_of)),
    "second-hook": Control(words.CORRUPT, hook_defects.second_hook),
    "unasked-buffer": Control(words.ORPHAN, hook_defects.unasked_buffer),
    "half-restored": Control(words.UNEXPECTED_META, hook_defects.half_restored, backed=False),
    "offload-file-gone": Control(words.ORPHAN, hook_defects.on_disk(os.unlink)),
    "offload-file-of-another": Control(words.CORRUPT, hook_defects.on_disk(hook_defects.overwrite)),
    "offload-file-truncated": Control(words.ORPHAN, hook_defects.on_disk(hook_defects.truncate)),
    "zeroed-tensor": Control(words.CORRUPT, defects.changed("text_encoder", _zeros)),
    "swapped-tensors": Control(words.CORRUPT, defects.swapped),
    "scaled-tensor": Control(words.CORRUPT, defects.changed("", _scaled)),
    "not-a-number": Control(words.CORRUPT, defects.changed("", _holed)),
    "other-dtype": Control(words.CORRUPT, defects.changed("", defects.other_dtype)),
    "wrong-shape": Control(words.CORRUPT, defects.changed("", _flat)),
    "negated-view": Control(words.CORRUPT, defects.changed("vae", _negated)),
    "eight-bit-buffer": Control(words.CORRUPT, defects.kept_as_buffer),
    "missing-parameter": Control(words.CORRUPT, defects.missing),
    "renamed-parameter": Control(words.CORRUPT, defects.renamed),
    "parameter-as-attribute": Control(words.CORRUPT, defects.as_attribute),
    "shadowed-parameter": Control(words.CORRUPT, defects.shadowed),
    "uninitialised-buffer": Control(words.CORRUPT, defects.uninitialised_buffer),
    "untied-pair": Control(words.CORRUPT, defects.untied),
    "missing-component": Control(words.CORRUPT, defects.component_gone),
    "component-of-another": Control(words.CORRUPT, defects.component_of_another),
    "patched-module": Control(words.CORRUPT, defects.patched_module),
    "training-mode": Control(words.BAD_OUTPUT, defects.training),
}


def run(pristine: Dict[str, Any], weights: Weights) -> List[Dict[str, Any]]:
    """Plant each defect in a copy; say for each whether the guard found it, with kind and name."""
    return [_one(name, control, pristine, weights) for name, control in CONTROLS.items()]


def _one(name: str, control: Control, pristine: Dict[str, Any], weights: Weights) -> Dict[str, Any]:
    import torch

    patient = Patient(pristine, weights)
    register = torch.nn.Module.register_parameter
    try:
        where = control.plant(patient)
        found = inspect_components(patient.components, patient.weights, control.backed).findings
    finally:
        torch.nn.Module.register_parameter = register
    caught = any(
        finding["kind"] == control.expected
        and any("{}.{}".format(row["module"], row["name"]).startswith(where) for row in finding.get("tensors", []))
        for finding in found
    )
    got = [finding["kind"] for finding in found]
    return {"id": name, "expected": control.expected, "got": got, "where": where, "caught": caught}
