"""Run inside an environment: defects planted by hand, and what the guard says of each. Prints JSON.

ENVIRONMENT/bin/python guard_cases.py CHECKPOINT_FOLDER SCRATCH
"""

from __future__ import annotations

import copy
import glob
import json
import os
import sys
from typing import Any, Callable, Dict

import accelerate
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextModel

from runner.probe.expected import Weights
from runner.probe.guard import inspect_components

FOLDER, SCRATCH = sys.argv[1:3]
CPU = torch.device("cpu")
CLASSES = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
PRISTINE = {name: kind.from_pretrained(os.path.join(FOLDER, name)) for name, kind in CLASSES.items()}
WEIGHTS = Weights(
    {
        "files": {name: glob.glob(os.path.join(FOLDER, name, "*.safetensors"))[0] for name in CLASSES},
        "derived": {"text_encoder": {"text_model.embeddings.position_ids": 77}},
    }
)
Parts = Dict[str, Any]


def embeddings(parts: Parts) -> Any:
    return next(m for n, m in parts["text_encoder"].named_modules() if n.endswith("embeddings"))


def clean(parts: Parts) -> None:
    """Nothing is done."""


def sequential(parts: Parts) -> None:
    for module in parts.values():
        accelerate.cpu_offload(module, CPU, offload_buffers=len(module._parameters) > 0)


def placed(parts: Parts) -> None:
    """One hook at the root of a submodule speaks for all below it."""
    accelerate.cpu_offload(parts["vae"], CPU, preload_module_classes=["Encoder", "Decoder"])


def disk(parts: Parts) -> str:
    folder = os.path.join(SCRATCH, str(len(os.listdir(SCRATCH))))
    accelerate.disk_offload(parts["unet"], folder, CPU)
    return folder


def disk_file_gone(parts: Parts) -> None:
    os.unlink(os.path.join(disk(parts), "conv_in.weight.dat"))


def disk_of_another(parts: Parts) -> None:
    """The folder holds other numbers of the same shape."""
    path = os.path.join(disk(parts), "conv_in.weight.dat")
    with open(path, "r+b") as file:
        file.write(b"\1\2\3\4")


def hook_of_another_shape(parts: Parts) -> None:
    sequential(parts)
    name = "conv_in.weight"
    parts["unet"].conv_in._hf_hook.weights_map.dataset[name] = torch.zeros(3)


def hook_with_meta_value(parts: Parts) -> None:
    sequential(parts)
    held = parts["unet"].conv_in._hf_hook.weights_map.dataset
    held["conv_in.weight"] = held["conv_in.weight"].to("meta")


def dangling(parts: Parts) -> None:
    """Everything is real now, and the next forward will fail."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module

    hook = AlignDevicesHook(execution_device=CPU, offload=True, weights_map={})
    add_hook_to_module(parts["unet"].conv_in, hook)
    weight = PRISTINE["unet"].conv_in
    parts["unet"].conv_in._parameters["weight"] = torch.nn.Parameter(weight.weight.detach().clone())
    parts["unet"].conv_in._parameters["bias"] = torch.nn.Parameter(weight.bias.detach().clone())


def attribute_on_meta(parts: Parts) -> None:
    parts["unet"].conv_in.table = {"a": [torch.zeros(2, device="meta")]}


def buffer_on_meta(parts: Parts) -> None:
    embeddings(parts).position_ids = embeddings(parts).position_ids.to("meta")


def buffer_wrong(parts: Parts) -> None:
    embeddings(parts).position_ids = embeddings(parts).position_ids + 1


def attribute_unknown(parts: Parts) -> None:
    """Nothing vouches for this value: no answer rather than a pass."""
    parts["unet"].conv_in.scale = torch.ones(2)


def parameter_unknown(parts: Parts) -> None:
    parts["unet"].conv_in.extra = torch.nn.Parameter(torch.ones(2))


def component_gone(parts: Parts) -> None:
    parts["vae"] = None


def parameter_gone(parts: Parts) -> None:
    parts["vae"].quant_conv._parameters["bias"] = None


def not_a_number(parts: Parts) -> None:
    with torch.no_grad():
        parts["unet"].conv_in.weight.view(-1)[0] = float("nan")


def other_dtype(parts: Parts) -> None:
    parts["unet"].conv_in.half()


def storage_freed(parts: Parts) -> None:
    """It has a shape and a device, and the memory is gone: reading it would crash, or find what lay there."""
    parts["vae"].encoder.conv_in.weight.untyped_storage().resize_(0)


class Wrapper(torch.Tensor):
    """A subclass that says it is on the CPU and keeps its values elsewhere."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device="cpu")
        made.inner = inner
        return made

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def wrapper_over_meta(parts: Parts) -> None:
    layer = parts["vae"].encoder.conv_in
    layer._parameters["weight"] = Wrapper(layer.weight.detach().to("meta"))


def wrapper_over_zeros(parts: Parts) -> None:
    """Nothing can vouch for what a subclass holds: no answer, never a pass."""
    layer = parts["vae"].encoder.conv_in
    layer._parameters["weight"] = Wrapper(torch.zeros_like(layer.weight.detach()))


def _offload_hook(layer: Any, values: Any) -> Any:
    from accelerate.hooks import AlignDevicesHook

    return AlignDevicesHook(execution_device=CPU, offload=True, weights_map=values)


def second_hook(parts: Parts) -> None:
    """Of two hooks the last one puts its values in place, and those are wrong."""
    from accelerate.hooks import SequentialHook

    sequential(parts)
    layer = parts["unet"].conv_in
    shapes = {"weight": PRISTINE["unet"].conv_in.weight, "bias": PRISTINE["unet"].conv_in.bias}
    wrong = _offload_hook(layer, {name: torch.zeros_like(value) for name, value in shapes.items()})
    layer._hf_hook = SequentialHook(layer._hf_hook, wrong)


def hook_of_wrong_values(parts: Parts) -> None:
    """Everything is real and right now; the next forward will use what the hook holds."""
    layer = parts["unet"].conv_in
    layer._hf_hook = _offload_hook(layer, {name: torch.zeros_like(p) for name, p in layer.named_parameters()})


def hook_without_map(parts: Parts) -> None:
    layer = parts["unet"].conv_in
    layer._hf_hook = _offload_hook(layer, None)


def buffer_that_no_hook_asks_for(parts: Parts) -> None:
    """The map has it, and nothing will ever put it back."""
    sequential(parts)
    layer = parts["vae"].encoder.conv_in
    layer.register_buffer("extra", torch.zeros(2, device="meta"))
    layer._hf_hook.offload_buffers = False
    layer._hf_hook.weights_map.dataset["encoder.conv_in.extra"] = torch.zeros(2)


def _linear_on_meta() -> Any:
    return torch.nn.Linear(2, 2, device="meta")


def module_in_a_list(parts: Parts) -> None:
    parts["vae"].encoder.helpers = [_linear_on_meta()]


def module_in_an_object(parts: Parts) -> None:
    class Helper:
        pass

    parts["vae"].encoder.helper = Helper()
    parts["vae"].encoder.helper.layer = _linear_on_meta()


def processor_on_meta(parts: Parts) -> None:
    attention = next(m for m in parts["unet"].modules() if hasattr(m, "processor"))
    attention.processor.scale = torch.zeros(2, device="meta")


def deep_on_meta(parts: Parts) -> None:
    parts["unet"].conv_in.table = [[[[(torch.zeros(2, device="meta"),)]]]]


def shadowed(parts: Parts) -> None:
    """The parameter is wrong, and a right tensor of its name lies beside it."""
    layer = parts["vae"].encoder.conv_in
    right = layer._parameters["weight"].detach().clone()
    layer._parameters["weight"] = torch.nn.Parameter(torch.zeros_like(right))
    layer.__dict__["weight"] = right


def parameter_as_attribute(parts: Parts) -> None:
    """It computes as before, but `state_dict` and `to` no longer know it."""
    layer = parts["vae"].encoder.conv_in
    layer.__dict__["weight"] = layer._parameters.pop("weight").detach()


def negated(parts: Parts) -> None:
    """A lazy negation: the memory holds the right bytes, the tensor has the other sign."""
    layer = parts["vae"].encoder.conv_in
    layer._parameters["weight"] = torch.nn.Parameter(torch._neg_view(layer.weight.detach()), requires_grad=False)


CASES: Dict[str, Callable[[Parts], Any]] = {
    function.__name__: function
    for function in (
        clean,
        sequential,
        placed,
        disk,
        disk_file_gone,
        disk_of_another,
        hook_of_another_shape,
        hook_with_meta_value,
        dangling,
        attribute_on_meta,
        buffer_on_meta,
        buffer_wrong,
        attribute_unknown,
        parameter_unknown,
        component_gone,
        parameter_gone,
        not_a_number,
        other_dtype,
        storage_freed,
        wrapper_over_meta,
        wrapper_over_zeros,
        second_hook,
        hook_of_wrong_values,
        hook_without_map,
        buffer_that_no_hook_asks_for,
        module_in_a_list,
        module_in_an_object,
        processor_on_meta,
        deep_on_meta,
        shadowed,
        parameter_as_attribute,
        negated,
    )
}


def scheduler_cases() -> Dict[str, Any]:
    """What is no component is looked through as well: kinds of findings."""
    from diffusers import DDIMScheduler

    said = {}
    for name, change in (
        ("clean", lambda table: table),
        ("on_meta", lambda table: table.to("meta")),
        ("not_a_number", lambda table: table * float("nan")),
    ):
        scheduler = DDIMScheduler()
        scheduler.alphas_cumprod = change(scheduler.alphas_cumprod)
        found = inspect_components(dict(PRISTINE), WEIGHTS, False, others={"scheduler": scheduler}).findings
        said[name] = {f["kind"]: [f"{t['module']}.{t['name']}" for t in f["tensors"]] for f in found}
    return said


answers = {"schedulers": scheduler_cases()}
for name, plant in CASES.items():
    parts = {key: copy.deepcopy(module) for key, module in PRISTINE.items()}
    plant(parts)
    row: Dict[str, Any] = {}
    for allowed in (True, False):
        inspection = inspect_components(parts, WEIGHTS, allowed)
        row["allowed" if allowed else "forbidden"] = {
            finding["kind"]: [f"{t['module']}.{t['name']}" for t in finding.get("tensors", [])][:3]
            for finding in inspection.findings
        }
    row["counts"] = inspection.counts
    answers[name] = row
print(json.dumps(answers))
