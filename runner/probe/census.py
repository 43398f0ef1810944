"""Which tensors does a module tree hold? Every one, also those that torch's own lists leave out."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

__all__ = ["Entry", "entries", "fingerprint", "modules_by_path"]

_SKIPPED = ("_hf_hook", "_diffusers_hook", "_old_forward")
_DEPTH = 3


class Entry(NamedTuple):
    """One tensor: module `path`, attribute `key`, `kind` (parameter, buffer, non-persistent-buffer, attribute)."""

    path: str
    key: str
    kind: str
    tensor: Any

    @property
    def name(self) -> str:
        return self.path + "." + self.key if self.path else self.key


def modules_by_path(root: Any) -> Dict[str, Any]:
    """Every module under every path that leads to it, so that shared modules are seen under all names."""
    return dict(root.named_modules(remove_duplicate=False))


def entries(modules: Dict[str, Any]) -> Iterator[Entry]:
    """All tensors below `modules`; a tied tensor appears under each of its names."""
    import torch

    # What every module has (hooks, flags): some twenty attributes each, and no place for a tensor.
    skipped = set(vars(torch.nn.Module())).union(_SKIPPED)
    for path, module in modules.items():
        for key, tensor in module._parameters.items():
            if tensor is not None:
                yield Entry(path, key, "parameter", tensor)
        for key, tensor in module._buffers.items():
            if tensor is not None:
                persistent = key not in module._non_persistent_buffers_set
                yield Entry(path, key, "buffer" if persistent else "non-persistent-buffer", tensor)
        for key, value in vars(module).items():
            if key not in skipped:
                for name, tensor in _inside(key, value, _DEPTH):
                    yield Entry(path, name, "attribute", tensor)


def _inside(name: str, value: Any, depth: int) -> List[Tuple[str, Any]]:
    """Tensors in an attribute: itself, or within lists, tuples and dictionaries a few levels down."""
    if value is None or isinstance(value, (bool, int, float, str, type)):
        return []  # nearly all attributes: looked at first, because a census sees some ten thousand
    import torch

    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if depth == 0:
        return []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, (list, tuple)):
        children = list(enumerate(value))
    else:
        return []
    return [pair for key, child in children for pair in _inside("{}[{}]".format(name, key), child, depth - 1)]


def fingerprint(tensor: Any) -> str:
    """sha256 of the tensor's bytes in row-major order, whatever its dtype, on whatever device.

    Read straight from memory: numpy has no bfloat16, and old torch does not work with a new numpy.
    """
    plain = tensor.detach().to("cpu").contiguous()
    size = plain.numel() * plain.element_size()
    data = ctypes.string_at(plain.data_ptr(), size) if size else b""
    return hashlib.sha256(data).hexdigest()
