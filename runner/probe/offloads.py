"""How is a pipeline offloaded, and released again?

On a CPU runner some modes need an explicit device, and some versions offer a mode only where there is
an accelerator. That is `Unsupported`, never a defect of the library.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

from runner.probe.loads import Unsupported, model_components

__all__ = ["OFFLOADS", "Mode"]


class Mode(NamedTuple):
    """`apply(pipeline, device, folder)` gives the call that was made; `release(pipeline)` undoes it.

    `backed` says whether tensors may stay on meta, with their data behind a hook, while it is active.
    """

    backed: bool
    apply: Callable[[Any, Any, str], str]
    release: Callable[[Any], None]


def _none(pipeline: Any, device: Any, folder: str) -> str:
    pipeline.to(device)
    return "pipeline.to({})".format(device)


def _model(pipeline: Any, device: Any, folder: str) -> str:
    import torch

    if device.type == "cpu" and _empties_a_cache_of_the_cpu():
        raise Unsupported("model offload of this diffusers empties the cache of an accelerator; the CPU has none")
    pipeline.enable_model_cpu_offload(device=device)
    for handle in getattr(pipeline, "_all_hooks", []):
        execution = getattr(getattr(handle, "hook", None), "execution_device", None)
        if execution is not None and torch.device(execution).type != device.type:
            # diffusers 0.21 takes the argument and uses cuda all the same.
            raise Unsupported("model offload of this diffusers uses {}, whatever device is asked for".format(execution))
    return "pipeline.enable_model_cpu_offload(device={})".format(device)


def _empties_a_cache_of_the_cpu() -> bool:
    """diffusers 0.34 asks torch.cpu for `empty_cache`; releases before and after it leave a CPU alone."""
    from diffusers.utils import torch_utils

    empty = getattr(torch_utils, "empty_device_cache", None)
    if empty is None:
        return False
    try:
        empty("cpu")
    except AttributeError:
        return True
    return False


def _sequential(pipeline: Any, device: Any, folder: str) -> str:
    if device.type != "cpu":
        pipeline.enable_sequential_cpu_offload(device=device)
        return "pipeline.enable_sequential_cpu_offload(device={})".format(device)
    # The pipeline's own method makes `cpu:0` of "cpu", for which Parameter.to() gives a plain tensor, and
    # the first forward fails on a clean pipeline. This is the call that it makes for each component.
    import accelerate

    for module in model_components(pipeline).values():
        accelerate.cpu_offload(module, device, offload_buffers=len(module._parameters) > 0)
    return "accelerate.cpu_offload(component, torch.device('cpu')) for each component"


def _disk(pipeline: Any, device: Any, folder: str) -> str:
    import os

    import accelerate

    for name, module in model_components(pipeline).items():
        accelerate.disk_offload(module, os.path.join(folder, name), device, offload_buffers=len(module._parameters) > 0)
    return "accelerate.disk_offload(component, folder, {}) for each component".format(device)


def _group(offload_type: str) -> Callable[[Any, Any, str], str]:
    def apply(pipeline: Any, device: Any, folder: str) -> str:
        import torch

        try:
            from diffusers.hooks import apply_group_offloading
        except ImportError:
            raise Unsupported("this diffusers has no group offloading (it came with 0.33)") from None
        if device.type == "cpu" and _asks_for_accelerator():
            raise Unsupported("group offloading of this diffusers asks torch for an accelerator; there is none here")
        options: Dict[str, Any] = {"onload_device": device, "offload_device": torch.device("cpu")}
        options["offload_type"] = offload_type
        if offload_type == "block_level":
            options["num_blocks_per_group"] = 1
        if hasattr(pipeline, "enable_group_offload"):
            pipeline.enable_group_offload(**options)
            return "pipeline.enable_group_offload(offload_type={!r})".format(offload_type)
        for module in model_components(pipeline).values():
            apply_group_offloading(module, **options)
        return "apply_group_offloading(component, offload_type={!r}) for each component".format(offload_type)

    return apply


def _asks_for_accelerator() -> bool:
    """True where the library would read the type of an accelerator that this machine does not have.

    Up to diffusers 0.40 group offloading reads `torch.accelerator.current_accelerator().type`
    unconditionally.
    """
    import inspect

    import torch
    from diffusers.hooks import group_offloading

    accelerator = getattr(torch, "accelerator", None)
    # torch 2.6 names the accelerator that it was built for, whether there is one or not.
    if accelerator is not None and accelerator.is_available():
        return False
    return "current_accelerator().type" in inspect.getsource(group_offloading)


def _release_accelerate(pipeline: Any) -> None:
    from accelerate.hooks import remove_hook_from_module

    if hasattr(pipeline, "remove_all_hooks"):  # diffusers 0.28 and later
        pipeline.remove_all_hooks()
    for module in model_components(pipeline).values():
        remove_hook_from_module(module, recurse=True)


def _release_group(pipeline: Any) -> None:
    for module in model_components(pipeline).values():
        for part in module.modules():
            registry = getattr(part, "_diffusers_hook", None)
            if registry is not None:
                for name in list(registry.hooks):
                    registry.remove_hook(name, recurse=False)


def _release_nothing(pipeline: Any) -> None:
    """`none` puts no hook anywhere."""


OFFLOADS: Dict[str, Mode] = {
    "none": Mode(False, _none, _release_nothing),
    "model": Mode(False, _model, _release_accelerate),
    "sequential": Mode(True, _sequential, _release_accelerate),
    "disk": Mode(True, _disk, _release_accelerate),
    "group_leaf": Mode(False, _group("leaf_level"), _release_group),
    "group_block": Mode(False, _group("block_level"), _release_group),
}
