"""The T5 of an SD3 single file that stores its embedding once keeps the second name on meta.

    python t5_of_a_single_file_loses_its_tie.py CHECKPOINT      a folder with `folder/` and `single.safetensors`

diffusers fills the encoder name by name and does not tie it again. With transformers 4 the two names are one parameter
in the empty model already; with transformers 5 they are two. Shows with transformers 5 and every diffusers tried.
"""

import sys

from diffusers import StableDiffusion3Pipeline

place = sys.argv[1]
pipeline = StableDiffusion3Pipeline.from_single_file(
    place + "/single.safetensors", config=place + "/folder", local_files_only=True
)
names = [name for name, value in pipeline.text_encoder_3.named_parameters(remove_duplicate=False) if value.is_meta]
print("on meta:", names)
sys.exit(0 if names == ["encoder.embed_tokens.weight"] else 3)
