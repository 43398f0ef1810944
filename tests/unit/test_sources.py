"""Where results come from: an address, a published store, a cache. What is cut, changed or hostile is never an answer."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from metamatrix.fetch import NotThere, fetch
from metamatrix.published import published_before
from metamatrix.sources import answers_from
from reports.dataset import DatasetModel
from reports.evidence import Evidence
from reports.publication import publish
from runner.errors import InfrastructureError, MetamatrixError
from tests.local_server import listening
from tests.made_up import dataset, nights

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The address of a server of this machine that answers every question so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """The tests look at what the client says."""

    with listening(Handler) as address:
        yield address


def _sends(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


WHOLE = gzip.compress(b"x" * 100_000)


def test_what_was_packed_comes_unpacked() -> None:
    """And what was not comes as it is."""
    for body, headers in ((WHOLE, {"Content_Encoding": "gzip"}), (b"x" * 100_000, {})):
        with answering(_sends(body, Content_Length=str(len(body)), **headers)) as address:
            assert fetch(address, 1 << 20) == b"x" * 100_000


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_sends(b"half", Content_Length="100"), "4 of 100 bytes came"),
        (_sends(WHOLE[: len(WHOLE) // 2], Content_Encoding="gzip"), "was cut on the way"),
        (_sends(b"\x1f\x8bnonsense", Content_Encoding="gzip"), "was damaged on the way"),
        (_sends(b"", status=503), "answers 503"),
        (_sends(b"", status=302, Location="ftp://127.0.0.1/x"), "does not answer: it leads to ftp"),
        (_sends(b"", status=302, Location="file:///etc/passwd"), "answers 302"),
        (_sends(b"", status=302, Location="/again"), "answers 302"),
    ],
)
def test_what_did_not_come_whole_is_nobodys_answer(answer: Answer, said: str) -> None:
    """A cut body, a cut packet, a server in trouble, a way out of the web: exit code 3, and what happened."""
    with answering(answer) as address, pytest.raises(InfrastructureError, match=said):
        fetch(address, 1 << 20)


def test_a_server_that_never_ends_is_left() -> None:
    """However little at a time it sends."""
    ended = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.05):
            handler.wfile.write(b"x")

    with answering(drip) as address, pytest.raises(InfrastructureError, match="no end after"):
        try:
            fetch(address, 1 << 20, seconds=0.5)
        finally:
            ended.set()


@pytest.mark.parametrize("body", [b"x" * 3000, gzip.compress(b"x" * 50_000_000)])
def test_no_more_is_taken_than_may_be(body: bytes) -> None:
    """Also of what unpacks to more than anybody has memory for."""
    headers = {"Content_Encoding": "gzip"} if body[:1] == b"\x1f" else {}
    with answering(_sends(body, **headers)) as address, pytest.raises(MetamatrixError, match="is larger than"):
        fetch(address, 1000 if not headers else 1 << 20)


def test_what_is_not_there_is_not_a_server_in_trouble() -> None:
    """Only the server's own word that there is no such file counts as that: the first night depends on it."""
    with answering(_sends(b"", status=404)) as address, pytest.raises(NotThere):
        fetch(address, 10)
    with pytest.raises(InfrastructureError, match="does not answer"):
        fetch("http://127.0.0.1:1/", 10)
    for address in ("http://[", "http://127.0.0.1:x/"):
        with pytest.raises(InfrastructureError):
            fetch(address, 10)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A published site of two nights."""
    publish(nights(2, 2, 4), tmp_path / "site")
    return tmp_path / "site"


def test_what_was_published_comes_back_as_it_was(site: Path) -> None:
    """Every run, the same to the letter; answers are asked of the site as of its runs."""
    assert published_before(str(site)) == list(nights(2, 2, 4))
    assert answers_from(str(site)) == answers_from(str(site / "index.html")) == Evidence(nights(2, 2, 4)).answers()


def _index(**change: Any) -> Callable[[Path], None]:
    def damage(site: Path) -> None:
        path = site / "api/v1/index.json"
        data = json.loads(path.read_bytes())
        data["runs"][0] |= change
        path.write_text(json.dumps(data))

    return damage


def _twice(site: Path) -> None:
    path = site / "api/v1/index.json"
    data = json.loads(path.read_bytes())
    path.write_text(json.dumps({**data, "runs": data["runs"][:1] * 2}))


def _wrote(text: str) -> Callable[[Path], None]:
    def damage(site: Path) -> None:
        (site / "api/v1/index.json").write_text(text)

    return damage


def _cut(site: Path) -> None:
    path = next((site / "api/v1/runs").glob("*/dataset.json"))
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_index(data="../../../secret"), "names a file outside the site"),
        (_index(data="/etc/passwd"), "names a file outside the site"),
        (_index(data="http://127.0.0.1/x"), "names a file outside the site"),
        (_index(data="runs/\0"), "cannot be read"),
        (_index(sha256="0" * 64), "is not what the index says"),
        (_index(id="another"), "is of another run than the index says"),
        (_index(id=None, data=5), "is not what the index says|there is no"),
        (_cut, "is not what the index says"),
        (_twice, "names a run twice"),
        (_wrote("[" * 100_000), "is no index of a site"),
        (_wrote("{}"), "is no index of a site"),
        (_wrote('{"runs": []}'), "names no run"),
    ],
)
def test_history_that_is_not_whole_is_refused(site: Path, damage: Callable[[Path], None], said: str) -> None:
    """A store that was cut, changed or made by somebody hostile: an error in words, and nothing is forgotten."""
    damage(site)
    with pytest.raises(MetamatrixError, match=said):
        published_before(str(site))


def test_a_first_night_forgets_nothing(site: Path, tmp_path: Path) -> None:
    """--first is right where nothing is published, and an error where something is."""
    assert published_before(str(tmp_path / "nowhere"), first=True) == []
    with pytest.raises(MetamatrixError, match="has published runs already"):
        published_before(str(site), first=True)


def _write(folder: Path, found: DatasetModel) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "dataset.json").write_text(found.as_json())


def test_a_kept_answer_is_never_an_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the data have changed the new ones answer, whatever lies in the cache or in a site beside them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = tmp_path / "data"
    _write(data, dataset(0, 2, 4))
    assert answers_from(str(data)) == answers_from(str(data))
    publish([dataset(0, 2, 4)], data / "site")
    _write(data, dataset(0, 3, 4))
    assert len(answers_from(str(data)).environments) == 3
    for kept in (tmp_path / "cache" / "metamatrix" / "answers").iterdir():
        kept.write_bytes(kept.read_bytes()[:200])
    assert len(answers_from(str(data)).environments) == 3


def test_a_folder_with_nothing_in_it_is_said(tmp_path: Path) -> None:
    """Which folder, and what to give instead."""
    with pytest.raises(MetamatrixError, match=str(tmp_path)) as caught:
        answers_from(str(tmp_path))
    assert "--dataset" in caught.value.remedy
