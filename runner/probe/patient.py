"""Where is a defect planted? A copy of a pipeline that loaded well, and ways to reach its tensors by name.

The choice of a tensor is the same in every version: the largest, its name as tie-break.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, Iterator, List, Tuple

from runner.probe.census import entries, modules_by_path
from runner.probe.expected import Weights

__all__ = ["Patient", "replace"]


class Patient:
    """Copies of components, and of what the checkpoint says of them; both may be harmed."""

    def __init__(self, components: Dict[str, Any], weights: Weights) -> None:
        self.components = {name: copy.deepcopy(module) for name, module in components.items()}
        self.weights = copy.deepcopy(weights)
        self.denoiser = "unet" if "unet" in components else "transformer"

    def __getitem__(self, component: str) -> Any:
        return self.components[component]

    def owner(self, component: str, name: str) -> Tuple[Any, str]:
        """The module that holds a tensor, and the tensor's key there."""
        path, _, key = name.rpartition(".")
        return modules_by_path(self.components[component])[path], key

    def names(self, component: str) -> List[str]:
        """Names of the parameters of a component, the largest first."""
        named = [(-tensor.numel(), name) for name, tensor in self.components[component].named_parameters()]
        return [name for _, name in sorted(named)]

    def largest(self, component: str) -> Tuple[Any, str, str]:
        """The largest parameter of a component: its module, its key there, its full name."""
        name = self.names(component)[0]
        return (*self.owner(component, name), component + "." + name)

    def buffer(self) -> Tuple[Any, str, str]:
        """The first buffer of the pipeline: its module, its key there, its full name."""
        component, name = next(self._buffers())
        return (*self.owner(component, name), component + "." + name)

    def _buffers(self) -> Iterator[Tuple[str, str]]:
        for component in sorted(self.components):
            for entry in entries(modules_by_path(self.components[component])):
                if "buffer" in entry.kind:
                    yield component, entry.name


def replace(owner: Any, key: str, tensor: Any) -> None:
    """Put another parameter in a parameter's place."""
    import torch

    owner._parameters[key] = torch.nn.Parameter(tensor, requires_grad=False)
