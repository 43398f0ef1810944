"""The store of environments: real builds by uv, of a small environment."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.environments.sandbox import confined
from runner.errors import EnvironmentDamaged
from runner.isolation.venv import Venv
from runner.resolve.lock import Lock
from runner.resolve.resolver import Resolver
from runner.resolve.uv import Uv
from tests.integration.programs import NO_INDEX, small_lock

pytestmark = pytest.mark.slow

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def lock() -> Lock:
    return small_lock(PYTHON)


def _build(root: Path, lock: Lock) -> None:
    Venv(root, Uv()).build(lock, 1)


def test_a_torch_index_that_does_not_answer_is_a_warning() -> None:
    """The default index is used instead, and the reader is told."""
    resolver = Resolver(Uv(), NO_INDEX, None)
    assert resolver.resolve({"python": PYTHON, "pygments": "2.19.2"}, "cpu").lock is not None
    assert "does not answer" in resolver.warnings[0]


def test_two_builders_at_once_make_one_whole_environment(lock: Lock, tmp_path: Path) -> None:
    """Both end well, the environment is sealed and whole, and nothing else is left."""
    context = multiprocessing.get_context("spawn")
    builders = [context.Process(target=_build, args=(tmp_path, lock)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(120)
    assert [builder.exitcode for builder in builders] == [0, 0]
    environment = Venv(tmp_path, Uv()).find(lock.environment)
    assert environment is not None
    Venv(tmp_path, Uv()).check(environment)
    assert [path.name for path in (tmp_path / "environments").iterdir()] == [lock.environment]
    assert len(list((tmp_path / "bytecode").iterdir())) == 1
    subprocess.run([environment.python, "-I", "-c", "import pygments"], check=True)


def test_a_build_killed_at_any_time_is_never_taken_for_whole(lock: Lock, tmp_path: Path) -> None:
    """After `kill -9` at several instants, what is found is whole, and the next build repairs the rest."""
    context = multiprocessing.get_context("spawn")
    for pause in (0.6, 1.0, 1.4, 1.8):
        builder = context.Process(target=_build, args=(tmp_path, lock))
        builder.start()
        time.sleep(pause)
        if builder.pid is not None and builder.is_alive():
            os.kill(builder.pid, signal.SIGKILL)
        builder.join()
        found = Venv(tmp_path, Uv()).find(lock.environment)
        if found is not None:
            Venv(tmp_path, Uv()).check(found)
    _build(tmp_path, lock)
    environment = Venv(tmp_path, Uv()).find(lock.environment)
    assert environment is not None
    Venv(tmp_path, Uv()).check(environment)
    assert [path.name for path in (tmp_path / "environments").iterdir()] == [lock.environment]


def test_bytecode_is_there_shared_and_used(lock: Lock, tmp_path: Path) -> None:
    """Every module has bytecode that is the same file as in the store, and an import writes nothing."""
    store = Venv(tmp_path, Uv())
    environment = store.build(lock, 1)
    compiled = list(environment.path.rglob("pygments/__pycache__/*.pyc"))
    assert len(compiled) > 5
    kept = {path.stat().st_ino for path in (tmp_path / "bytecode").rglob("*.pyc")}
    assert {path.stat().st_ino for path in compiled} <= kept
    subprocess.run([environment.python, "-I", "-c", "import pygments.lexers.python"], check=True)
    Venv(tmp_path, Uv()).check(environment)


def test_a_write_into_a_sealed_environment_is_noticed(lock: Lock, tmp_path: Path) -> None:
    """One changed file is enough."""
    environment = Venv(tmp_path, Uv()).build(lock, 1)
    (environment.path / "lib" / "intruder.py").write_text("x = 1\n")
    with pytest.raises(EnvironmentDamaged, match="changed after it was sealed"):
        Venv(tmp_path, Uv()).check(environment)


def test_a_confined_process_cannot_write_the_store_or_reach_the_network(lock: Lock, tmp_path: Path) -> None:
    """Where Linux lets us (as root it does), the store is read-only and there is no network."""
    store = Venv(tmp_path, Uv())
    environment = store.build(lock, 1)
    code = f"""
import socket
for attempt in (lambda: open({str(tmp_path / "environments" / "x")!r}, "w"),
                lambda: socket.create_connection(("127.0.0.1", 9), 1)):
    try:
        attempt()
    except OSError as error:
        print(type(error).__name__, error.errno)
    else:
        print("succeeded")
"""
    command, could = confined([str(environment.python), "-I", "-c", code], tmp_path)
    assert could == (command[0] == "unshare")
    if could:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        assert answer.stdout.splitlines()[0] == "OSError 30"
        assert "succeeded" not in answer.stdout
    else:
        assert os.geteuid() != 0, "as root a mount namespace must be possible"
