"""The probe on the oldest stack that it supports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import run_text

pytestmark = pytest.mark.nightly

MATRIX = """
axes:
  python: "3.9"
  torch: "2.0.1"
  diffusers: "0.21.4"
  transformers: "4.33.3"
  accelerate: "0.22.0"
  huggingface_hub: "0.17.3"
  numpy: "1.26.4"
  load: [pretrained, components, single_file, empty_init-remapped]
  checkpoint: [canonical, missing-key-unet]
  offload: [none, model, sequential, disk, group_leaf]
"""


def test_the_probe_works_on_python_3_9_torch_2_0_and_diffusers_0_21(tmp_path: Path) -> None:
    """Whole-pipeline loads pass in every mode that the old stack has; what it lacks is unsupported; no harness fault."""
    cells = run_text(tmp_path, MATRIX)["cells"]
    found = {(c["axes"]["checkpoint"], c["axes"]["load"], c["axes"]["offload"]): c["verdict"] for c in cells}
    assert not [cell for cell in cells if cell["class"] == "no answer"]
    for load in ("pretrained", "components"):
        for offload in ("none", "sequential", "disk"):
            assert found["canonical", load, offload] == "pass"
        assert found["canonical", load, "model"] == "unsupported"  # it takes a device and uses cuda all the same
        assert found["missing-key-unet", load, "none"] == "refused"
        assert found["canonical", load, "group_leaf"] == "unsupported"
    assert found["canonical", "single_file", "none"] == "unsupported"
    assert found["canonical", "empty_init-remapped", "none"] == "unsupported"
