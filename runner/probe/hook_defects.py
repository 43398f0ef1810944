"""What can be wrong with an offload hook, or with what it holds? Defects, each planted by a function into a patient.

A function gives the full name of the tensor that is harmed.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable

from runner.probe.census import entries, modules_by_path
from runner.probe.patient import Patient

__all__ = [
    "empty_hook",
    "half_restored",
    "hold_another_shape",
    "hold_meta",
    "hold_zeros",
    "hooked",
    "offloaded",
    "on_disk",
    "overwrite",
    "second_hook",
    "truncate",
    "unasked_buffer",
    "zeros_of",
]

Plant = Callable[[Patient], str]


def _offload(module: Any) -> None:
    import accelerate
    import torch

    accelerate.cpu_offload(module, torch.device("cpu"))


def _hook(owner: Any) -> Any:
    return getattr(owner._hf_hook, "hooks", [owner._hf_hook])[-1]


def empty_hook(patient: Patient) -> str:
    """An offload hook that has lost its data: what is left when a map was emptied too early."""
    _offload(patient["vae"])
    modules = modules_by_path(patient["vae"])
    path = next(entry.path for entry in entries(modules) if entry.tensor.is_meta)
    hook = modules[path]._hf_hook
    for part in getattr(hook, "hooks", [hook]):
        if getattr(part, "weights_map", None) is not None:
            part.weights_map = {}
    return "vae." + path + "."


def second_hook(patient: Patient) -> str:
    """Of two hooks the last has the last word, and what it holds is wrong."""
    import torch
    from accelerate.hooks import AlignDevicesHook, SequentialHook

    owner, _, where = patient.largest(patient.denoiser)
    wrong = {key: torch.zeros_like(tensor) for key, tensor in owner._parameters.items() if tensor is not None}
    _offload(patient[patient.denoiser])
    hook = AlignDevicesHook(execution_device=torch.device("cpu"), offload=True, weights_map=wrong)
    owner._hf_hook = SequentialHook(owner._hf_hook, hook)
    return where


def offloaded(change: Callable[[Any, str], None]) -> Plant:
    """A defect of a denoiser that is offloaded with hooks; `change` harms the map of one of them, under a name."""

    def plant(patient: Patient) -> str:
        owner, _, where = patient.largest(patient.denoiser)
        _offload(patient[patient.denoiser])
        change(_hook(owner).weights_map.dataset, where.partition(".")[2])
        return where

    return plant


def hold_meta(held: Any, name: str) -> None:
    held[name] = held[name].to("meta")


def hold_another_shape(held: Any, name: str) -> None:
    held[name] = held[name].flatten()[:3]


def hold_zeros(held: Any, name: str) -> None:
    held[name] = held[name] * 0


def hooked(values: Callable[[Any], Any]) -> Plant:
    """A defect that leaves everything real and right, and puts a hook there which the next forward will ask."""

    def plant(patient: Patient) -> str:
        import torch
        from accelerate.hooks import AlignDevicesHook

        owner, _, where = patient.largest(patient.denoiser)
        hook = AlignDevicesHook(execution_device=torch.device("cpu"), offload=True, weights_map=values(owner))
        owner._hf_hook = hook
        return where

    return plant


def zeros_of(owner: Any) -> Any:
    return {key: tensor.detach() * 0 for key, tensor in owner._parameters.items() if tensor is not None}


def unasked_buffer(patient: Patient) -> str:
    """A buffer on meta whose data is in a hook's map, and no hook will ever put it back."""
    import torch

    owner, _, where = patient.largest("vae")
    _offload(patient["vae"])
    place = where.rpartition(".")[0]
    owner.register_buffer("extra", torch.zeros(2, device="meta"))
    hook = _hook(owner)
    hook.offload_buffers = False
    hook.weights_map.dataset[place.partition(".")[2] + ".extra"] = torch.zeros(2)
    return place + ".extra"


def half_restored(patient: Patient) -> str:
    """A release that ended too early: the hooks of some modules are gone and their data is back, others have stayed."""
    from accelerate.hooks import remove_hook_from_module

    module = patient[patient.denoiser]
    owner, _, where = patient.largest(patient.denoiser)
    _offload(module)
    for part in module.modules():
        if part is not owner:
            remove_hook_from_module(part)
    return where


def on_disk(harm: Callable[[str], None]) -> Plant:
    """A defect of a denoiser that is offloaded to disk; `harm` is done to the file of its largest parameter."""

    def plant(patient: Patient) -> str:
        import accelerate
        import torch

        _, _, where = patient.largest(patient.denoiser)
        folder = tempfile.mkdtemp(prefix="offload-")
        accelerate.disk_offload(patient[patient.denoiser], folder, torch.device("cpu"))
        harm(os.path.join(folder, where.partition(".")[2] + ".dat"))
        return where

    return plant


def overwrite(path: str) -> None:
    """What lies in an offload folder that served another checkpoint."""
    with open(path, "r+b") as file:
        file.write(b"\1\2\3\4")


def truncate(path: str) -> None:
    with open(path, "r+b") as file:
        file.truncate(4)
