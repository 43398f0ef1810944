"""What is a tiny pipeline? Its parts with their tensors and configurations, and the file that it is published as.

A new pipeline is one module in `pipelines/` that makes a `Pipeline`, and its test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from runner.checkpoints.tensors import Tensor

__all__ = ["Part", "Pipeline", "Tensors", "prefixed", "renamed"]

Tensors = dict[str, Tensor]


def prefixed(tensors: Tensors, prefix: str) -> Tensors:
    """The same tensors, their names behind a prefix."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def renamed(name: str, rules: Iterable[tuple[str, str]]) -> str:
    """A tensor's name after all rules (regular expression, replacement), one after the other."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


@dataclass(frozen=True)
class Part:
    """One component that holds weights, in the hub's layout.

    `library` and `kind` stand in the index; `derived` are tensors that the class computes itself (name -> n: 0 … n-1
    as int64, shape (1, n)); `ties` are pairs of names that must be one tensor, the first the one that is stored;
    `original` gives the tensors as the single file has them, or None where it has none of this part;
    `loses` is the tensor that `missing-key-…` leaves out.
    """

    library: str
    kind: str
    config: Mapping[str, Any]
    tensors: Tensors
    loses: str
    original: Callable[[Tensors], Tensors] | None = None
    derived: Mapping[str, int] = field(default_factory=dict)
    ties: tuple[tuple[str, str], ...] = ()

    @property
    def file(self) -> str:
        """What the file with the weights is called in the part's folder."""
        return "model.safetensors" if self.library == "transformers" else "diffusion_pytorch_model.safetensors"


@dataclass(frozen=True)
class Pipeline:
    """A tiny pipeline: its `name` on the axis, its class, and its parts in the order in which they are loaded
    (`part_names`, and `make` that makes them; the first is the one that denoises).

    `others` are the index entries without weights (scheduler, tokenizers); `files` the files of their folders, as
    JSON objects or text; `single` says what of it is published as one file: the whole pipeline, or nothing, with
    the reason (`no_single`). `call` are the arguments of a step beside prompt, size, steps and seed; `options` those of
    `from_pretrained` beside the path.
    """

    name: str
    class_name: str
    part_names: tuple[str, ...]
    make: Callable[[], dict[str, Part]]
    others: Mapping[str, list[str] | bool]
    files: Mapping[str, Any]
    version: str
    call: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    no_single: str = ""

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Made once: every damaged checkpoint starts from the same numbers, and nobody changes the dictionaries."""
        return self.make()

    @property
    def index(self) -> dict[str, Any]:
        """`model_index.json`."""
        parts = {name: [part.library, part.kind] for name, part in self.parts.items()}
        entries = {"_class_name": self.class_name, "_diffusers_version": self.version, **self.others, **parts}
        return dict(sorted(entries.items()))
