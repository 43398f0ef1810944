"""`.to()` after an offload with hooks finds tensors on meta and raises; their data is in the hooks, out of its sight.

    python move_after_offload.py

Shows with every accelerate and torch tried. Remove the hooks first: `remove_hook_from_module(model, recurse=True)`, or
`pipeline.remove_all_hooks()` in diffusers 0.28 and later. `save_pretrained` meets the same tensors.
"""

import sys

import accelerate
import torch

model = torch.nn.Linear(1, 1)
accelerate.cpu_offload(model, torch.device("cpu"))
try:
    model.to("cpu")
except NotImplementedError as error:
    print(error)
    sys.exit(0 if "Cannot copy out of meta tensor" in str(error) else 2)
sys.exit(3)
