"""Which axes are there, and which values do the probe's axes know?"""

from __future__ import annotations

from collections.abc import Mapping

from runner.checkpoints import damage
from runner.checkpoints.pipelines import PIPELINES
from runner.probe.lifecycles import LIFECYCLES
from runner.probe.loads import LOADS
from runner.probe.offloads import OFFLOADS

__all__ = ["ENVIRONMENT", "PROBE", "PROBE_VALUES", "REBUILT", "normal_name", "pointless"]

ENVIRONMENT = ("python", "torch", "diffusers", "transformers", "accelerate", "safetensors")
"""The environment axes that every matrix may use; any further package name is one too."""

PROBE_VALUES: dict[str, tuple[str, ...]] = {
    "pipeline": tuple(PIPELINES),
    "checkpoint": damage.NAMES,
    "load": tuple(LOADS),
    "offload": tuple(OFFLOADS),
    "lifecycle": tuple(LIFECYCLES),
    "dtype": ("float32",),
    "runner": ("cpu", "cuda"),
}
"""Probe axes and the values that this release can run. A first value stands where a matrix leaves an axis out."""

PROBE = tuple(PROBE_VALUES)

REBUILT = {
    "empty_init-raw": "our reconstruction of loading into an empty model, keys as stored",
    "empty_init-remapped": "our reconstruction of loading into an empty model, keys renamed to what the class wants",
}
"""Loads that are no library's own path, with what they are."""


def pointless(probe: Mapping[str, str]) -> str | None:
    """Why these probe axes can say nothing together in any version, or None where they can."""
    pipeline = PIPELINES[probe["pipeline"]]
    if probe["load"] == "single_file" and pipeline.no_single:
        return pipeline.no_single
    if probe["lifecycle"] == "used-folder" and probe["offload"] != "disk":
        return "only offload to disk has a folder"
    return damage.not_applicable(probe["checkpoint"], pipeline.name)


def normal_name(name: str) -> str:
    """A package's name as axes write it: `huggingface-hub` and `huggingface_hub` are one axis."""
    return name.lower().replace("-", "_").replace(".", "_")
