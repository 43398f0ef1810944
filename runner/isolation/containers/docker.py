"""How does an engine serve a run? Images, the volume, one keeper for each Python, a container for each zygote."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from docker.errors import NotFound

from runner.environments.store import Environment
from runner.errors import InfrastructureError
from runner.isolation.containers.cells import run_once, start_cells
from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.export import Contents, export, push, system_packages
from runner.isolation.containers.housekeeping import (
    dead_containers,
    environments_in_use,
    images,
    remove_thing,
    superseded,
    tagged,
)
from runner.isolation.containers.images import Images
from runner.isolation.containers.keeper import STORE, Keeper
from runner.isolation.containers.labels import ROLE, labels
from runner.isolation.contract import Channel, StartRequest
from runner.isolation.gpus import Gpus, find_gpus
from runner.resolve.lock import Lock, Platform
from runner.resolve.uv import Uv

__all__ = ["Docker", "volume_name"]

_GLIBC = (2, 36)
"""Of Debian bookworm: wheels that ask for more would not load in the images."""


def volume_name() -> str:
    """The engine's volume that holds the store: `$METAMATRIX_VOLUME`, or `metamatrix`."""
    return os.environ.get("METAMATRIX_VOLUME", "metamatrix")


class Docker:
    """Environments in a volume of an engine, entered as containers."""

    name = "docker"

    def __init__(self, engine: Engine, uv: Uv, version: str, tools: Path, say: Callable[[str], None]) -> None:
        self.platform = Platform("linux", engine.machine, "glibc", _GLIBC)
        self._engine, self._version, self._tools = engine, version, tools
        self._say, self._uv = say, uv
        self._images = Images(engine, uv, version, say)
        self._volume = volume_name()
        self._lock = threading.Lock()
        self._stopped = False
        self._gpus: Gpus | None = None
        self._keepers: dict[str, Keeper] = {}
        self._pythons: dict[str, str] = {}
        self._run_images: dict[str, str] = {}
        for thing in dead_containers(engine):
            say(f"removing the container {thing.name}, which a killed run has left")
            remove_thing(engine, thing)
        self._claim_volume()

    def _claim_volume(self) -> None:
        """Make the volume, or take the one that an earlier run has made.

        Raises:
            EngineFailed: one of that name is there, and it is not ours.
        """
        client = self._engine.client
        with failures("make a volume"):
            try:
                found = client.volumes.get(self._volume)
            except NotFound:
                client.volumes.create(self._volume, labels=labels("store", self._version))
                return
        if ROLE not in (found.attrs.get("Labels") or {}):
            raise EngineFailed(
                f"the engine has a volume {self._volume} that metamatrix did not make",
                "Set METAMATRIX_VOLUME to another name, or remove that volume.",
            )

    def _keeper(self, python: str) -> Keeper:
        with self._lock:
            if python not in self._keepers:
                image = self._images.build(python)
                if self._stopped:
                    raise InfrastructureError("stopped", "Run the same command again to go on.")
                keeper = Keeper(self._engine, image, self._volume, self._version, self._tools)
                self._keepers[python] = keeper
                if self._stopped:  # while it was made, `stop` could not see it
                    keeper.close()
            return self._keepers[python]

    def _image(self, python: str) -> str:
        with self._lock:
            if python not in self._run_images:
                self._run_images[python] = self._images.run(python)
            return self._run_images[python]

    def _environment(self, identifier: str, record: dict[str, Any]) -> Environment:
        return Environment(identifier, Path(str(PurePosixPath(STORE, "environments", identifier))), record)

    def make_room(self, budget: int, wanted: Mapping[str, str]) -> None:
        for python in set(wanted.values()):
            keeper = self._keeper(python)
            if all(keeper.holds(identifier) for identifier, of in wanted.items() if of == python):
                continue
            held = sum(thing.bytes for thing in images(self._engine))
            keep = environments_in_use(self._engine) | wanted.keys()
            planned = keeper.tidy(budget - held, keep, carry_out=True)
            if planned.total + held > budget:
                for thing in superseded(self._engine):
                    remove_thing(self._engine, thing)
            if planned.names:
                self._say(f"removed {len(planned.names)} things from the volume, {planned.frees >> 20} MiB")
            return

    def build(self, lock: Lock, workers: int) -> Environment:
        record = self._keeper(lock.python).build(lock, workers)
        self._pythons[lock.environment] = lock.python
        return self._environment(lock.environment, record)

    def check(self, environment: Environment) -> None:
        self._keeper(self._pythons[environment.id]).check(environment)

    def give(self, path: Path) -> str:
        keeper = next(iter(self._keepers.values()))  # nothing is given before something was built
        return keeper.give(path)

    def export(self, lock: Lock, contents: Contents, tag: str, work: Path) -> str:
        """Make an image of its own from the environment of `lock`, built where it is not yet; the image's id."""
        self.build(lock, os.cpu_count() or 1)
        image = self._image(lock.python)
        old = tagged(self._engine, tag)
        made = export(self._engine, image, self._volume, self._version, contents, tag, work)
        if old is not None and old.id != made:
            remove_thing(self._engine, replace(old, name=old.id))  # it has just lost its name to the new one
        return made

    def system_packages(self, python: str) -> list[tuple[str, str, str]]:
        """The Debian packages of the image that cells of a Python live in: (name, version, architecture)."""
        return system_packages(self._engine, self._image(python), self._version)

    def push(self, tag: str) -> str:
        """Push an image; the digest that its registry gives it."""
        return push(self._engine, tag)

    def start(self, environment: Environment, request: StartRequest) -> Channel:
        image = self._image(self._pythons[environment.id])
        archive = self.give(request.archive)
        return start_cells(self._engine, image, self._volume, self._version, environment, archive, request)

    def gpus(self, python: str) -> Gpus:
        try:
            image = self._image(python)
        except EngineFailed as error:
            return Gpus(missing=str(error))
        with self._lock:
            if self._gpus is None:
                self._gpus = find_gpus(lambda command: run_once(self._engine, image, self._version, command))
            return self._gpus

    def stop(self) -> None:
        self._stopped = True
        self._uv.stop()
        for keeper in list(self._keepers.values()):
            keeper.close()

    def close(self) -> None:
        self.stop()
        self._engine.close()
