"""What can be wrong with a pipeline in memory? A catalogue of defects, each planted by a function into one that loaded well."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from runner.probe import words
from runner.probe.census import entries, modules_by_path
from runner.probe.expected import Weights
from runner.probe.guard import inspect_components

__all__ = ["CONTROLS", "Components", "Control"]

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
    owner, key, where = _first(components, "vae")
    owner._parameters[key].untyped_storage().resize_(0)
    return where


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


def _first(components: Components, component: str) -> Tuple[Any, str, str]:
    """The largest parameter of a component: its module, its key there, its full name."""
    name = _largest(components[component])[0]
    owner, key = _owner(components[component], name)
    return owner, key, component + "." + name


def _changed(component: str, change: Callable[[Any], Any]) -> Callable[[Components, Weights], str]:
    """A control that replaces the largest parameter of a component by what `change` makes of it."""

    def plant(components: Components, weights: Weights) -> str:
        owner, key, where = _first(components, component)
        _replace(owner, key, change(owner._parameters[key].detach()))
        return where

    return plant


def _holed(tensor: Any) -> Any:
    changed = tensor.clone()
    changed.view(-1)[0] = float("nan")
    return changed


def _negated(tensor: Any) -> Any:
    import torch

    return torch._neg_view(tensor)


def _missing(components: Components, weights: Weights) -> str:
    owner, key, where = _first(components, "vae")
    owner._parameters[key] = None
    return where


def _renamed(components: Components, weights: Weights) -> str:
    owner, key, where = _first(components, "vae")
    owner._parameters["renamed"] = owner._parameters.pop(key)
    return where


def _as_attribute(components: Components, weights: Weights) -> str:
    """It computes as before, but `state_dict` and `to` no longer know it."""
    owner, key, where = _first(components, "vae")
    owner.__dict__[key] = owner._parameters.pop(key).detach()
    return where


def _shadowed(components: Components, weights: Weights) -> str:
    """The parameter is wrong, and a right tensor of its name lies beside it."""
    import torch

    owner, key, where = _first(components, "vae")
    right = owner._parameters[key].detach().clone()
    _replace(owner, key, torch.zeros_like(right))
    owner.__dict__[key] = right
    return where


def _uninitialised_buffer(components: Components, weights: Weights) -> str:
    """What transformers 5 leaves where a class does not fill a non-persistent buffer again."""
    owner, key, where = _a_buffer(components)
    owner._buffers[key] = owner._buffers[key] * 7 + 3
    return where


def _buffer_on_meta(components: Components, weights: Weights) -> str:
    owner, key, where = _a_buffer(components)
    owner._buffers[key] = owner._buffers[key].to("meta")
    return where


def _a_buffer(components: Components) -> Tuple[Any, str, str]:
    """The first buffer of the text encoder: its module, its key there, its full name."""
    entry = next(e for e in entries(modules_by_path(components["text_encoder"])) if "buffer" in e.kind)
    owner, key = _owner(components["text_encoder"], entry.name)
    return owner, key, "text_encoder." + entry.name


def _attribute_on_meta(components: Components, weights: Weights) -> str:
    import torch

    owner, _, where = _first(components, "unet")
    owner.table = {"a": [torch.zeros(2, device="meta")]}
    return where.rpartition(".")[0] + ".table"


def _in_an_object(components: Components, weights: Weights) -> str:
    """A layer on meta in an object that is no module: torch's own lists end there."""
    import torch

    class Holder:
        layer = None

    holder = Holder()
    holder.layer = torch.nn.Linear(2, 2, device="meta")
    components["unet"].holder = holder
    return "unet.holder"


def _wrapped(components: Components, weights: Weights) -> str:
    """A tensor subclass that says it is on the CPU, around a tensor on meta."""
    import torch

    class Wrapper(torch.Tensor):  # type: ignore[misc]
        def __tensor_flatten__(self) -> Any:
            return ["inner"], None

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    owner, key, where = _first(components, "vae")
    inner = owner._parameters[key].detach().to("meta")
    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, inner.shape, dtype=inner.dtype, device="cpu")
    wrapper.inner = inner
    owner._parameters[key] = wrapper
    return where


def _offloaded(change: Callable[[Any, str], None]) -> Callable[[Components, Weights], str]:
    """A control on a unet that is offloaded with hooks; `change` harms the map of one of them, under a name."""

    def plant(components: Components, weights: Weights) -> str:
        import accelerate
        import torch

        _, _, where = _first(components, "unet")
        accelerate.cpu_offload(components["unet"], torch.device("cpu"))
        owner, _ = _owner(components["unet"], where.partition(".")[2])
        hook = getattr(owner._hf_hook, "hooks", [owner._hf_hook])[-1]
        change(hook.weights_map.dataset, where.partition(".")[2])
        return where

    return plant


def _hold_meta(held: Any, name: str) -> None:
    held[name] = held[name].to("meta")


def _hold_another_shape(held: Any, name: str) -> None:
    held[name] = held[name].flatten()[:3]


def _hold_zeros(held: Any, name: str) -> None:
    held[name] = held[name] * 0


def _hooked(values: Callable[[Any], Any]) -> Callable[[Components, Weights], str]:
    """A control that leaves everything real and right, and puts a hook there which the next forward will ask."""

    def plant(components: Components, weights: Weights) -> str:
        import torch
        from accelerate.hooks import AlignDevicesHook

        owner, _, where = _first(components, "unet")
        hook = AlignDevicesHook(execution_device=torch.device("cpu"), offload=True, weights_map=values(owner))
        owner._hf_hook = hook
        return where

    return plant


def _zeros_of(owner: Any) -> Any:
    return {key: tensor.detach() * 0 for key, tensor in owner._parameters.items() if tensor is not None}


def _unasked_buffer(components: Components, weights: Weights) -> str:
    """A buffer on meta whose data is in a hook's map, and no hook will ever put it back."""
    import accelerate
    import torch

    owner, _, where = _first(components, "vae")
    accelerate.cpu_offload(components["vae"], torch.device("cpu"))
    place = where.rpartition(".")[0]
    owner.register_buffer("extra", torch.zeros(2, device="meta"))
    hook = getattr(owner._hf_hook, "hooks", [owner._hf_hook])[-1]
    hook.offload_buffers = False
    hook.weights_map.dataset[place.partition(".")[2] + ".extra"] = torch.zeros(2)
    return place + ".extra"


def _on_disk(harm: Callable[[str], None]) -> Callable[[Components, Weights], str]:
    """A control on a unet that is offloaded to disk; `harm` is done to the file of its largest parameter."""

    def plant(components: Components, weights: Weights) -> str:
        import accelerate
        import torch

        _, _, where = _first(components, "unet")
        folder = tempfile.mkdtemp(prefix="offload-")
        accelerate.disk_offload(components["unet"], folder, torch.device("cpu"))
        harm(os.path.join(folder, where.partition(".")[2] + ".dat"))
        return where

    return plant


def _overwrite(path: str) -> None:
    """What lies in an offload folder that served another checkpoint."""
    with open(path, "r+b") as file:
        file.write(b"\1\2\3\4")


def _truncate(path: str) -> None:
    with open(path, "r+b") as file:
        file.truncate(4)


def _component_gone(components: Components, weights: Weights) -> str:
    components["vae"] = None
    return "vae."


def _component_of_another(components: Components, weights: Weights) -> str:
    """A component of the right class with weights of its own: nothing is missing, nothing is on meta."""
    import torch

    torch.manual_seed(0)
    for parameter in components["text_encoder"].parameters():
        parameter.data = torch.randn_like(parameter)
    return "text_encoder."


CONTROLS: Dict[str, Control] = {
    "parameter-on-meta": Control(words.ORPHAN, _on_meta),
    "buffer-on-meta": Control(words.ORPHAN, _buffer_on_meta),
    "attribute-on-meta": Control(words.ORPHAN, _attribute_on_meta),
    "freed-storage": Control(words.ORPHAN, _freed_storage),
    "hidden-layer": Control(words.ORPHAN, _hidden),
    "layer-in-an-object": Control(words.ORPHAN, _in_an_object),
    "subclass-over-meta": Control(words.ORPHAN, _wrapped),
    "hook-without-data": Control(words.ORPHAN, _empty_hook),
    "hook-data-on-meta": Control(words.ORPHAN, _offloaded(_hold_meta)),
    "hook-data-of-another-shape": Control(words.ORPHAN, _offloaded(_hold_another_shape)),
    "hook-data-wrong": Control(words.CORRUPT, _offloaded(_hold_zeros)),
    "dangling-hook": Control(words.ORPHAN, _hooked(lambda owner: {})),
    "hook-without-map": Control(words.ORPHAN, _hooked(lambda owner: None)),
    "hook-of-wrong-values": Control(words.CORRUPT, _hooked(_zeros_of)),
    "second-hook": Control(words.CORRUPT, _second_hook),
    "unasked-buffer": Control(words.ORPHAN, _unasked_buffer),
    "offload-file-gone": Control(words.ORPHAN, _on_disk(os.unlink)),
    "offload-file-of-another": Control(words.CORRUPT, _on_disk(_overwrite)),
    "offload-file-truncated": Control(words.ORPHAN, _on_disk(_truncate)),
    "zeroed-tensor": Control(words.CORRUPT, _zeroed),
    "swapped-tensors": Control(words.CORRUPT, _swapped),
    "scaled-tensor": Control(words.CORRUPT, _changed("unet", lambda tensor: tensor * 1.0001)),
    "not-a-number": Control(words.CORRUPT, _changed("unet", _holed)),
    "other-dtype": Control(words.CORRUPT, _changed("unet", lambda tensor: tensor.half())),
    "wrong-shape": Control(words.CORRUPT, _changed("unet", lambda tensor: tensor.flatten())),
    "negated-view": Control(words.CORRUPT, _changed("vae", _negated)),
    "missing-parameter": Control(words.CORRUPT, _missing),
    "renamed-parameter": Control(words.CORRUPT, _renamed),
    "parameter-as-attribute": Control(words.CORRUPT, _as_attribute),
    "shadowed-parameter": Control(words.CORRUPT, _shadowed),
    "uninitialised-buffer": Control(words.CORRUPT, _uninitialised_buffer),
    "untied-pair": Control(words.CORRUPT, _untied),
    "missing-component": Control(words.CORRUPT, _component_gone),
    "component-of-another": Control(words.CORRUPT, _component_of_another),
}
