"""From `matrix.yaml` to verdicts."""
