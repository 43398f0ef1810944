"""CLIP keys as every published checkpoint has them fit no name of the class any more, and nothing is raised.

    python raw_clip_keys.py CHECKPOINT      a folder with `folder/text_encoder/`

Front ends that build the model empty and call `load_state_dict(strict=False, assign=True)` keep every tensor on meta.
Shows with transformers 5.6 and later, which dropped the prefix `text_model.`; `from_pretrained` renames the keys.
"""

import sys

import accelerate
import safetensors.torch
from transformers import CLIPTextConfig, CLIPTextModel

folder = sys.argv[1] + "/folder/text_encoder"
with accelerate.init_empty_weights():
    model = CLIPTextModel(CLIPTextConfig.from_pretrained(folder))
result = model.load_state_dict(safetensors.torch.load_file(folder + "/model.safetensors"), strict=False, assign=True)
left = sum(value.is_meta for value in model.parameters())
print(left, "parameters on meta;", len(result.missing_keys), "missing,", len(result.unexpected_keys), "unexpected keys")
sys.exit(0 if left == len(list(model.parameters())) else 3)
