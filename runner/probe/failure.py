"""What does an exception say? Its chain, its traceback, and whether it speaks of memory."""

from __future__ import annotations

import errno
import traceback
from typing import Any, Dict, List

__all__ = ["describe", "is_of_the_machine", "is_out_of_memory"]

_TEXT = 4000
_TRACE = 20000
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_MACHINE_TEXTS = ("No space left on device", "Disk quota exceeded", "Input/output error")


def chain(error: BaseException) -> List[BaseException]:
    """The exception and its causes, the deepest cause last."""
    found: List[BaseException] = []
    current: Any = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return found


def describe(error: BaseException) -> Dict[str, Any]:
    """The exception as plain data: type and message of it and of its deepest cause, and the traceback."""
    causes = chain(error)
    deepest = causes[-1]
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {
        "type": type(error).__name__,
        "message": str(error)[:_TEXT],
        "cause_type": type(deepest).__name__,
        "cause_message": str(deepest)[:_TEXT],
        "traceback": trace[-_TRACE:],
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, somewhere in the chain."""
    for cause in chain(error):
        if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":
            return True
        text = str(cause)
        if "can't allocate memory" in text or "Cannot allocate memory" in text or "unable to mmap" in text:
            return True
    return False


def is_of_the_machine(error: BaseException) -> bool:
    """Whether a full or broken disk is behind it, somewhere in the chain: that says nothing about a library."""
    return any(
        getattr(cause, "errno", None) in _MACHINE or any(text in str(cause) for text in _MACHINE_TEXTS)
        for cause in chain(error)
    )
