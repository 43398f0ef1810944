"""What can be wrong with a tensor or a module in memory? Defects, each planted by a function into a patient.

A function gives the full name of what it has harmed.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

from runner.probe.guard import inspect_components
from runner.probe.patient import Patient, replace

__all__ = [
    "adapter_on_meta",
    "as_attribute",
    "attribute_on_meta",
    "buffer_on_meta",
    "changed",
    "component_gone",
    "component_of_another",
    "freed_storage",
    "hidden_layer",
    "kept_as_buffer",
    "layer_in_an_object",
    "missing",
    "on_meta",
    "other_dtype",
    "patched_module",
    "quantised_state",
    "renamed",
    "shadowed",
    "subclass_over_meta",
    "swapped",
    "training",
    "uninitialised_buffer",
    "untied",
]

Plant = Callable[[Patient], str]


def on_meta(patient: Patient) -> str:
    owner, key, where = patient.largest(patient.denoiser)
    replace(owner, key, owner._parameters[key].to("meta"))
    return where


def buffer_on_meta(patient: Patient) -> str:
    owner, key, where = patient.buffer()
    owner._buffers[key] = owner._buffers[key].to("meta")
    return where


def uninitialised_buffer(patient: Patient) -> str:
    """What transformers 5 leaves where a class does not fill a non-persistent buffer again."""
    owner, key, where = patient.buffer()
    owner._buffers[key] = owner._buffers[key] * 7 + 3
    return where


def attribute_on_meta(patient: Patient) -> str:
    import torch

    owner, _, where = patient.largest(patient.denoiser)
    owner.table = {"a": [torch.zeros(2, device="meta")]}
    return where.rpartition(".")[0] + ".table"


def freed_storage(patient: Patient) -> str:
    """A shape and a device without memory: whoever reads it finds whatever lies there now."""
    owner, key, where = patient.largest("vae")
    owner._parameters[key].untyped_storage().resize_(0)
    return where


def hidden_layer(patient: Patient) -> str:
    """A layer on meta that no list of torch's names: in a plain list of a module."""
    import torch

    patient[patient.denoiser].spare_layers = [torch.nn.Linear(2, 2, device="meta")]
    return patient.denoiser + ".spare_layers"


def layer_in_an_object(patient: Patient) -> str:
    """A layer on meta in an object that is no module: torch's own lists end there."""
    import torch

    class Holder:
        layer = None

    holder = Holder()
    holder.layer = torch.nn.Linear(2, 2, device="meta")
    patient[patient.denoiser].holder = holder
    return patient.denoiser + ".holder"


def subclass_over_meta(patient: Patient) -> str:
    """A tensor subclass that says it is on the CPU, around a tensor on meta."""
    import torch

    class Wrapper(torch.Tensor):  # type: ignore[misc]
        def __tensor_flatten__(self) -> Any:
            return ["inner"], None

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    owner, key, where = patient.largest("vae")
    inner = owner._parameters[key].detach().to("meta")
    wrapper = torch.Tensor._make_wrapper_subclass(Wrapper, inner.shape, dtype=inner.dtype, device="cpu")
    wrapper.inner = inner
    owner._parameters[key] = wrapper
    return where


def quantised_state(patient: Patient) -> str:
    """A quantised weight keeps its scales in an object at the parameter, as bitsandbytes does; they are on meta."""
    import torch

    class State:
        absmax = None

    owner, key, where = patient.largest(patient.denoiser)
    state = State()
    state.absmax = torch.zeros(4, device="meta")
    owner._parameters[key].quant_state = state
    return where + ".quant_state"


def adapter_on_meta(patient: Patient) -> str:
    """Half of a low-rank adapter was never loaded: it lies beside the layer as peft puts it there."""
    import torch

    owner, _, where = patient.largest(patient.denoiser)
    owner.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(4, 2, bias=False)})
    owner.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(2, 4, bias=False, device="meta")})
    return where.rpartition(".")[0] + ".lora_B.default.weight"


def swapped(patient: Patient) -> str:
    """Two tensors of one shape change places: nothing is missing, nothing is zero, the image is wrong."""
    shapes: Dict[Any, str] = {}
    for name in patient.names(patient.denoiser):
        owner, key = patient.owner(patient.denoiser, name)
        tensor = owner._parameters[key]
        twin = shapes.setdefault(tuple(tensor.shape), name)
        if twin != name:
            other, other_key = patient.owner(patient.denoiser, twin)
            owner._parameters[key], other._parameters[other_key] = other._parameters[other_key], tensor
            return patient.denoiser + "." + name
    raise ValueError("no two tensors of the {} have one shape".format(patient.denoiser))


def untied(patient: Patient) -> str:
    """Two names that the checkpoint ties hold tensors of their own.

    Where it ties nothing (CLIP) a tie is declared first: the second name takes the first one's tensor and
    expected value, and then gets a changed copy.
    """
    if not patient.weights.ties:
        _declare_tie(patient)
    component, left, right = patient.weights.ties[0]
    owner, key = patient.owner(component, left)
    twin, twin_key = patient.owner(component, right)
    twin._parameters[twin_key] = owner._parameters[key]
    before = inspect_components(patient.components, patient.weights, False)
    if before.findings:
        raise ValueError("the tied pair itself was reported: " + before.findings[0]["text"])
    replace(twin, twin_key, owner._parameters[key].detach() * 1.5)
    return component + "." + right


def _declare_tie(patient: Patient) -> None:
    names = [name for name in patient.names("text_encoder") if name.endswith("q_proj.weight")]
    left, right = names[0], names[1]
    known = patient.weights.components["text_encoder"]
    here, there = patient.weights.find("text_encoder", left), patient.weights.find("text_encoder", right)
    if here is None or there is None:
        raise ValueError("the checkpoint lacks {} or {}".format(left, right))
    patient.weights.ties.append(("text_encoder", left, right))
    known[there[0]] = here[1]


def changed(component: str, change: Callable[[Any], Any]) -> Plant:
    """A defect that replaces the largest parameter of a component by what `change` makes of it; "" is the denoiser."""

    def plant(patient: Patient) -> str:
        owner, key, where = patient.largest(component or patient.denoiser)
        replace(owner, key, change(owner._parameters[key].detach()))
        return where

    return plant


def missing(patient: Patient) -> str:
    owner, key, where = patient.largest("vae")
    owner._parameters[key] = None
    return where


def renamed(patient: Patient) -> str:
    owner, key, where = patient.largest("vae")
    owner._parameters["renamed"] = owner._parameters.pop(key)
    return where


def as_attribute(patient: Patient) -> str:
    """It computes as before, but `state_dict` and `to` no longer know it."""
    owner, key, where = patient.largest("vae")
    owner.__dict__[key] = owner._parameters.pop(key).detach()
    return where


def shadowed(patient: Patient) -> str:
    """The parameter is wrong, and a right tensor of its name lies beside it."""
    import torch

    owner, key, where = patient.largest("vae")
    right = owner._parameters[key].detach().clone()
    replace(owner, key, torch.zeros_like(right))
    owner.__dict__[key] = right
    return where


def kept_as_buffer(patient: Patient) -> str:
    """A weight in eight bits, kept as a buffer because it cannot be trained: lists of parameters do not name it."""
    import torch

    owner, key, where = patient.largest(patient.denoiser)
    eight_bits = getattr(torch, "float8_e4m3fn", torch.int8)  # torch 2.1 brought the float
    weight = owner._parameters.pop(key).detach()
    owner.register_buffer(key, weight.to(eight_bits))
    return where


def other_dtype(tensor: Any) -> Any:
    return tensor.half()


def component_gone(patient: Patient) -> str:
    patient.components["vae"] = None
    return "vae."


def component_of_another(patient: Patient) -> str:
    """A component of the right class with weights of its own: nothing is missing, nothing is on meta."""
    import torch

    torch.manual_seed(0)
    for parameter in patient["text_encoder"].parameters():
        parameter.data = torch.randn_like(parameter)
    return "text_encoder."


def training(patient: Patient) -> str:
    """Every weight is right, and dropout makes each image another one."""
    patient["text_encoder"].train()
    return "text_encoder."


def patched_module(patient: Patient) -> str:
    """`init_empty_weights` was left by another thread: what is built from now on has its parameters on meta."""
    import torch

    def register_empty_parameter(module: Any, name: str, parameter: Any) -> None:
        raise AssertionError("nothing is built while a defect is planted")

    torch.nn.Module.register_parameter = register_empty_parameter
    return "torch.nn.Module.register_parameter"
