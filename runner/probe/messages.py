"""What does a library say while it loads? Its warnings, and the keys that they name."""

from __future__ import annotations

import logging
import re
import warnings
from typing import Any, Dict, Iterable, List

__all__ = ["Recorder"]

_LIBRARIES = ("diffusers", "transformers", "accelerate")
_KEY = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_MISSING = re.compile(r"missing|newly initialized|not initialized", re.IGNORECASE)
_UNEXPECTED = re.compile(r"unexpected|not used", re.IGNORECASE)
_KEPT = 40
_LENGTH = 2000


class Recorder(logging.Handler):
    """Keeps warnings of the libraries' loggers and of `warnings` while it is entered."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: List[str] = []
        self._old: Any = None

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append("{}: {}".format(record.name, record.getMessage()))

    def __enter__(self) -> Recorder:
        for name in _LIBRARIES:
            logging.getLogger(name).addHandler(self)
        self._old = warnings.showwarning

        def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
            self.texts.append("{}: {}".format(category.__name__, message))

        warnings.showwarning = show
        return self

    def __exit__(self, *_: object) -> None:
        for name in _LIBRARIES:
            logging.getLogger(name).removeHandler(self)
        warnings.showwarning = self._old

    def kept(self) -> List[str]:
        """The first messages, each cut to a readable length."""
        return [text[:_LENGTH] for text in self.texts[:_KEPT]]

    def keys(self, known: Iterable[str]) -> Dict[str, List[str]]:
        """The tensor names, of those `known`, that messages call missing or unexpected.

        A message that speaks of both (the tables of transformers 5) is read line by line.
        """
        names = set(known)
        found: Dict[str, List[str]] = {"missing": [], "unexpected": []}
        for text in self.texts:
            both = _MISSING.search(text) and _UNEXPECTED.search(text)
            for part in text.splitlines() if both else [text]:
                keys = [key for key in _KEY.findall(part) if key in names]
                if _MISSING.search(part):
                    found["missing"] += keys
                elif _UNEXPECTED.search(part):
                    found["unexpected"] += keys
        return found
