"""Tiny deterministic checkpoints, made without the libraries under test."""
