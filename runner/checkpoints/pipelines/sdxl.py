"""What is a tiny Stable Diffusion XL? Two text encoders, the second stored as OpenCLIP stores it in the single file."""

from __future__ import annotations

from runner.checkpoints.clip import Clip
from runner.checkpoints.pipeline import Part, Pipeline
from runner.checkpoints.tokenizers import clip_files
from runner.checkpoints.unet import UNet
from runner.checkpoints.vae import Vae

__all__ = ["SDXL"]

_VERSION = "0.19.0.dev0"
_TEXT, _TEXT_2 = 32, 40
_SIZE_WIDTH = 8
"""Each of the six numbers about size and cropping becomes an embedding of this width."""


def _parts() -> dict[str, Part]:
    addition = 6 * _SIZE_WIDTH + _TEXT_2
    options = {
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": _SIZE_WIDTH,
        "attention_head_dim": [2, 4],
        "projection_class_embeddings_input_dim": addition,
        "transformer_layers_per_block": [1, 2],
        "use_linear_projection": True,
    }
    unet = UNet("sdxl/unet", _VERSION, _TEXT + _TEXT_2, depth=2, linear=True, addition=addition, options=options)
    second = Clip("sdxl/text_encoder_2", _TEXT_2, "gelu", projection=True)
    return {
        "unet": unet.part(),
        "vae": Vae("sdxl/vae", _VERSION, options={"force_upcast": True, "scaling_factor": 0.13025}).part(),
        "text_encoder": Clip("sdxl/text_encoder", _TEXT, "quick_gelu").part("conditioner.embedders.0.transformer."),
        "text_encoder_2": second.part("conditioner.embedders.1.model.", stores_ids=False, open_clip=True),
    }


SDXL = Pipeline(
    name="sdxl",
    class_name="StableDiffusionXLPipeline",
    part_names=("unet", "vae", "text_encoder", "text_encoder_2"),
    make=_parts,
    others={
        "force_zeros_for_empty_prompt": True,
        "scheduler": ["diffusers", "EulerDiscreteScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
    },
    files={
        "scheduler/scheduler_config.json": {
            "_class_name": "EulerDiscreteScheduler",
            "_diffusers_version": _VERSION,
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "clip_sample": False,
            "interpolation_type": "linear",
            "num_train_timesteps": 1000,
            "prediction_type": "epsilon",
            "sample_max_value": 1.0,
            "set_alpha_to_one": False,
            "skip_prk_steps": True,
            "steps_offset": 1,
            "timestep_spacing": "leading",
            "trained_betas": None,
            "use_karras_sigmas": False,
        },
        **clip_files("tokenizer"),
        **clip_files("tokenizer_2", pad="!"),
    },
    version=_VERSION,
    call={"guidance_scale": 5.0},
)
