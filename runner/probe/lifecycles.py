"""What happens to a pipeline after its first image? Sequences of steps that programs really take, the guard after each.

A lifecycle says what it does through `Acts`, which runs it, looks at every tensor, and stops at the first finding.
Whatever it does, the same prompt and seed must give the same image again.
"""

from __future__ import annotations

import copy
import functools
import os
from typing import Any, Callable, Dict, NamedTuple, Protocol

from runner.probe.loads import Unsupported, model_components
from runner.probe.offloads import OFFLOADS
from runner.probe.step import ANOTHER_PROMPT, PROMPT

__all__ = ["LIFECYCLES", "Acts", "Lifecycle"]


class Acts(Protocol):
    """What a lifecycle may do with the pipeline of its cell."""

    pipeline: Any
    offload: str
    folder: str
    device: Any

    def library(self, during: str, text: str, work: Callable[[], Any]) -> Any:
        """Call into a library; what it raises is a finding of what was being done (`load`, `offload`, `step`)."""

    def guard(self) -> None:
        """Look at every tensor, as the mode that is active allows; a finding ends the cell."""

    def paint(self, text: str, prompt: str = PROMPT) -> None:
        """Paint, guard, and compare with the first image where the prompt is the same."""

    def apply(self, mode: str) -> None:
        """Offload by another mode, or the same again, to a new folder; guard."""

    def release(self) -> None:
        """Undo the mode that is active; guard."""

    def load(self, folder: str = "") -> None:
        """Load by the cell's own strategy, or by `from_pretrained(folder)`; guard."""


class Lifecycle(NamedTuple):
    """`before` runs between load and offload, `after` follows the first image; both may raise Unsupported."""

    before: Callable[[Acts], None]
    after: Callable[[Acts], None]


def _nothing(acts: Acts) -> None:
    """Most lifecycles begin with the offload."""


def _single(acts: Acts) -> None:
    acts.release()


def _two_generations(acts: Acts) -> None:
    """Another prompt, and the first one again: hooks must put everything back each time."""
    acts.paint("another prompt", ANOTHER_PROMPT)
    acts.paint("the first prompt again")
    acts.release()


_NEXT = {"none": "model", "model": "sequential", "sequential": "model", "disk": "sequential"}


def _other_offload(acts: Acts) -> None:
    """Offload, remove the hooks, offload another way."""
    acts.release()
    acts.apply(_NEXT.get(acts.offload, "none"))
    acts.paint("after the other offload")
    acts.release()


def _move(acts: Acts) -> None:
    """Offload, then `.to()`, which a program calls that does not know of the offload."""
    acts.library("offload", "pipeline.to({})".format(acts.device), lambda: acts.pipeline.to(acts.device))
    acts.guard()
    acts.paint("after .to()")
    acts.release()


def _unload_and_reload(acts: Acts) -> None:
    """Release, move every component to meta to free its memory, and load again."""
    acts.release()
    for name, component in model_components(acts.pipeline).items():
        acts.library("offload", "{}.to(meta)".format(name), functools.partial(component.to, "meta"))
    acts.load()
    acts.apply(acts.offload)
    acts.paint("after the reload")
    acts.release()


def _shared_component(acts: Acts) -> None:
    """A second pipeline of the same components: what one of them has offloaded, the other must be able to use."""
    first = acts.pipeline
    second = acts.library("load", "{}(**components)".format(type(first).__name__), lambda: _of_the_same_parts(first))
    acts.pipeline = second
    acts.guard()
    acts.paint("the second pipeline, while the first is offloaded")
    acts.pipeline = first
    acts.paint("the first pipeline again")
    acts.release()
    acts.pipeline = second
    acts.paint("the second pipeline, after the release of the first")


def _of_the_same_parts(pipeline: Any) -> Any:
    made = type(pipeline)(**pipeline.components)
    made.set_progress_bar_config(disable=True)
    return made


def _fill_folder(acts: Acts) -> None:
    """Another checkpoint of the same shape is offloaded into the folder that this one will use."""
    import torch

    if acts.offload != "disk":
        raise Unsupported("only offload to disk has a folder")
    own = acts.pipeline
    with torch.no_grad():
        parts = {name: copy.deepcopy(part) for name, part in model_components(own).items()}
        for part in parts.values():
            for parameter in part.parameters():
                parameter.mul_(1.5)
    acts.pipeline = acts.library("load", "a second checkpoint", lambda: type(own)(**{**own.components, **parts}))
    apply = OFFLOADS[acts.offload].apply
    acts.library("offload", "its offload", lambda: apply(acts.pipeline, acts.device, acts.folder))
    acts.pipeline = own


def _save_and_load(acts: Acts) -> None:
    """Save the pipeline as it is, offloaded or not, and load what was saved."""
    place = os.path.join(os.path.dirname(acts.folder), "saved")
    acts.library("offload", "save_pretrained(folder)", lambda: acts.pipeline.save_pretrained(place))
    acts.release()
    acts.load(place)
    acts.apply(acts.offload)
    acts.paint("what was saved")
    acts.release()


LIFECYCLES: Dict[str, Lifecycle] = {
    "single": Lifecycle(_nothing, _single),
    "two-generations": Lifecycle(_nothing, _two_generations),
    "other-offload": Lifecycle(_nothing, _other_offload),
    "move": Lifecycle(_nothing, _move),
    "unload-reload": Lifecycle(_nothing, _unload_and_reload),
    "shared-component": Lifecycle(_nothing, _shared_component),
    "used-folder": Lifecycle(_fill_folder, _single),
    "save-load": Lifecycle(_nothing, _save_and_load),
}
