"""What is a tiny Stable Diffusion 1.5? Its tensors, configurations and original key names.

Key names and shapes follow the layout published on the hub (CLIP keys begin with `text_model.`);
only the widths are small. `original_key` gives the name of each tensor in the single-file layout of
the CompVis release.
"""

from __future__ import annotations

import re
from functools import cache

from runner.checkpoints.tensors import Tensor, integers, seeded

__all__ = ["COMPONENTS", "CONFIGS", "DERIVED", "MODEL_INDEX", "TIES", "original", "tensors"]

COMPONENTS = ("unet", "vae", "text_encoder")
WIDTHS = (8, 16)
TEXT_WIDTH, TEXT_INNER, TEXT_LAYERS, TEXT_LENGTH = 32, 37, 2, 77
VOCABULARY = 517
LATENT = 4
TIME = 4 * WIDTHS[0]

TIES: tuple[tuple[str, str, str], ...] = ()
"""Pairs (component, name, name) that must be one tensor. SD1.5 ties none."""

DERIVED = {"text_encoder": {"text_model.embeddings.position_ids": TEXT_LENGTH}}
"""Tensors that the classes compute themselves: component -> name -> n, meaning 0 … n-1 as int64, shape (1, n)."""

MODEL_INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "_diffusers_version": "0.6.0",
    "feature_extractor": ["transformers", "CLIPImageProcessor"],
    "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}

CONFIGS: dict[str, dict[str, object]] = {
    "unet/config.json": {
        "_class_name": "UNet2DConditionModel",
        "_diffusers_version": "0.6.0",
        "act_fn": "silu",
        "attention_head_dim": 4,
        "block_out_channels": list(WIDTHS),
        "center_input_sample": False,
        "cross_attention_dim": TEXT_WIDTH,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "downsample_padding": 1,
        "flip_sin_to_cos": True,
        "freq_shift": 0,
        "in_channels": LATENT,
        "layers_per_block": 1,
        "mid_block_scale_factor": 1,
        "norm_eps": 1e-05,
        "norm_num_groups": 4,
        "out_channels": LATENT,
        "sample_size": 16,
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    },
    "vae/config.json": {
        "_class_name": "AutoencoderKL",
        "_diffusers_version": "0.6.0",
        "act_fn": "silu",
        "block_out_channels": list(WIDTHS),
        "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D"],
        "in_channels": 3,
        "latent_channels": LATENT,
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "out_channels": 3,
        "sample_size": 32,
        "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D"],
    },
    "text_encoder/config.json": {
        "architectures": ["CLIPTextModel"],
        "attention_dropout": 0.0,
        "bos_token_id": VOCABULARY - 2,
        "dropout": 0.0,
        "eos_token_id": VOCABULARY - 1,
        "hidden_act": "quick_gelu",
        "hidden_size": TEXT_WIDTH,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": TEXT_INNER,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": TEXT_LENGTH,
        "model_type": "clip_text_model",
        "num_attention_heads": 4,
        "num_hidden_layers": TEXT_LAYERS,
        "pad_token_id": 1,
        "torch_dtype": "float32",
        "vocab_size": VOCABULARY,
    },
    "scheduler/scheduler_config.json": {
        "_class_name": "PNDMScheduler",
        "_diffusers_version": "0.6.0",
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
}


class _Shapes:
    """Collects the layers of one component: every weight spread so that signals keep their size."""

    def __init__(self, component: str) -> None:
        self.component = component
        self.tensors: dict[str, Tensor] = {}

    def _add(self, name: str, shape: tuple[int, ...], centre: float, spread: float) -> None:
        self.tensors[name] = seeded(f"sd15/{self.component}/{name}", shape, centre, spread)

    def norm(self, name: str, width: int) -> None:
        self._add(f"{name}.weight", (width,), 1.0, 0.25)
        self._add(f"{name}.bias", (width,), 0.0, 0.25)

    def linear(self, name: str, into: int, out: int, bias: bool = True) -> None:
        self._add(f"{name}.weight", (out, into), 0.0, (3.0 / into) ** 0.5)
        if bias:
            self._add(f"{name}.bias", (out,), 0.0, 0.1)

    def conv(self, name: str, into: int, out: int, size: int = 3) -> None:
        self._add(f"{name}.weight", (out, into, size, size), 0.0, (3.0 / (into * size * size)) ** 0.5)
        self._add(f"{name}.bias", (out,), 0.0, 0.1)

    def table(self, name: str, rows: int, width: int) -> None:
        self._add(f"{name}.weight", (rows, width), 0.0, 1.0)

    def resnet(self, name: str, into: int, out: int, time: int | None = None) -> None:
        self.norm(f"{name}.norm1", into)
        self.conv(f"{name}.conv1", into, out)
        if time is not None:
            self.linear(f"{name}.time_emb_proj", time, out)
        self.norm(f"{name}.norm2", out)
        self.conv(f"{name}.conv2", out, out)
        if into != out:
            self.conv(f"{name}.conv_shortcut", into, out, 1)

    def transformer(self, name: str, width: int) -> None:
        self.norm(f"{name}.norm", width)
        self.conv(f"{name}.proj_in", width, width, 1)
        block = f"{name}.transformer_blocks.0"
        for index, (attention, context) in enumerate((("attn1", width), ("attn2", TEXT_WIDTH)), start=1):
            self.norm(f"{block}.norm{index}", width)
            self.linear(f"{block}.{attention}.to_q", width, width, bias=False)
            self.linear(f"{block}.{attention}.to_k", context, width, bias=False)
            self.linear(f"{block}.{attention}.to_v", context, width, bias=False)
            self.linear(f"{block}.{attention}.to_out.0", width, width)
        self.norm(f"{block}.norm3", width)
        self.linear(f"{block}.ff.net.0.proj", width, 8 * width)
        self.linear(f"{block}.ff.net.2", 4 * width, width)
        self.conv(f"{name}.proj_out", width, width, 1)

    def attention(self, name: str, width: int) -> None:
        self.norm(f"{name}.group_norm", width)
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            self.linear(f"{name}.{part}", width, width)


def _unet() -> dict[str, Tensor]:
    narrow, wide = WIDTHS
    unet = _Shapes("unet")
    unet.conv("conv_in", LATENT, narrow)
    unet.linear("time_embedding.linear_1", narrow, TIME)
    unet.linear("time_embedding.linear_2", TIME, TIME)
    unet.resnet("down_blocks.0.resnets.0", narrow, narrow, TIME)
    unet.conv("down_blocks.0.downsamplers.0.conv", narrow, narrow)
    unet.transformer("down_blocks.1.attentions.0", wide)
    unet.resnet("down_blocks.1.resnets.0", narrow, wide, TIME)
    unet.transformer("mid_block.attentions.0", wide)
    unet.resnet("mid_block.resnets.0", wide, wide, TIME)
    unet.resnet("mid_block.resnets.1", wide, wide, TIME)
    unet.transformer("up_blocks.0.attentions.0", wide)
    unet.transformer("up_blocks.0.attentions.1", wide)
    unet.resnet("up_blocks.0.resnets.0", wide + wide, wide, TIME)
    unet.resnet("up_blocks.0.resnets.1", wide + narrow, wide, TIME)
    unet.conv("up_blocks.0.upsamplers.0.conv", wide, wide)
    unet.resnet("up_blocks.1.resnets.0", wide + narrow, narrow, TIME)
    unet.resnet("up_blocks.1.resnets.1", narrow + narrow, narrow, TIME)
    unet.norm("conv_norm_out", narrow)
    unet.conv("conv_out", narrow, LATENT)
    return unet.tensors


def _vae() -> dict[str, Tensor]:
    narrow, wide = WIDTHS
    vae = _Shapes("vae")
    vae.conv("encoder.conv_in", 3, narrow)
    vae.resnet("encoder.down_blocks.0.resnets.0", narrow, narrow)
    vae.conv("encoder.down_blocks.0.downsamplers.0.conv", narrow, narrow)
    vae.resnet("encoder.down_blocks.1.resnets.0", narrow, wide)
    vae.conv("decoder.conv_in", LATENT, wide)
    for side, out in (("encoder", 2 * LATENT), ("decoder", 3)):
        vae.attention(f"{side}.mid_block.attentions.0", wide)
        vae.resnet(f"{side}.mid_block.resnets.0", wide, wide)
        vae.resnet(f"{side}.mid_block.resnets.1", wide, wide)
        last = wide if side == "encoder" else narrow
        vae.norm(f"{side}.conv_norm_out", last)
        vae.conv(f"{side}.conv_out", last, out)
    vae.resnet("decoder.up_blocks.0.resnets.0", wide, wide)
    vae.resnet("decoder.up_blocks.0.resnets.1", wide, wide)
    vae.conv("decoder.up_blocks.0.upsamplers.0.conv", wide, wide)
    vae.resnet("decoder.up_blocks.1.resnets.0", wide, narrow)
    vae.resnet("decoder.up_blocks.1.resnets.1", narrow, narrow)
    vae.conv("quant_conv", 2 * LATENT, 2 * LATENT, 1)
    vae.conv("post_quant_conv", LATENT, LATENT, 1)
    return vae.tensors


def _text_encoder() -> dict[str, Tensor]:
    text = _Shapes("text_encoder")
    text.table("text_model.embeddings.token_embedding", VOCABULARY, TEXT_WIDTH)
    text.table("text_model.embeddings.position_embedding", TEXT_LENGTH, TEXT_WIDTH)
    for layer in range(TEXT_LAYERS):
        name = f"text_model.encoder.layers.{layer}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            text.linear(f"{name}.self_attn.{part}", TEXT_WIDTH, TEXT_WIDTH)
        text.norm(f"{name}.layer_norm1", TEXT_WIDTH)
        text.linear(f"{name}.mlp.fc1", TEXT_WIDTH, TEXT_INNER)
        text.linear(f"{name}.mlp.fc2", TEXT_INNER, TEXT_WIDTH)
        text.norm(f"{name}.layer_norm2", TEXT_WIDTH)
    text.norm("text_model.final_layer_norm", TEXT_WIDTH)
    return text.tensors


@cache
def tensors() -> dict[str, dict[str, Tensor]]:
    """Every stored tensor: component -> hub name -> tensor. The published file keeps `position_ids` too.

    Computed once: every damaged checkpoint starts from the same numbers, and nobody changes the dictionaries.
    """
    made = {"unet": _unet(), "vae": _vae(), "text_encoder": _text_encoder()}
    for component, names in DERIVED.items():
        for name, count in names.items():
            made[component][name] = integers(range(count), (1, count))
    return made


_RESNET = (
    ("norm1", "in_layers.0"),
    ("conv1", "in_layers.2"),
    ("norm2", "out_layers.0"),
    ("conv2", "out_layers.3"),
    ("time_emb_proj", "emb_layers.1"),
    ("conv_shortcut", "skip_connection"),
)
_UNET = (
    (r"^time_embedding\.linear_1", "time_embed.0"),
    (r"^time_embedding\.linear_2", "time_embed.2"),
    (r"^conv_in", "input_blocks.0.0"),
    (r"^conv_norm_out", "out.0"),
    (r"^conv_out", "out.2"),
    (r"^down_blocks\.0\.resnets\.0", "input_blocks.1.0"),
    (r"^down_blocks\.0\.downsamplers\.0\.conv", "input_blocks.2.0.op"),
    (r"^down_blocks\.1\.resnets\.0", "input_blocks.3.0"),
    (r"^down_blocks\.1\.attentions\.0", "input_blocks.3.1"),
    (r"^mid_block\.resnets\.0", "middle_block.0"),
    (r"^mid_block\.attentions\.0", "middle_block.1"),
    (r"^mid_block\.resnets\.1", "middle_block.2"),
    (r"^up_blocks\.0\.resnets\.(\d)", r"output_blocks.\1.0"),
    (r"^up_blocks\.0\.attentions\.(\d)", r"output_blocks.\1.1"),
    (r"^up_blocks\.0\.upsamplers\.0", "output_blocks.1.2"),
    (r"^up_blocks\.1\.resnets\.0", "output_blocks.2.0"),
    (r"^up_blocks\.1\.resnets\.1", "output_blocks.3.0"),
)
_VAE = (
    (r"\.mid_block\.resnets\.0", ".mid.block_1"),
    (r"\.mid_block\.resnets\.1", ".mid.block_2"),
    (r"\.mid_block\.attentions\.0\.group_norm", ".mid.attn_1.norm"),
    (r"\.mid_block\.attentions\.0\.to_out\.0", ".mid.attn_1.proj_out"),
    (r"\.mid_block\.attentions\.0\.to_([qkv])", r".mid.attn_1.\1"),
    (r"\.down_blocks\.(\d)\.resnets\.(\d)", r".down.\1.block.\2"),
    (r"\.down_blocks\.(\d)\.downsamplers\.0", r".down.\1.downsample"),
    # The decoder of the original counts its blocks from the image, ours from the latents.
    (r"\.up_blocks\.0\.resnets\.(\d)", r".up.1.block.\1"),
    (r"\.up_blocks\.1\.resnets\.(\d)", r".up.0.block.\1"),
    (r"\.up_blocks\.0\.upsamplers\.0", ".up.1.upsample"),
    (r"conv_norm_out", "norm_out"),
    (r"conv_shortcut", "nin_shortcut"),
)


def _renamed(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def original(component: str, name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Name and tensor in the single-file layout (attention of the VAE is a 1x1 convolution there)."""
    if component == "unet":
        if ".resnets." in name:
            head, _, tail = name.partition(".resnets.")
            index, _, part = tail.partition(".")
            for ours, theirs in _RESNET:
                part = re.sub(rf"^{ours}\b", theirs, part)
            name = f"{head}.resnets.{index}.{part}"
        return "model.diffusion_model." + _renamed(name, _UNET), tensor
    if component == "vae":
        renamed = _renamed(name, _VAE)
        if ".attn_1." in renamed and len(tensor.shape) == 2:
            tensor = tensor.reshaped(*tensor.shape, 1, 1)
        return "first_stage_model." + renamed, tensor
    return "cond_stage_model.transformer." + name, tensor
