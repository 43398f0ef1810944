"""Is there data in a tensor, and which? Asked before a byte is read, because memory that is not there reads as anything."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Tuple

__all__ = ["fingerprint", "no_data", "strange"]


def no_data(tensor: Any) -> str:
    """Why there is nothing behind a tensor that is not on meta itself; empty where there is.

    A freed storage, a fake tensor, a wrapper around a meta tensor: each says that it is on a device and has
    its shape, and reading it would give whatever lies in that memory now.
    """
    for name, inner in _inner(tensor):
        if getattr(inner, "is_meta", False):
            return "its inner tensor {} is on meta".format(name)
    if type(tensor).__name__ in ("FakeTensor", "UninitializedParameter", "UninitializedBuffer"):
        return "a {} has no data".format(type(tensor).__name__)
    if strange(tensor) or tensor.numel() == 0:
        return ""
    storage = tensor.untyped_storage()
    last = tensor.storage_offset() + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    if storage.nbytes() < (last + 1) * tensor.element_size() or tensor.data_ptr() == 0:
        return "its storage is freed"
    return ""


def strange(tensor: Any) -> str:
    """Why the bytes of a tensor cannot simply be read; empty where they can.

    A subclass may keep its values anywhere, and a sparse layout has no memory in row-major order.
    """
    import torch

    plain = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))
    if type(tensor) not in plain:
        return "a {}, whose values nothing vouches for".format(type(tensor).__name__)
    if tensor.layout != torch.strided:
        return "a layout ({}) that cannot be compared".format(tensor.layout)
    return ""


def _inner(tensor: Any) -> Tuple[Tuple[str, Any], ...]:
    """The tensors that a wrapper subclass says it is made of."""
    flatten = getattr(type(tensor), "__tensor_flatten__", None)
    if flatten is None:
        return ()
    return tuple((name, getattr(tensor, name, None)) for name in flatten(tensor)[0])


def fingerprint(tensor: Any) -> str:
    """sha256 of the tensor's bytes in row-major order, whatever its dtype, on whatever device.

    Read straight from memory: numpy has no bfloat16, and old torch does not work with a new numpy.
    Only for tensors of which `no_data` and `strange` have nothing to say.
    """
    plain = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    data = ctypes.string_at(plain.data_ptr(), size) if size else b""
    return hashlib.sha256(data).hexdigest()
