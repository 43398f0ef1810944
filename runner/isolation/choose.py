"""Which isolation is taken, and why? Containers where an engine answers, else virtual environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runner.errors import MetamatrixError
from runner.isolation.contract import Isolation
from runner.isolation.venv import Venv, default_store
from runner.resolve.uv import Uv

if TYPE_CHECKING:
    from runner.isolation.containers.docker import Docker

__all__ = ["ISOLATIONS", "docker_isolation", "isolation_for"]

ISOLATIONS = ("auto", "docker", "venv")


@contextmanager
def isolation_for(name: str, uv: Uv, version: str, say: Callable[[str], None]) -> Iterator[Isolation]:
    """The isolation of that name, open for a run; `say` is told which it is and why.

    Raises:
        MetamatrixError: there is no such isolation.
        EngineFailed: containers were asked for and no engine answers.
    """
    if name not in ISOLATIONS:
        raise MetamatrixError(f"isolation {name!r} is not offered", f"It is one of: {', '.join(ISOLATIONS)}.")
    isolation = _open(name, uv, version, say)
    try:
        yield isolation
    finally:
        isolation.close()


@contextmanager
def docker_isolation(uv: Uv, version: str, say: Callable[[str], None]) -> Iterator[Docker]:
    """Containers, for what needs them whatever the default is.

    Raises:
        EngineFailed: no engine answers.
    """
    from runner.isolation.containers.docker import Docker
    from runner.isolation.containers.engine import connect

    isolation = Docker(connect(), uv, version, default_store() / "probe", say)
    try:
        yield isolation
    finally:
        isolation.close()


def _open(name: str, uv: Uv, version: str, say: Callable[[str], None]) -> Isolation:
    if name == "venv":
        say("isolation: venv, as asked for (no security boundary)")
        return Venv(default_store(), uv)
    # The SDK takes 0.2 s to import, which a virtual environment need not wait for.
    from runner.isolation.containers.docker import Docker
    from runner.isolation.containers.engine import EngineFailed, connect

    try:
        engine = connect()
    except EngineFailed as error:
        if name == "docker":
            raise
        say(f"isolation: venv (no security boundary), because {error}")
        return Venv(default_store(), uv)
    say(f"isolation: docker ({engine.name} at {engine.address})")
    if engine.warning:
        say(f"warning: {engine.warning}")
    return Docker(engine, uv, version, default_store() / "probe", say)
