"""Containers on a real engine: the same verdicts, no way out, nothing left behind."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metamatrix import __version__
from runner.isolation.containers.docker import Docker
from runner.isolation.containers.engine import connect
from runner.isolation.contract import StartRequest
from runner.resolve.lock import Lock
from runner.resolve.uv import Uv
from tests.integration.conftest import attempts, metamatrix, results, start, verdicts, wait_for_attempts
from tests.integration.engines import EngineProcess
from tests.integration.programs import LIMITS, all_of, program, run_with_probe, small_lock

pytestmark = [pytest.mark.slow, pytest.mark.docker]

ONE = "quick and diffusers == 0.38.0 and transformers == 5.6.0"


@pytest.fixture
def isolation(engine: EngineProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    made = Docker(connect(), Uv(), __version__, tmp_path / "probe", lambda text: None)
    yield made
    made.close()
    assert engine.containers() == []


@pytest.fixture(scope="module")
def small() -> Lock:
    return small_lock()


def test_the_quick_selection_gives_the_same_verdicts_as_in_virtual_environments(
    quick: dict[str, Any], quick_docker: Path, engine: EngineProcess
) -> None:
    """Every verdict, stage and signature, every environment's id and lock; no container is left."""
    inside = results(quick_docker)
    assert inside["run"]["isolation"] == "docker"
    assert verdicts(inside) == verdicts(quick)
    assert {c["subject"]: c["signature"] for c in inside["cells"]} == {
        c["subject"]: c["signature"] for c in quick["cells"]
    }
    ids = [sorted((e["id"], e["lock"]) for e in found["environments"]) for found in (inside, quick)]
    assert ids[0] == ids[1]
    assert engine.containers() == []


def test_a_cell_cannot_get_out_or_use_everything_up(
    isolation: Docker, engine: EngineProcess, small: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile program writes nowhere, reaches nobody, reads no variable of ours, and outlives its own bombs."""
    monkeypatch.setenv("HF_TOKEN", "a secret")
    monkeypatch.setenv("GITHUB_TOKEN", "another")
    environment = isolation.build(small, 1)
    escapes = program(tmp_path, "escapes", Path(__file__).with_name("escapes.py").read_text(encoding="utf-8"))
    with socket.create_server(("0.0.0.0", 0)) as server:
        channel = isolation.start(environment, StartRequest(escapes, LIMITS, 2))
        channel.write(f"{engine.gateway}:{server.getsockname()[1]}\n".encode())
        said = all_of(channel)
        channel.kill()
    assert said, channel.log()
    found = json.loads(said)
    assert found["write_store"] == "EROFS"
    assert found["write_root"] == "EROFS"
    for name in ("remount", "user_namespace", "network_namespace", "become_root", "device"):
        assert found[name] == "EPERM", name
    assert found["network"] == "ENETUNREACH"
    assert found["interfaces"] == ["lo"]
    assert not {"HF_TOKEN", "GITHUB_TOKEN", "DOCKER_HOST"} & found["environment"].keys()
    assert "secret" not in json.dumps(found["environment"])
    assert found["sockets"] == []
    status = found["status"]
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == ["10002"] * 4
    assert found["fork_bomb"]["stopped"] == "EAGAIN"
    assert found["fork_bomb"]["children"] < 16 + 2 * LIMITS["processes"]
    assert found["memory_bomb"] == {"signal": signal.SIGKILL}
    assert found["fill_scratch"] == {"mib": 2 * LIMITS["disk_mb"], "stopped": "ENOSPC"}
    assert found["alive"] == "after all"


BOMB = """
import mmap
from runner.probe import zygote

class Eater(zygote.Cell):
    def run(self):
        if self._request["offload"] == "disk" and not self._request["arrays"]:
            held = []
            while True:
                block = mmap.mmap(-1, 64 << 20)
                for offset in range(0, 64 << 20, 4096):
                    block[offset] = 1
                held.append(block)
        super().run()

zygote.Cell = Eater
zygote.main()
"""


def test_a_cell_that_eats_the_containers_memory_is_out_of_memory_and_its_neighbours_are_not(
    isolation: Docker, quick_docker: Path, tmp_path: Path
) -> None:
    """Beside others the kill says nothing; alone, and cold, it is the verdict. The other cells pass."""
    cells = run_with_probe(BOMB, quick_docker, isolation, tmp_path / "run")
    assert {name: cell.verdict for name, cell in cells.items()} == {
        "none": "pass",
        "sequential": "pass",
        "disk": "out-of-memory",
    }
    ends = [row["how"] for row in attempts(tmp_path / "run") if row["cell"] == cells["disk"].id]
    assert ends[-1] == "oom"
    assert set(ends) <= {"crowded", "oom"}


def test_kill_of_the_program_leaves_nothing_and_the_next_run_goes_on(
    quick_docker: Path, engine: EngineProcess, tmp_path: Path
) -> None:
    """`kill -9` in the middle: the engine removes our containers by itself, and no cell is lost or doubled."""
    folder = tmp_path / "run"
    with start("run", "--select", ONE, "--output", str(folder), env=engine.variables()) as process:
        wait_for_attempts(folder, 20)
        process.kill()
    deadline = time.monotonic() + 30
    while engine.containers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert engine.containers() == []
    _finish_and_compare(folder, quick_docker, engine)


def test_kill_of_a_container_costs_only_time(quick_docker: Path, engine: EngineProcess, tmp_path: Path) -> None:
    """`docker kill` of the cells' container in the middle: a new one, and the same verdicts in the same run."""
    folder = tmp_path / "run"
    with start("run", "--select", ONE, "--output", str(folder), env=engine.variables()) as process:
        wait_for_attempts(folder, 20)
        client = engine.client()
        for container in client.containers.list(filters={"label": "metamatrix.role=cell"}):
            container.kill()
        client.close()
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert "the zygote is lost" in stderr
    _compare(folder, quick_docker, engine)


def test_stop_of_the_engine_is_told_and_the_next_run_goes_on(
    quick_docker: Path, engine: EngineProcess, tmp_path: Path
) -> None:
    """The engine goes away in the middle: exit 3, what to do, no bad verdict from it; started again, it goes on."""
    folder = tmp_path / "run"
    with start("run", "--select", ONE, "--output", str(folder), env=engine.variables()) as process:
        wait_for_attempts(folder, 20)
        engine.stop()
        try:
            _, stderr = process.communicate(timeout=120)
        finally:
            engine.start()
    assert process.returncode == 3, stderr
    assert "Start the engine again" in stderr
    expected = verdicts(results(quick_docker))
    for cell in results(folder)["cells"]:
        if cell["verdict"] is not None:
            assert (cell["verdict"], cell["stage"]) == expected[cell["subject"]] or cell["class"] == "no answer"
    _finish_and_compare(folder, quick_docker, engine)


def _finish_and_compare(folder: Path, quick: Path, engine: EngineProcess) -> None:
    done = metamatrix("run", "--select", ONE, "--output", str(folder), env=engine.variables())
    assert done.status == 0, done.stderr
    _compare(folder, quick, engine)


def _compare(folder: Path, quick: Path, engine: EngineProcess) -> None:
    """Every cell has the verdict of an undisturbed run, each was answered by one fork, and nothing is left."""
    expected = verdicts(results(quick))
    found = verdicts(results(folder))
    assert len(found) == 80
    assert found == {subject: expected[subject] for subject in found}
    answered = [row["cell"] for row in attempts(folder) if row["mode"] == "fork" and row["how"] == "exited"]
    assert len(answered) == len(set(answered))
    assert engine.containers() == []
