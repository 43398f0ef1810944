"""Is it built already? Environments by id; each is built aside, sealed, and renamed into place.

What has its final name is whole. A build that was killed leaves only a `.building-…` folder with no
lock on it, which the next one removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.environments.bytecode import link_bytecode
from runner.environments.interpreters import find_python
from runner.environments.record import inspect_environment
from runner.environments.seal import manifest_digest
from runner.errors import EnvironmentDamaged, InfrastructureError
from runner.resolve.lock import Lock
from runner.resolve.uv import Uv
from runner.whole_files import write_whole

__all__ = ["BuildFailed", "Environment", "Store", "default_store"]

_RECORD = "metamatrix.json"


class BuildFailed(Exception):
    """This environment could not be built; the text says why. It is an `install-error` of its cells."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A sealed environment: its id, its folder, what was really installed."""

    id: str
    path: Path
    record: dict[str, Any]

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def check_seal(self) -> None:
        """Look whether anything was written into it.

        Raises:
            EnvironmentDamaged: a file has changed, appeared or gone.
        """
        if manifest_digest(self.path / "lib") != self.record["seal"]:
            raise EnvironmentDamaged(
                f"the environment {self.id} was changed after it was sealed",
                f"Remove {self.path} and clear uv's cache (`uv cache clean`), whose files it shares; then run again.",
            )


def default_store() -> Path:
    """`$METAMATRIX_STORE`, or a folder in the user's cache directory (beside uv's, so that hardlinks work)."""
    chosen = os.environ.get("METAMATRIX_STORE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metamatrix"


class Store:
    """A folder with `environments/`, `bytecode/`, `checkpoints/` and `probe/`."""

    def __init__(self, root: Path, uv: Uv) -> None:
        self.root = root
        self._uv = uv
        try:
            for name in ("environments", "bytecode", "checkpoints", "probe", "locks"):
                (root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InfrastructureError(
                f"the store {root} cannot be written: {error.strerror}", "Set METAMATRIX_STORE to a writable folder."
            ) from error

    def find(self, identifier: str) -> Environment | None:
        """The sealed environment of that id, or None."""
        path = self.root / "environments" / identifier
        record = path / _RECORD
        if not record.exists():
            return None
        return Environment(identifier, path, json.loads(record.read_text(encoding="utf-8")))

    def build(self, lock: Lock, workers: int) -> Environment:
        """The environment of `lock`, built unless it is there.

        Raises:
            BuildFailed: an interpreter, a download or the disk was at fault.
        """
        with self._locked(lock.environment):
            # What a killed builder left is ours alone: we hold its lock. (uv may have outlived it for a moment.)
            for left in (self.root / "environments").glob(f".building-{lock.environment}-*"):
                shutil.rmtree(left, ignore_errors=True)
            found = self.find(lock.environment)
            return found if found is not None else self._build(lock, workers)

    @contextmanager
    def _locked(self, identifier: str) -> Iterator[None]:
        """One builder per environment; the lock goes with its process."""
        with (self.root / "locks" / identifier).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _build(self, lock: Lock, workers: int) -> Environment:
        folder = self.root / "environments"
        building = Path(tempfile.mkdtemp(prefix=f".building-{lock.environment}-", dir=folder))
        try:
            self._install(lock, building)
            python = building / "bin" / "python"
            record = inspect_environment(python)
            site = Path(record.pop("site"))
            link_bytecode(python, site, lock.packages, self.root / "bytecode", workers)
            final = folder / lock.environment
            building.chmod(0o755)
            os.rename(building, final)
            # The seal is taken under the final name and written last: a folder without record is not whole.
            record["seal"] = manifest_digest(final / "lib")
            record["lock"] = lock.digest
            write_whole(final / _RECORD, json.dumps(record, indent=1).encode())
            return Environment(lock.environment, final, record)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BuildFailed(f"{type(error).__name__}: {error}") from error
        finally:
            shutil.rmtree(building, ignore_errors=True)

    def _install(self, lock: Lock, building: Path) -> None:
        shutil.rmtree(self.root / "environments" / lock.environment, ignore_errors=True)  # renamed, never sealed
        environment = ["venv", str(building), "--python", find_python(self._uv, lock.python), "--relocatable"]
        self._ask([*environment, "--no-project", "--allow-existing", "--quiet"])
        locked = building / "pylock.toml"
        locked.write_text(lock.text, encoding="utf-8")
        install = ["pip", "sync", str(locked), "--python", str(building / "bin" / "python")]
        self._ask([*install, "--link-mode", "hardlink", "--no-compile-bytecode", "--no-build", "--quiet"])

    def _ask(self, arguments: list[str]) -> None:
        answer = self._uv.run(arguments)
        if answer.status != 0:
            raise BuildFailed(f"uv {' '.join(arguments[:2])} failed: {answer.stderr.strip()[-4000:]}")
