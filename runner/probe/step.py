"""Does the pipeline paint? A seeded two-step txt2img, run twice, compared with what is known to be right.

An image barely feels a text encoder, so outputs of components are compared too: what the text encoder
gives, the last noise prediction, the latents that reach the decoder.
"""

from __future__ import annotations

import base64
import math
from array import array
from typing import Any, Dict, List, Optional, Tuple

from runner.probe import words

__all__ = [
    "ANOTHER_PROMPT",
    "GOLDEN_TOLERANCE",
    "PROMPT",
    "REFERENCE_TOLERANCE",
    "compare",
    "judge",
    "paint",
    "to_plain",
]

PROMPT = "a low flower"
ANOTHER_PROMPT = "the slow ring"
REFERENCE_TOLERANCE = 1e-6
"""Largest difference from the reference of the same environment and machine (measured: none), as `compare` gives it."""
GOLDEN_TOLERANCE = 2e-5
"""The same for the golden arrays, which another processor computed.

Measured with the instruction sets that torch, oneDNN and MKL can be told to use (SSE4.1, AVX2, AVX-512): 4e-6.
"""
_CONSTANT = 1e-6
_TEXT = "prompt_embeds"

Arrays = Dict[str, Any]


class _Taps:
    """Listens to components while they work, and takes its ears away again."""

    def __init__(self, pipeline: Any) -> None:
        self.heard: Dict[str, List[Any]] = {}
        self._handles: List[Any] = []
        for end in ("", "_2", "_3"):
            self._tap(getattr(pipeline, "text_encoder" + end, None), _TEXT + end, False)
        denoiser = getattr(pipeline, "unet", None)
        self._tap(getattr(pipeline, "transformer", None) if denoiser is None else denoiser, "noise_pred", False)
        vae = getattr(pipeline, "vae", None)
        entrance = getattr(vae, "post_quant_conv", None)
        self._tap(getattr(vae, "decoder", None) if entrance is None else entrance, "latents", True)

    def _tap(self, module: Any, name: str, before: bool) -> None:
        if module is None:
            return

        def hear(_module: Any, arguments: Any, *result: Any) -> None:
            value = arguments[0] if before else result[0]
            self.heard.setdefault(name, []).append(_first_tensor(value))

        register = module.register_forward_pre_hook if before else module.register_forward_hook
        self._handles.append(register(hear))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    def arrays(self) -> Arrays:
        import torch

        found: Arrays = {}
        for name, values in self.heard.items():
            tensors = [value.detach().float().cpu() for value in values if value is not None]
            if tensors:
                found[name] = torch.cat(tensors) if name.startswith(_TEXT) else tensors[-1]
        return found


def _first_tensor(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value
    try:
        return value[0]
    except (TypeError, KeyError, IndexError):
        return None


def paint(pipeline: Any, options: Dict[str, Any], prompt: str = PROMPT) -> Arrays:
    """One image (height, width, 3) in 0 … 1 and the components' outputs, as float32 CPU tensors.

    `options` are the arguments of the call that differ from pipeline to pipeline.
    """
    import torch

    taps = _Taps(pipeline)
    try:
        with torch.no_grad():
            result = pipeline(
                prompt,
                num_inference_steps=2,
                height=32,
                width=32,
                output_type="pt",
                generator=torch.Generator("cpu").manual_seed(0),
                **options,
            )
    finally:
        taps.close()
    arrays = taps.arrays()
    arrays["image"] = result.images[0].detach().float().cpu().permute(1, 2, 0).contiguous()
    return arrays


def judge(first: Arrays, second: Arrays) -> List[Dict[str, Any]]:
    """What one can say of two identical runs without knowing the right answer."""
    import torch

    findings = []
    for name in sorted(first):
        if not bool(torch.isfinite(first[name]).all()):
            findings.append(words.finding(words.BAD_OUTPUT, "{} holds NaN or Inf".format(name)))
    if not findings and float(first["image"].std()) < _CONSTANT:
        findings.append(words.finding(words.BAD_OUTPUT, "the image is constant"))
    for name in sorted(set(first) | set(second)):
        if name not in first or name not in second or not torch.equal(first[name], second[name]):
            if not findings:
                findings.append(words.finding(words.BAD_OUTPUT, "two identical runs differ in {}".format(name)))
    return findings


def compare(arrays: Arrays, plain: Dict[str, Any]) -> Tuple[Optional[float], str]:
    """(largest difference, name of the array that has it) against arrays in plain form.

    The difference is |a - b| / max(1, the largest |b| of the array): rounding errors of a sum are as large as its
    largest terms, whatever comes out. None where names or shapes differ or a value is not finite.
    """

    worst, where = 0.0, ""
    for name in sorted(set(arrays) | set(plain)):
        if name not in arrays or name not in plain:
            return None, name
        other = _from_plain(plain[name])
        if tuple(other.shape) != tuple(arrays[name].shape):
            return None, name
        difference = float((arrays[name] - other).abs().max() / other.abs().max().clamp(min=1.0))
        if not math.isfinite(difference):
            return None, name
        if difference > worst or not where:
            worst, where = max(difference, worst), name
    return worst, where


def to_plain(arrays: Arrays) -> Dict[str, Any]:
    """Arrays for the channel and for files: {"shape": […], "data": base64 of little-endian float32}."""
    return {
        name: {
            "shape": [int(size) for size in tensor.shape],
            "data": base64.b64encode(array("f", tensor.flatten().tolist()).tobytes()).decode("ascii"),
        }
        for name, tensor in arrays.items()
    }


def _from_plain(entry: Dict[str, Any]) -> Any:
    import torch

    values = array("f")
    values.frombytes(base64.b64decode(entry["data"]))
    return torch.tensor(values.tolist(), dtype=torch.float32).reshape(entry["shape"])
