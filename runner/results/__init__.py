"""From attempts to verdicts: what is written down, and what it means."""
