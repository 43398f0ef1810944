"""What is read from an engine and about GPUs: streams, answers, reasons. A fake stands in at the API's wire."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import platform_tags

from runner.isolation.choose import isolation_for
from runner.isolation.containers.engine import EngineFailed, connect
from runner.isolation.containers.labels import owner, owner_lives
from runner.isolation.containers.streams import Streams
from runner.isolation.contract import cell_variables
from runner.isolation.gpus import find_gpus
from runner.resolve.lock import Platform
from runner.resolve.uv import Uv
from runner.results.attempt import Attempt
from runner.results.outcome import judge, weighed
from runner.verdicts import Verdict
from tests.strategies import ALL_STAGES, attempt, cell

PIECES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=12)


@given(PIECES, st.lists(st.integers(1, 30), max_size=20))
def test_streams_are_taken_apart_however_they_are_cut(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """Whatever the sizes of the reads, output and log come out whole and in order."""
    sent = b"".join(bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for kind, data in pieces)
    here, there = socket.socketpair()
    with here, there:
        streams = Streams(here)
        output = b""
        for cut in cuts:
            there.sendall(sent[:cut])
            sent = sent[cut:]
            output += streams.read(0.001) or b""
        there.sendall(sent)
        there.close()
        while (data := streams.read(1.0)) != b"":
            output += data or b""
        assert output == b"".join(data for kind, data in pieces if kind == 1)
        assert streams.said() == b"".join(data for kind, data in pieces if kind == 2).decode(
            "utf-8", "backslashreplace"
        )


VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10.24", "Components": [{"Name": "Engine"}]}
INFO = {"Architecture": "x86_64", "NCPU": 2, "MemTotal": 1 << 34, "CgroupVersion": "2", "Runtimes": {"runc": {}}}


@contextmanager
def _engine(folder: Path, version: dict[str, Any], info: dict[str, Any]) -> Iterator[str]:
    """A socket that answers as an engine of that version would."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(version if self.path.endswith("/version") else info).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

        def address_string(self) -> str:
            return "test"

    place = folder / "engine.sock"
    with socketserver.ThreadingUnixStreamServer(str(place), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"unix://{place}"
        finally:
            server.shutdown()
            thread.join()


def _connect(address: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DOCKER_HOST", address)
    engine = connect()
    engine.close()
    return engine


def test_an_engine_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, machine and cgroup come from its answers; an engine in time gives no warning."""
    with _engine(tmp_path, VERSION, {**INFO, "SystemTime": datetime.now(UTC).isoformat()}) as address:
        engine = _connect(address, monkeypatch)
    assert (engine.name, engine.machine, engine.cgroup, engine.warning) == ("Docker Engine 20.10.24", "x86_64", "2", "")


def test_an_engine_that_is_too_old_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """API 1.38 answers and lacks what we need; the message holds its release, its API and the one that is needed."""
    old = {**VERSION, "ApiVersion": "1.38", "Version": "18.06.3-ce"}
    with _engine(tmp_path, old, INFO) as address, pytest.raises(EngineFailed) as failed:
        _connect(address, monkeypatch)
    assert "18.06.3-ce" in str(failed.value)
    assert "1.38" in str(failed.value) and "1.40" in str(failed.value)
    assert "newer engine" in failed.value.remedy


def test_a_clock_that_is_off_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates look expired then; the warning says by how much the clock is off."""
    with _engine(tmp_path, VERSION, {**INFO, "SystemTime": "2031-01-01T00:00:00.123456789Z"}) as address:
        assert "s from this machine's" in _connect(address, monkeypatch).warning


def test_no_engine_is_told_apart_from_one_that_may_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there, nobody listening, no permission: each with what to do."""
    nowhere = f"unix://{tmp_path}/none.sock"
    with pytest.raises(EngineFailed, match="no engine listens") as failed:
        _connect(nowhere, monkeypatch)
    assert "--isolation venv" in failed.value.remedy and "DOCKER_HOST" in failed.value.remedy
    deaf = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(deaf))
    with pytest.raises(EngineFailed, match="no engine listens"):
        _connect(f"unix://{deaf}", monkeypatch)
    with _engine(tmp_path, VERSION, INFO) as address:
        os.chmod(tmp_path / "engine.sock", 0o600)
        said = _as_nobody(lambda: _connect(address, monkeypatch))
    assert "no permission" in said, said


def _as_nobody(work: Callable[[], object]) -> str:
    """What a user without rights is told; run in a child, because it cannot come back."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
            os.write(send, b"it worked")
        except EngineFailed as error:
            os.write(send, str(error).encode())
        finally:
            os._exit(0)
    os.close(send)
    os.waitpid(pid, 0)
    with os.fdopen(receive, "rb") as file:
        return file.read().decode()


def test_auto_says_which_isolation_it_took_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine: virtual environments, with the reason. Asked for containers: an error."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("METAMATRIX_STORE", str(tmp_path / "store"))
    said: list[str] = []
    with isolation_for("auto", Uv(), "0", said.append) as isolation:
        assert isolation.name == "venv"
    assert said[0].startswith("isolation: venv") and "no engine listens" in said[0]
    with pytest.raises(EngineFailed), isolation_for("docker", Uv(), "0", said.append):
        pytest.fail("there is no engine")


def test_an_owner_is_known_to_live_or_to_be_gone() -> None:
    """This process lives; its pid with another start does not; another machine's cannot be known."""
    assert owner_lives(owner()) is True
    assert owner_lives(owner() + "0") is False
    assert owner_lives("elsewhere:boot:1:2") is None
    assert owner_lives("nonsense") is None


def test_a_cell_gets_only_the_variables_on_the_list() -> None:
    """No token, no proxy, no setting that changes a verdict."""
    host = {"HF_TOKEN": "x", "https_proxy": "x", "ACCELERATE_INIT_INCLUDE_BUFFERS": "1", "OPENBLAS_CORETYPE": "Haswell"}
    found = cell_variables(host, "/scratch")
    assert not {"HF_TOKEN", "https_proxy", "ACCELERATE_INIT_INCLUDE_BUFFERS"} & found.keys()
    assert found["OPENBLAS_CORETYPE"] == "Haswell"
    assert found["HOME"] == found["TMPDIR"] == "/scratch"


SMI = "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8  |"


def _smi(query: str, plain: str = SMI, status: int = 0) -> Callable[[Sequence[str]], tuple[int, str]]:
    return lambda command: (status, query if len(command) > 1 else plain)


def test_gpus_are_found_and_refused_with_the_reason() -> None:
    """The driver's CUDA decides by its major version; what goes wrong is the reason, never an exception."""
    found = find_gpus(_smi("NVIDIA H200, 143771, 570.86.15\n"))
    assert (found.devices[0].name, found.devices[0].memory_mb, found.cuda) == ("NVIDIA H200", 143771, (12, 8))
    assert found.unavailable("cu128") == found.unavailable("cu121") == ""
    assert "570.86.15 is too old" in found.unavailable("cu130")
    assert "no CUDA backend" in found.unavailable("rocm6.4")
    assert found.at_once(4096) == 35
    assert "No devices were found" in find_gpus(_smi("No devices were found\n", status=6)).unavailable("cu128")
    assert "lists no device" in find_gpus(_smi("")).missing
    assert "which CUDA" in find_gpus(_smi("NVIDIA H200, 143771, 570.86.15", plain="")).missing
    assert "unknown" in find_gpus(_smi("NVIDIA H200, [N/A], 570.86.15")).missing

    def nothing(_command: Sequence[str]) -> tuple[int, str]:
        raise FileNotFoundError("nvidia-smi")

    def no_toolkit(_command: Sequence[str]) -> tuple[int, str]:
        raise OSError('could not select device driver "" with capabilities: [[gpu]]')

    assert "no NVIDIA driver" in find_gpus(nothing).missing
    assert find_gpus(no_toolkit).missing == "the engine has no NVIDIA container toolkit"


def test_wheels_that_fit_another_platform_are_those_that_fit_there() -> None:
    """The tags that we name for a platform are those that packaging names on it, in its order."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("packaging can only be asked on glibc")
    major, minor = (int(part) for part in platform.libc_ver()[1].split(".")[:2])
    named = Platform("linux", platform.machine(), "glibc", (major, minor))
    assert named.is_here() and named.for_uv() is None
    other = Platform("linux", platform.machine(), "glibc", (major, minor - 1))
    assert not other.is_here()
    assert other.for_uv() == f"{platform.machine()}-manylinux_{major}_{minor - 1}"
    assert other.tags() == [tag for tag in platform_tags() if f"manylinux_{major}_{minor}_" not in tag]


def _under(pressure: dict[str, int], how: str = "exited", stages: tuple[str, ...] = ALL_STAGES) -> Attempt:
    made = attempt(cell(), how=how, stages=stages)
    return replace(made, signal=signal.SIGKILL, conditions={**made.conditions, "pressure": pressure})


def test_a_bad_answer_under_pressure_counts_only_alone() -> None:
    """Beside others it is run again; alone a kill is out of memory; a good answer is good whatever ran out."""
    killed = _under({"oom_kills": 1}, "signal", ())
    assert weighed(killed, alone=False).how == "crowded"
    assert judge(weighed(killed, alone=False)).verdict is Verdict.HARNESS_ERROR
    assert judge(weighed(killed, alone=True)).verdict is Verdict.OUT_OF_MEMORY
    assert judge(weighed(_under({"scratch_full": 1}, "signal", ()), alone=True)).verdict is Verdict.CRASH
    calm = _under({}, "signal", ())
    assert weighed(calm, alone=False) is calm
    assert judge(calm).verdict is Verdict.CRASH
    good = _under({"refused_processes": 3})
    assert judge(good).verdict is Verdict.PASS
    assert weighed(good, alone=False) is good
