"""The pipelines that have a tiny checkpoint, by their name on the axis."""

from __future__ import annotations

from runner.checkpoints.pipeline import Pipeline
from runner.checkpoints.pipelines.flux import FLUX
from runner.checkpoints.pipelines.pixart_sigma import PIXART_SIGMA
from runner.checkpoints.pipelines.sd3 import SD3
from runner.checkpoints.pipelines.sd15 import SD15
from runner.checkpoints.pipelines.sdxl import SDXL

__all__ = ["PIPELINES"]

PIPELINES: dict[str, Pipeline] = {pipeline.name: pipeline for pipeline in (SD15, SDXL, SD3, FLUX, PIXART_SIGMA)}
