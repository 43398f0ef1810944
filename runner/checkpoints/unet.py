"""What is a tiny UNet? Tensors and configuration of a UNet2DConditionModel, and its names in the CompVis layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Tensors, prefixed, renamed
from runner.checkpoints.vae import LATENT

__all__ = ["WIDTHS", "UNet"]

WIDTHS = (8, 16)
_TIME = 4 * WIDTHS[0]


@dataclass(frozen=True)
class UNet:
    """A UNet of two widths, attention at the wider one.

    `context` is the width of the text, `depth` how many transformer blocks an attention has, `linear` whether it
    projects with matrices, `addition` the width of SDXL's second conditioning; `options` further configuration.
    """

    seed: str
    version: str
    context: int
    depth: int = 1
    linear: bool = False
    addition: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> Tensors:
        narrow, wide = WIDTHS
        unet = Layers(self.seed)
        unet.conv("conv_in", LATENT, narrow)
        unet.linear("time_embedding.linear_1", narrow, _TIME)
        unet.linear("time_embedding.linear_2", _TIME, _TIME)
        if self.addition:
            unet.linear("add_embedding.linear_1", self.addition, _TIME)
            unet.linear("add_embedding.linear_2", _TIME, _TIME)
        unet.resnet("down_blocks.0.resnets.0", narrow, narrow, _TIME)
        unet.conv("down_blocks.0.downsamplers.0.conv", narrow, narrow)
        self._transformer(unet, "down_blocks.1.attentions.0", wide)
        unet.resnet("down_blocks.1.resnets.0", narrow, wide, _TIME)
        self._transformer(unet, "mid_block.attentions.0", wide)
        unet.resnet("mid_block.resnets.0", wide, wide, _TIME)
        unet.resnet("mid_block.resnets.1", wide, wide, _TIME)
        self._transformer(unet, "up_blocks.0.attentions.0", wide)
        self._transformer(unet, "up_blocks.0.attentions.1", wide)
        unet.resnet("up_blocks.0.resnets.0", wide + wide, wide, _TIME)
        unet.resnet("up_blocks.0.resnets.1", wide + narrow, wide, _TIME)
        unet.conv("up_blocks.0.upsamplers.0.conv", wide, wide)
        unet.resnet("up_blocks.1.resnets.0", wide + narrow, narrow, _TIME)
        unet.resnet("up_blocks.1.resnets.1", narrow + narrow, narrow, _TIME)
        unet.norm("conv_norm_out", narrow)
        unet.conv("conv_out", narrow, LATENT)
        return unet.tensors

    def _transformer(self, unet: Layers, name: str, width: int) -> None:
        unet.norm(f"{name}.norm", width)
        for end in ("proj_in", "proj_out"):
            unet.linear(f"{name}.{end}", width, width) if self.linear else unet.conv(f"{name}.{end}", width, width, 1)
        for index in range(self.depth):
            block = f"{name}.transformer_blocks.{index}"
            for number, (attention, context) in enumerate((("attn1", width), ("attn2", self.context)), start=1):
                unet.norm(f"{block}.norm{number}", width)
                unet.linear(f"{block}.{attention}.to_q", width, width, bias=False)
                unet.linear(f"{block}.{attention}.to_k", context, width, bias=False)
                unet.linear(f"{block}.{attention}.to_v", context, width, bias=False)
                unet.linear(f"{block}.{attention}.to_out.0", width, width)
            unet.norm(f"{block}.norm3", width)
            unet.feed_forward(f"{block}.ff", width, gated=True)

    def config(self) -> dict[str, Any]:
        return {
            "_class_name": "UNet2DConditionModel",
            "_diffusers_version": self.version,
            "act_fn": "silu",
            "attention_head_dim": 4,
            "block_out_channels": list(WIDTHS),
            "center_input_sample": False,
            "cross_attention_dim": self.context,
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
            **self.options,
        }

    def part(self) -> Part:
        return Part(
            library="diffusers",
            kind="UNet2DConditionModel",
            config=self.config(),
            tensors=self.tensors(),
            loses="mid_block.resnets.0.conv1.weight",
            original=_original,
        )


_RESNET = (
    (r"^norm1\b", "in_layers.0"),
    (r"^conv1\b", "in_layers.2"),
    (r"^norm2\b", "out_layers.0"),
    (r"^conv2\b", "out_layers.3"),
    (r"^time_emb_proj\b", "emb_layers.1"),
    (r"^conv_shortcut\b", "skip_connection"),
)
_NAMES = (
    (r"^time_embedding\.linear_1", "time_embed.0"),
    (r"^time_embedding\.linear_2", "time_embed.2"),
    (r"^add_embedding\.linear_1", "label_emb.0.0"),
    (r"^add_embedding\.linear_2", "label_emb.0.2"),
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


def _original(tensors: Tensors) -> Tensors:
    found: Tensors = {}
    for name, tensor in tensors.items():
        head, resnet, tail = name.partition(".resnets.")
        index, _, part = tail.partition(".")
        here = f"{head}{resnet}{index}.{renamed(part, _RESNET)}" if resnet else name
        found[renamed(here, _NAMES)] = tensor
    return prefixed(found, "model.diffusion_model.")
