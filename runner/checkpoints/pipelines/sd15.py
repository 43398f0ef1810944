"""What is a tiny Stable Diffusion 1.5? The layout published on the hub, and the single file of CompVis."""

from __future__ import annotations

from runner.checkpoints.clip import Clip
from runner.checkpoints.pipeline import Part, Pipeline
from runner.checkpoints.tokenizers import clip_files
from runner.checkpoints.unet import UNet
from runner.checkpoints.vae import Vae

__all__ = ["SD15"]

_VERSION = "0.6.0"
_TEXT = 32


def _parts() -> dict[str, Part]:
    return {
        "unet": UNet("sd15/unet", _VERSION, context=_TEXT).part(),
        "vae": Vae("sd15/vae", _VERSION).part(),
        "text_encoder": Clip("sd15/text_encoder", _TEXT, "quick_gelu").part("cond_stage_model.transformer."),
    }


SD15 = Pipeline(
    name="sd15",
    class_name="StableDiffusionPipeline",
    part_names=("unet", "vae", "text_encoder"),
    make=_parts,
    others={
        "feature_extractor": ["transformers", "CLIPImageProcessor"],
        "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
    },
    files={
        "scheduler/scheduler_config.json": {
            "_class_name": "PNDMScheduler",
            "_diffusers_version": _VERSION,
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "clip_sample": False,
            "num_train_timesteps": 1000,
            "set_alpha_to_one": False,
            "skip_prk_steps": True,
            "steps_offset": 1,
            "trained_betas": None,
        },
        "feature_extractor/preprocessor_config.json": {
            "crop_size": 32,
            "do_center_crop": True,
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_resize": True,
            "feature_extractor_type": "CLIPFeatureExtractor",
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "resample": 3,
            "size": 32,
        },
        **clip_files("tokenizer"),
    },
    version=_VERSION,
    call={"guidance_scale": 7.5},
    options={"safety_checker": None, "requires_safety_checker": False},
)
