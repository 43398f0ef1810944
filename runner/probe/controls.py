"""Would the guard notice? Defects planted in memory into a pipeline that loaded well.

An environment whose guard misses one of them publishes no `pass`.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, NamedTuple

from runner.probe import words
from runner.probe.census import entries, modules_by_path
from runner.probe.expected import Weights
from runner.probe.guard import inspect_components

__all__ = ["CONTROLS", "Control", "run"]

Components = Dict[str, Any]


class Control(NamedTuple):
    """`plant(components, weights)` does the harm and names the tensor; `expected` is the finding's kind."""

    expected: str
    plant: Callable[[Components, Weights], str]


def _owner(module: Any, name: str) -> Any:
    path, _, key = name.rpartition(".")
    return modules_by_path(module)[path], key


def _largest(module: Any) -> List[str]:
    """Names of parameters, the largest first, names as tie-break: the same choice in every version."""
    named = [(-tensor.numel(), name) for name, tensor in module.named_parameters()]
    return [name for _, name in sorted(named)]


def _replace(module: Any, name: str, tensor: Any) -> None:
    import torch

    owner, key = _owner(module, name)
    owner._parameters[key] = torch.nn.Parameter(tensor, requires_grad=False)


def _on_meta(components: Components, weights: Weights) -> str:
    name = _largest(components["unet"])[0]
    owner, key = _owner(components["unet"], name)
    _replace(components["unet"], name, owner._parameters[key].to("meta"))
    return "unet." + name


def _empty_hook(components: Components, weights: Weights) -> str:
    """An offload hook that has lost its data: what is left when a map was emptied too early."""
    import accelerate
    import torch

    module = components["vae"]
    accelerate.cpu_offload(module, torch.device("cpu"))
    modules = modules_by_path(module)
    path = next(entry.path for entry in entries(modules) if entry.tensor.is_meta)
    hook = modules[path]._hf_hook
    inner = getattr(hook, "hooks", [hook])
    for part in inner:
        if getattr(part, "weights_map", None) is not None:
            part.weights_map = {}
    return "vae." + path + "."


def _freed_storage(components: Components, weights: Weights) -> str:
    """A shape and a device without memory: whoever reads it finds whatever lies there now."""
    name = _largest(components["vae"])[0]
    owner, key = _owner(components["vae"], name)
    owner._parameters[key].untyped_storage().resize_(0)
    return "vae." + name


def _second_hook(components: Components, weights: Weights) -> str:
    """Of two hooks the last has the last word, and what it holds is wrong."""
    import accelerate
    import torch
    from accelerate.hooks import AlignDevicesHook, SequentialHook

    name = _largest(components["unet"])[0]
    owner, _ = _owner(components["unet"], name)
    wrong = {key: torch.zeros_like(tensor) for key, tensor in owner._parameters.items() if tensor is not None}
    accelerate.cpu_offload(components["unet"], torch.device("cpu"))
    hook = AlignDevicesHook(execution_device=torch.device("cpu"), offload=True, weights_map=wrong)
    owner._hf_hook = SequentialHook(owner._hf_hook, hook)
    return "unet." + name


def _hidden(components: Components, weights: Weights) -> str:
    """A layer on meta that no list of torch's names: in a plain list of a module."""
    import torch

    components["unet"].spare_layers = [torch.nn.Linear(2, 2, device="meta")]
    return "unet.spare_layers"


def _zeroed(components: Components, weights: Weights) -> str:
    import torch

    name = _largest(components["text_encoder"])[0]
    owner, key = _owner(components["text_encoder"], name)
    _replace(components["text_encoder"], name, torch.zeros_like(owner._parameters[key]))
    return "text_encoder." + name


def _swapped(components: Components, weights: Weights) -> str:
    """Two tensors of one shape change places: nothing is missing, nothing is zero, the image is wrong."""
    module = components["unet"]
    shapes: Dict[Any, str] = {}
    for name in _largest(module):
        owner, key = _owner(module, name)
        tensor = owner._parameters[key]
        twin = shapes.setdefault(tuple(tensor.shape), name)
        if twin != name:
            other, other_key = _owner(module, twin)
            owner._parameters[key], other._parameters[other_key] = other._parameters[other_key], tensor
            return "unet." + name
    raise ValueError("no two tensors of the unet have one shape")


def _untied(components: Components, weights: Weights) -> str:
    """Two names that the checkpoint ties hold tensors of their own.

    SD1.5 ties nothing, so the tie is declared first: the second name takes the first one's tensor and
    expected value, and then gets a changed copy.
    """
    module = components["text_encoder"]
    names = [name for name in _largest(module) if name.endswith("q_proj.weight")]
    left, right = names[0], names[1]
    known = weights.components["text_encoder"]
    here, there = weights.find("text_encoder", left), weights.find("text_encoder", right)
    if here is None or there is None:
        raise ValueError("the checkpoint lacks {} or {}".format(left, right))
    weights.ties.append(("text_encoder", left, right))
    known[there[0]] = here[1]
    owner, key = _owner(module, left)
    tied = owner._parameters[key]
    twin, twin_key = _owner(module, right)
    twin._parameters[twin_key] = tied
    before = inspect_components(components, weights, False)
    if before.findings:
        raise ValueError("the tied pair itself was reported: " + before.findings[0]["text"])
    _replace(module, right, tied.detach() * 1.5)
    return "text_encoder." + right


CONTROLS: Dict[str, Control] = {
    "parameter-on-meta": Control(words.ORPHAN, _on_meta),
    "hook-without-data": Control(words.ORPHAN, _empty_hook),
    "freed-storage": Control(words.ORPHAN, _freed_storage),
    "second-hook": Control(words.CORRUPT, _second_hook),
    "hidden-layer": Control(words.ORPHAN, _hidden),
    "zeroed-tensor": Control(words.CORRUPT, _zeroed),
    "swapped-tensors": Control(words.CORRUPT, _swapped),
    "untied-pair": Control(words.CORRUPT, _untied),
}


def run(pristine: Components, weights: Weights) -> List[Dict[str, Any]]:
    """Plant each defect in a copy; say for each whether the guard found it, with kind and name."""
    return [_one(name, control, pristine, weights) for name, control in CONTROLS.items()]


def _one(name: str, control: Control, pristine: Components, weights: Weights) -> Dict[str, Any]:
    components = {key: copy.deepcopy(module) for key, module in pristine.items()}
    known = copy.deepcopy(weights)
    where = control.plant(components, known)
    found = inspect_components(components, known, True).findings
    caught = any(
        finding["kind"] == control.expected
        and any("{}.{}".format(row["module"], row["name"]).startswith(where) for row in finding.get("tensors", []))
        for finding in found
    )
    got = [finding["kind"] for finding in found]
    return {"id": name, "expected": control.expected, "got": got, "where": where, "caught": caught}
