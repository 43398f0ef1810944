"""The T5 of an SD3 single file is left in training mode, so that dropout makes every image another one.

    python t5_of_a_single_file_trains.py CHECKPOINT      a folder with `folder/` and `single.safetensors`

diffusers fills the encoder itself (`create_diffusers_t5_model_from_checkpoint`) and never calls `eval()`; its CLIP
twin does. Shows with every diffusers tried, 0.32 to 0.42.
"""

import sys

from diffusers import StableDiffusion3Pipeline

place = sys.argv[1]
pipeline = StableDiffusion3Pipeline.from_single_file(
    place + "/single.safetensors", config=place + "/folder", local_files_only=True
)
print(
    "text_encoder.training", pipeline.text_encoder.training, "text_encoder_3.training", pipeline.text_encoder_3.training
)
sys.exit(0 if pipeline.text_encoder_3.training and not pipeline.text_encoder.training else 3)
