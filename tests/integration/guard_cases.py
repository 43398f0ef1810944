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
    )
}

answers = {}
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
