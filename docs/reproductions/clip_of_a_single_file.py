"""A single file of SD1.5 or SDXL cannot be loaded: diffusers before 0.39 reads `model.text_model`, which transformers 5.6 has moved.

    python clip_of_a_single_file.py CHECKPOINT      a folder with `folder/` and `single.safetensors`

Shows with: diffusers 0.28 to 0.38 and transformers 5.6 or later. Mended in diffusers 0.39.
https://github.com/huggingface/diffusers/issues/13833
"""

import sys

from diffusers import StableDiffusionPipeline

place = sys.argv[1]
try:
    StableDiffusionPipeline.from_single_file(
        place + "/single.safetensors", config=place + "/folder", local_files_only=True
    )
except AttributeError as error:
    print(error)
    sys.exit(0 if "has no attribute 'text_model'" in str(error) else 2)
sys.exit(3)
