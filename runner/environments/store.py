"""Is it built already? Environments by id; each is built aside, sealed, and renamed into place.

What has its final name is whole. A build that was killed leaves only a `.building-…` folder with no
lock on it, which the next one removes. This module and what it imports is the standard library only, for
Python 3.9 and later: in a container the same code builds in a volume (see `__main__` of its archive).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.environments.bytecode import link_bytecode
from runner.environments.record import inspect_environment
from runner.environments.seal import manifest_digest
from runner.errors import EnvironmentDamaged, InfrastructureError
from runner.whole_files import write_whole

__all__ = ["FOLDERS", "BuildFailed", "BuildRequest", "Environment", "Store"]

FOLDERS = ("environments", "bytecode", "checkpoints", "probe", "locks")
_RECORD = "metamatrix.json"

RunUv = Callable[[Sequence[str]], "tuple[int, str]"]
"""Runs uv with these arguments to its end: (exit status, what it said on standard error)."""


class BuildFailed(Exception):
    """This environment could not be built; the text says why. It is an `install-error` of its cells."""


@dataclass(frozen=True)
class BuildRequest:
    """What is to be built: the environment's id, its lock, its packages (name, version, wheel digest).

    `python` is what `uv venv --python` takes.
    """

    id: str
    lock: str
    lock_digest: str
    packages: tuple[tuple[str, str, str], ...]
    python: str


@dataclass(frozen=True)
class Environment:
    """A sealed environment: its id, its folder, what was really installed."""

    id: str
    path: Path
    record: dict[str, Any]

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"


class Store:
    """A folder with `environments/`, `bytecode/`, `checkpoints/` and `probe/`."""

    def __init__(self, root: Path, uv: RunUv) -> None:
        self.root = root
        self._uv = uv
        try:
            for name in FOLDERS:
                (root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InfrastructureError(
                f"the store {root} cannot be written: {error.strerror}", "Set METAMATRIX_STORE to a writable folder."
            ) from error

    def find(self, identifier: str) -> Environment | None:
        """The sealed environment of that id, or None; also where its interpreter has gone."""
        path = self.root / "environments" / identifier
        record = path / _RECORD
        if not record.exists() or not (path / "bin" / "python").exists():
            return None
        return Environment(identifier, path, json.loads(record.read_text(encoding="utf-8")))

    def build(self, request: BuildRequest, workers: int) -> Environment:
        """The environment of `request`, built unless it is there.

        Raises:
            BuildFailed: an interpreter, a download or the disk was at fault.
        """
        with self._locked(request.id):
            # What a killed builder left is ours alone: we hold its lock. (uv may have outlived it for a moment.)
            for left in (self.root / "environments").glob(f".building-{request.id}-*"):
                shutil.rmtree(left, ignore_errors=True)
            found = self.find(request.id)
            return found if found is not None else self._build(request, workers)

    def check(self, environment: Environment) -> None:
        """Look whether anything was written into it.

        Raises:
            EnvironmentDamaged: a file has changed, appeared or gone.
        """
        if manifest_digest(environment.path / "lib") != environment.record["seal"]:
            raise EnvironmentDamaged(
                f"the environment {environment.id} was changed after it was sealed",
                f"Remove {environment.path} and clear uv's cache (`uv cache clean`), whose files it shares; "
                "then run again.",
            )

    @contextmanager
    def _locked(self, identifier: str) -> Iterator[None]:
        """One builder per environment; the lock goes with its process."""
        with (self.root / "locks" / identifier).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.utime(file.fileno())  # when it was last used, for `tidy`
            yield

    def _build(self, request: BuildRequest, workers: int) -> Environment:
        folder = self.root / "environments"
        try:
            building = Path(tempfile.mkdtemp(prefix=f".building-{request.id}-", dir=folder))
        except OSError as error:
            raise BuildFailed(f"{type(error).__name__}: {error}") from error
        try:
            self._install(request, building)
            python = building / "bin" / "python"
            site = next(building.glob("lib/python*/site-packages"))
            record = inspect_environment(python, site)
            link_bytecode(python, site, request.packages, self.root / "bytecode", workers)
            final = folder / request.id
            building.chmod(0o755)
            os.rename(building, final)
            # The seal is taken under the final name and written last: a folder without record is not whole.
            record["seal"] = manifest_digest(final / "lib")
            record["lock"] = request.lock_digest
            write_whole(final / _RECORD, json.dumps(record, indent=1).encode())
            return Environment(request.id, final, record)
        except (OSError, StopIteration, subprocess.CalledProcessError) as error:
            raise BuildFailed(f"{type(error).__name__}: {error}") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def _install(self, request: BuildRequest, building: Path) -> None:
        shutil.rmtree(self.root / "environments" / request.id, ignore_errors=True)  # renamed, never sealed
        environment = ["venv", str(building), "--python", request.python, "--relocatable"]
        self._ask([*environment, "--no-project", "--allow-existing", "--quiet"])
        locked = building / "pylock.toml"
        locked.write_text(request.lock, encoding="utf-8")
        install = ["pip", "sync", str(locked), "--python", str(building / "bin" / "python")]
        self._ask([*install, "--link-mode", "hardlink", "--no-compile-bytecode", "--no-build", "--quiet"])

    def _ask(self, arguments: list[str]) -> None:
        status, said = self._uv(arguments)
        if status != 0:
            raise BuildFailed(f"uv {' '.join(arguments[:2])} failed: {said.strip()[-4000:]}")
