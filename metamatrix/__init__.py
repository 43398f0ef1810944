"""The command line, and the only package that knows both `runner` and `reports`."""

__version__ = "0.1.0"
