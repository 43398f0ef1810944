"""A folder that another model was offloaded to gives its weights to the next model, without a word.

    python used_offload_folder.py

`accelerate.disk_offload` writes nothing where the folder already has an `index.json`. Shows with every accelerate
tried, 0.30 to 1.15. Use an empty folder for each model.
"""

import sys
import tempfile

import accelerate
import torch

folder = tempfile.mkdtemp()
for value in (1.0, 2.0):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, value)
    accelerate.disk_offload(model, folder, torch.device("cpu"))
found = float(model(torch.ones(1)))
print("the second model has the weight 2.0, and computes with", found)
sys.exit(0 if found == 1.0 else 3)
