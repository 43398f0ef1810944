"""Bad days of an engine, each with what to do; images of environments; housekeeping; a second engine far away."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import docker
from metamatrix import __version__
from runner.environments.store import BuildFailed
from runner.errors import EnvironmentDamaged, InfrastructureError
from runner.isolation.containers.docker import Docker
from runner.isolation.containers.engine import EngineFailed, connect
from runner.isolation.containers.images import Images
from runner.isolation.containers.labels import labels
from runner.isolation.contract import StartRequest
from runner.resolve.lock import Lock
from runner.resolve.uv import Uv
from tests.integration.conftest import ROOT, metamatrix, results, verdicts
from tests.integration.engines import EngineProcess, needed, running_engine, running_podman
from tests.integration.programs import LIMITS, all_of, program, small_lock

pytestmark = [pytest.mark.slow, pytest.mark.docker]

STUBBORN = """
import signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("here", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def small() -> Lock:
    return small_lock()


@contextmanager
def _docker(engine: EngineProcess, tmp_path: Path, **variables: str) -> Iterator[Docker]:
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"DOCKER_HOST": engine.address, **variables}.items():
            patch.setenv(name, value)
        made = Docker(connect(), Uv(), __version__, tmp_path / "probe", said.append)
        made.said = said  # type: ignore[attr-defined]
        try:
            yield made
        finally:
            made.close()


def test_a_container_that_ignores_every_signal_is_ended_all_the_same(
    engine: EngineProcess, small: Lock, tmp_path: Path
) -> None:
    """Closing its channel asks, waits as long as it is told, and then does not ask any more."""
    with _docker(engine, tmp_path) as isolation:
        environment = isolation.build(small, 1)
        channel = isolation.start(environment, StartRequest(program(tmp_path, "stubborn", STUBBORN), LIMITS, 1))
        assert channel.read(60) == b"here\n"
        start = time.monotonic()
        channel.close(1.0)
        assert time.monotonic() - start < 10
        assert channel.status() == "its container is gone"


def test_another_python_has_images_of_its_own(engine: EngineProcess, tmp_path: Path) -> None:
    """Python 3.13 comes from the Debian suite that has it; its environments stand beside those of 3.11."""
    with _docker(engine, tmp_path) as isolation:
        environment = isolation.build(small_lock("3.13"), 1)
        source = "import sys, pygments\nprint(*sys.version_info[:2], sys.prefix)\n"
        channel = isolation.start(environment, StartRequest(program(tmp_path, "version", source), LIMITS, 1))
        assert all_of(channel).decode().split() == ["3", "13", str(environment.path)]
        channel.kill()
    assert environment.record["python"].startswith("3.13.")


def test_a_base_image_without_the_python_is_told_with_the_end_of_the_build_log(
    engine: EngineProcess, small: Lock, tmp_path: Path
) -> None:
    """The image build fails: the last lines of its log, and nothing half made under its name."""
    with _docker(engine, tmp_path) as isolation:
        isolation.build(small, 1)  # makes the base image
    base = "localhost/metamatrix-base:3.11-bookworm"
    with _docker(engine, tmp_path, METAMATRIX_BASE_IMAGE=base):
        client = connect()
        with pytest.raises(EngineFailed) as failed:
            Images(client, Uv(), __version__, lambda text: None).run("3.12")
        tags = [tag for image in client.client.images.list() for tag in image.tags]
        client.close()
    assert "could not be built; its log ends:" in str(failed.value)
    assert "the base image has no python3.12" in str(failed.value)
    assert not [tag for tag in tags if tag.startswith("localhost/metamatrix-run:3.12")]


def test_a_base_image_that_nobody_has_is_told(engine: EngineProcess, tmp_path: Path) -> None:
    """A wrong name in METAMATRIX_BASE_IMAGE is named, with the registry's own words."""
    with _docker(engine, tmp_path, METAMATRIX_BASE_IMAGE="127.0.0.1:9/none:{python}"):
        client = connect()
        with pytest.raises(EngineFailed, match=r"127\.0\.0\.1:9/none:3\.11 cannot be had") as failed:
            Images(client, Uv(), __version__, lambda text: None).run("3.11")
        client.close()
    assert "METAMATRIX_BASE_IMAGE" in failed.value.remedy


def test_a_full_disk_is_an_install_error_and_the_next_run_goes_on(engine: EngineProcess, tmp_path: Path) -> None:
    """The volume has no room for the libraries: no bad verdict, exit 3; with room again the same command goes on."""
    client = engine.client()
    options = {"type": "tmpfs", "device": "tmpfs", "o": "size=40m,uid=10001,gid=10001"}
    client.volumes.create("tight", driver="local", driver_opts=options, labels=labels("store", __version__))
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(
        'axes:\n  torch: "2.13.0"\n  diffusers: "0.38.0"\n  transformers: "5.6.0"\n  accelerate: "1.15.0"\n'
    )
    command = ["run", "--matrix", str(matrix), "--output", str(tmp_path / "run")]
    done = metamatrix(*command, env={**engine.variables(), "METAMATRIX_VOLUME": "tight"})
    assert done.status == 3, done.stderr
    assert "No space left" in done.stderr or "os error 28" in done.stderr
    found = results(tmp_path / "run")
    assert {cell["verdict"] for cell in found["cells"]} == {"install-error"}
    done = metamatrix(*command, env=engine.variables())
    assert done.status == 0, done.stderr
    assert set(verdicts(results(tmp_path / "run")).values()) == {("pass", "lifecycle")}
    client.volumes.get("tight").remove()
    client.close()


def test_a_damaged_volume_is_noticed_and_can_be_begun_anew(engine: EngineProcess, small: Lock, tmp_path: Path) -> None:
    """A changed file, a broken record: each is told, nothing runs in it, and `clean --everything` helps."""
    volume = {"METAMATRIX_VOLUME": "damaged"}
    with _docker(engine, tmp_path, **volume) as isolation:
        environment = isolation.build(small, 1)
        isolation.check(environment)
        _in_volume(engine, "damaged", f"echo x >> {environment.path}/lib/python3.11/site-packages/pygments/util.py")
        with pytest.raises(EnvironmentDamaged, match="changed after it was sealed") as failed:
            isolation.check(environment)
        assert "clean --everything" in failed.value.remedy
        with pytest.raises(EnvironmentDamaged):
            isolation.build(small, 1)
        _in_volume(engine, "damaged", f"echo '{{' > {environment.path}/metamatrix.json")
        with pytest.raises(InfrastructureError, match="JSONDecodeError"):
            isolation.build(small, 1)
    client = engine.client()
    client.volumes.get("damaged").remove()
    client.close()
    with _docker(engine, tmp_path, **volume) as isolation:
        isolation.check(isolation.build(small, 1))
    client = engine.client()
    client.volumes.get("damaged").remove()
    client.close()


def _in_volume(engine: EngineProcess, volume: str, command: str) -> None:
    client = engine.client()
    image = next(
        tag for image in client.images.list() for tag in image.tags if tag.startswith("localhost/metamatrix-build:")
    )
    mounts = {volume: {"bind": "/store", "mode": "rw"}}
    client.containers.run(image, ["sh", "-c", command], user="0", volumes=mounts, remove=True)
    client.close()


def test_a_volume_of_somebody_else_is_not_used(engine: EngineProcess, tmp_path: Path) -> None:
    """One of that name without our label: told, and left alone."""
    client = engine.client()
    client.volumes.create("precious")
    with pytest.raises(EngineFailed, match="that metamatrix did not make") as failed:
        with _docker(engine, tmp_path, METAMATRIX_VOLUME="precious"):
            pytest.fail("it was taken")
    assert "METAMATRIX_VOLUME" in failed.value.remedy
    client.volumes.get("precious").remove()
    client.close()


def test_only_what_dead_runs_left_is_removed(engine: EngineProcess, small: Lock, tmp_path: Path) -> None:
    """A container of a dead owner goes at the next start; one of a living owner and a stranger's stay."""
    client = engine.client()
    with _docker(engine, tmp_path) as isolation:
        isolation.build(small, 1)
        image = next(
            tag for image in client.images.list() for tag in image.tags if tag.startswith("localhost/metamatrix-build:")
        )
        (living,) = [box for box in client.containers.list() if box.labels.get("metamatrix.role") == "keeper"]
        machine = living.labels["metamatrix.owner"].rsplit(":", 2)[0]
        dead = client.containers.run(
            image, ["sleep", "600"], detach=True, labels=labels("cell", "0", owner=f"{machine}:999999:1")
        )
        stranger = client.containers.run(image, ["sleep", "600"], detach=True)
        with _docker(engine, tmp_path) as other:
            left = {box.id for box in client.containers.list(all=True)}
            assert dead.id not in left
            assert {living.id, stranger.id} <= left
            assert any(dead.name in text for text in other.said)  # type: ignore[attr-defined]
    stranger.remove(force=True)
    client.close()
    assert engine.containers() == []


def _clean(variables: dict[str, str], *flags: str) -> Any:
    done = metamatrix("clean", "--everything", "--json", *flags, env=variables)
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)


def test_clean_says_what_goes_and_touches_nothing_of_others(engine: EngineProcess, small: Lock, tmp_path: Path) -> None:
    """A dry run changes nothing; `--everything` refuses while a run goes on, then leaves only what is not ours."""
    store = str(tmp_path / "store")
    with running_engine("", "--iptables=false") as own:
        variables = {**own.variables(), "METAMATRIX_STORE": store, "METAMATRIX_BUILD_NETWORK": "host"}
        host = {"METAMATRIX_BUILD_NETWORK": "host"}
        client = own.client()
        client.volumes.create("a-strangers")
        with _docker(own, tmp_path, **host) as isolation:
            isolation.build(small, 1)
            refused = metamatrix("clean", "--everything", env=variables)
            assert refused.status == 2
            assert "of a run that goes on" in refused.stderr
        ours = next(tag for image in client.images.list() for tag in image.tags if "metamatrix-build" in tag)
        strange = client.images.build(
            fileobj=io.BytesIO(f"FROM {ours}\nUSER 1\n".encode()), tag="strangers:1", rm=True
        )[0]
        names = [image.id for image in client.images.list()]
        dry = _clean(variables, "--dry-run")
        assert {row["kind"] for row in dry["removes"]} >= {"image", "volume"}
        assert [image.id for image in client.images.list()] == names
        done = _clean(variables)
        assert {row["name"] for row in done["removes"]} <= {row["name"] for row in dry["removes"]}
        assert [volume.name for volume in client.volumes.list()] == ["a-strangers"]
        assert "strangers:1" in client.images.get(strange.id).tags
        assert not [tag for image in client.images.list() for tag in image.tags if tag.startswith("localhost/")]
        client.close()


def test_an_environment_as_an_image_checks_itself_and_can_be_pushed(
    engine: EngineProcess, quick_docker: Path, tmp_path: Path
) -> None:
    """The image alone, without network and volume, passes the cells of its run; its bill names every package."""
    environment = next(e for e in results(quick_docker)["environments"] if e["requested"]["diffusers"] == "0.32.2")
    passed = [
        c for c in results(quick_docker)["cells"] if c["environment"] == environment["id"] and c["verdict"] == "pass"
    ]
    with _registry(tmp_path) as registry:
        done = metamatrix(
            "image",
            environment["id"][:8],
            "--output",
            str(quick_docker),
            "--push",
            f"{registry}/metamatrix/old:1",
            "--sbom",
            str(tmp_path / "sbom.json"),
            "--json",
            env=engine.variables(),
        )
        assert done.status == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["cells"] == len(passed) > 3
        assert answer["pushed"].startswith("sha256:")
        client = engine.client()
        client.images.remove(answer["image"], force=True)
        client.images.pull(answer["image"])
    said = client.containers.run(
        answer["image"], network_mode="none", read_only=True, tmpfs={"/scratch": "mode=1777"}, remove=True
    ).decode()
    client.images.remove(answer["image"], force=True)
    client.close()
    assert said.splitlines()[-1] == f"{len(passed)} of {len(passed)} cells pass"
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    named = {part["name"]: part["version"] for part in bill["components"]}
    assert environment["installed"].items() <= named.items()
    assert "libc6" in named


def _open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _registry(folder: Path) -> Iterator[str]:
    """A real registry on a port of its own."""
    needed("docker-registry")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = folder / "registry.yml"
    configuration.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/registry\nhttp:\n  addr: 127.0.0.1:{port}\n"
    )
    log = (folder / "registry.log").open("wb")
    with log, subprocess.Popen(["docker-registry", "serve", str(configuration)], stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 20
            while not _open(port):
                assert time.monotonic() < deadline, (folder / "registry.log").read_text()
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


SOME = "quick and diffusers == 0.38.0 and transformers == 5.6.0 and checkpoint == canonical and offload == none"


def _same_on_another_engine(address: str, folder: Path, quick: dict[str, Any]) -> str:
    """Run some cells there: the verdicts of this machine; what the program said."""
    variables = {"DOCKER_HOST": address, "METAMATRIX_ISOLATION": "docker", "METAMATRIX_BUILD_NETWORK": "host"}
    done = metamatrix("run", "--select", SOME, "--output", str(folder), env=variables)
    assert done.status == 0, done.stderr
    expected, found = verdicts(quick), verdicts(results(folder))
    assert len(found) == 5
    assert found == {subject: expected[subject] for subject in found}
    return done.stderr


def test_a_far_engine_needs_no_common_folder(quick: dict[str, Any], tmp_path: Path) -> None:
    """A second engine over TCP that sees neither our checkout nor our caches gives the same verdicts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    hidden = [ROOT, Path.home() / ".cache", Path(os.environ.get("PIP_FIND_LINKS") or "/nowhere")]
    hide = " && ".join(f"mount -t tmpfs none {path}" for path in hidden if path.is_dir())
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", f'{hide} && exec "$@"', "sh")
    address = f"tcp://127.0.0.1:{port}"
    with running_engine(address, "--tls=false", "--iptables=false", prefix=prefix) as far:
        assert f"at {address}" in _same_on_another_engine(address, tmp_path / "run", quick)
        assert far.containers() == []


def test_podman_serves_as_well(quick: dict[str, Any], tmp_path: Path) -> None:
    """Podman's Docker-compatible socket gives the same verdicts."""
    with running_podman() as address:
        assert "docker (Podman" in _same_on_another_engine(address, tmp_path / "run", quick)
        client = docker.DockerClient(base_url=address, version="auto")
        assert client.containers.list(all=True) == []
        client.close()


def test_a_build_that_cannot_reach_its_index_is_no_bad_verdict(
    engine: EngineProcess, small: Lock, tmp_path: Path
) -> None:
    """An index that is not there: the build fails with uv's words."""
    text = small.text.replace("https://", "https://127.0.0.1:9/")
    broken = Lock(text, small.python, small.packages, "0" * 16)
    with _docker(engine, tmp_path) as isolation, pytest.raises(BuildFailed, match=r"127\.0\.0\.1:9"):
        isolation.build(broken, 1)
