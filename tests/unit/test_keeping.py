"""What is written down stays: the run's folder, ids, the environment of uv, slots."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engine.slots import Slots
from runner.errors import RunFolderError
from runner.identifiers import cell_id, environment_id, subject_id
from runner.resolve.uv import uv_environment
from runner.results.folder import RunFolder
from tests.strategies import attempt, cell


def test_attempts_survive_closing_and_a_torn_exchange_file(tmp_path: Path) -> None:
    """After a kill in the middle of a line the exchange file is whole again and holds every attempt once."""
    planned = cell()
    with RunFolder(tmp_path) as folder:
        for name in ("a", "b"):
            folder.keep_attempt(attempt(planned, identifier=name))
    exchange = tmp_path / "attempts.ndjson"
    lines = exchange.read_bytes().splitlines(keepends=True)
    exchange.write_bytes(lines[0] + lines[1][:20])
    with RunFolder(tmp_path) as folder:
        assert [row.id for row in folder.attempts("1", {"seconds": 120})[planned.id]] == ["a", "b"]
        assert folder.attempts("1", {"seconds": 9}) == {}
    assert [json.loads(line)["id"] for line in exchange.read_text().splitlines()] == ["a", "b"]


def test_attempts_are_never_changed_or_removed(tmp_path: Path) -> None:
    """The database itself refuses both."""
    with RunFolder(tmp_path) as folder:
        folder.keep_attempt(attempt(cell()))
    database = sqlite3.connect(tmp_path / "results.sqlite")
    for statement in ("UPDATE attempts SET mode = 'cold'", "DELETE FROM attempts"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            database.execute(statement)
    database.close()


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    """A second run is told that the folder is in use; readers are not kept out."""
    with RunFolder(tmp_path):
        with pytest.raises(RunFolderError, match="in use"):
            RunFolder(tmp_path)
        RunFolder(tmp_path, writing=False).close()
    RunFolder(tmp_path).close()


def test_a_folder_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    """A schema that we do not know is not touched."""
    RunFolder(tmp_path).close()
    database = sqlite3.connect(tmp_path / "results.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(RunFolderError, match="newer"):
        RunFolder(tmp_path)


@given(st.permutations([("a", "1", "x"), ("b", "2", "y"), ("c", "3", "z")]))
def test_an_environment_is_its_content(packages: list[tuple[str, str, str]]) -> None:
    """The order of packages does not matter; a digest, the platform and the Python do."""
    one = environment_id(packages, "linux", "x86_64", "glibc", "3.11")
    assert one == environment_id(sorted(packages), "linux", "x86_64", "glibc", "3.11")
    others = {
        environment_id([*packages[:2], ("c", "3", "other")], "linux", "x86_64", "glibc", "3.11"),
        environment_id(packages, "linux", "aarch64", "glibc", "3.11"),
        environment_id(packages, "linux", "x86_64", "musl", "3.11"),
        environment_id(packages, "linux", "x86_64", "glibc", "3.12"),
    }
    assert one not in others
    assert len(others) == 4


def test_cells_and_subjects_differ_by_all_they_are_made_of() -> None:
    """Checkpoint, probe version, environment and date all enter."""
    cells = {cell_id(e, {"load": "x"}, c, v) for e in "ab" for c in "ab" for v in "12"}
    assert len(cells) == 8
    assert subject_id({}, {}, "cpu", None) != subject_id({}, {}, "cpu", "2026-12-01")


def test_pip_settings_reach_uv_and_its_own_win() -> None:
    """Indexes, links and certificates of pip count where uv has no setting of its own."""
    mapped = uv_environment({"PIP_INDEX_URL": "i", "PIP_FIND_LINKS": "a b", "UV_FIND_LINKS": "c", "PIP_CERT": "x"})
    assert mapped["UV_DEFAULT_INDEX"] == "i"
    assert mapped["UV_FIND_LINKS"] == "c,a,b"
    assert mapped["SSL_CERT_FILE"] == "x"
    assert uv_environment({"PIP_INDEX_URL": "i", "UV_INDEX_URL": "own"}).get("UV_DEFAULT_INDEX") is None
    assert "VIRTUAL_ENV" not in uv_environment({"VIRTUAL_ENV": "v"})


def test_who_wants_to_be_alone_is_alone() -> None:
    """While one holds all slots nobody else runs, and afterwards everybody can."""
    slots = Slots(2)
    seen: list[str] = []

    def work(name: str) -> None:
        slots.take()
        seen.append(name)
        time.sleep(0.02)
        slots.give()

    with slots.all():
        threads = [threading.Thread(target=work, args=(str(index),)) for index in range(4)]
        for thread in threads:
            thread.start()
        assert not slots.try_take()
        assert seen == []
    for thread in threads:
        thread.join()
    assert sorted(seen) == ["0", "1", "2", "3"]
    assert slots.try_take()
