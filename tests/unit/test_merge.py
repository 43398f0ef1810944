"""A merge: nothing lost, nothing invented, whatever the order; and nothing believed that cannot be."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metamatrix.commands.merge import run_merge
from metamatrix.commands.report import ReportChoices, run_report
from metamatrix.document import document
from runner.errors import MetamatrixError, RunFolderError, WrongShard
from runner.plan import Plan, PlannedCell, write_plan
from runner.probe.words import PROBE_VERSION
from runner.results.attempt import Attempt
from runner.results.conclude import EnvironmentState, controls_cell
from runner.results.folder import RunFolder
from runner.results.merge import Merged, merge
from runner.shard import Shard, share
from tests.strategies import attempt, exception, plan_of

SIZES = {"a": 3, "b": 2, "c": 2, "gone": 0, "unbuilt": 1}
PLAN = plan_of(SIZES)
CONTROL = {"id": "x", "expected": "orphan", "got": ["orphan"], "where": "unet", "caught": True}
EMPTY = hashlib.sha256(b"").hexdigest()


def _made(cell: PlannedCell, number: int, **more: Any) -> Attempt:
    """An attempt as an engine makes it; a later number is a later attempt."""
    conditions = {"limits": PLAN.limits.as_json(), "isolation": "venv"}
    plain = attempt(cell, identifier=hashlib.sha256(f"{cell.id} {number} {more}".encode()).hexdigest()[:32], **more)
    started = f"2026-12-01T00:00:{number:02}.000+00:00"
    return replace(
        plain,
        environment=cell.environment,
        probe_version=PROBE_VERSION,
        conditions=conditions,
        started=started,
        log=EMPTY,
    )


def _attempts(cell: PlannedCell, kind: str) -> list[Attempt]:
    """What a cell's life was: not run, good, bad and confirmed, bad and still without its witness, or flaky."""
    bad = {"load": [exception()]}
    if kind == "good":
        return [_made(cell, 1)]
    if kind == "bad":
        return [
            _made(cell, 1, found=bad, stages=("import", "load")),
            _made(cell, 2, found=bad, stages=("import", "load"), mode="cold"),
        ]
    if kind == "unconfirmed":
        return [_made(cell, 1, found=bad, stages=("import", "load"))]
    if kind == "flaky":
        return [_made(cell, 1), _made(cell, 2, found=bad, stages=("import", "load"))]
    return []


KINDS = ("none", "good", "bad", "unconfirmed", "flaky")
lives = st.fixed_dictionaries({cell.id: st.sampled_from(KINDS) for cell in PLAN.cells})
counts = st.integers(1, 4)
Lives = dict[str, str]
ALL_GOOD = {cell.id: "good" for cell in PLAN.cells}


def _fill(folder: RunFolder, plan: Plan, life: Lives) -> None:
    """Write down what a run of a plan, or of a part of it, writes."""
    for entry in plan.environments:
        if entry.lock is None:
            continue
        if entry.key == "unbuilt":
            folder.keep_environment(entry.key, EnvironmentState(fault="no network"))
            continue
        folder.keep_environment(
            entry.key, EnvironmentState(record={"installed": {"torch": "2.13.0"}, "python": "3.11.7"})
        )
        cells = plan.of(entry.key)
        folder.keep_log("")
        folder.keep_attempt(
            replace(
                _made(controls_cell(cells[0]), 0),
                stages=[{"stage": "lifecycle", "findings": [], "facts": {"controls": [CONTROL]}, "seconds": 0.1}],
            )
        )
        for cell in cells:
            for row in _attempts(cell, life[cell.id]):
                folder.keep_attempt(row)


def _shards(root: Path, count: int, life: Lives, plan: Plan = PLAN) -> list[Path]:
    """The folders of all shards of a plan."""
    paths = []
    for number in range(1, count + 1):
        part = share(plan, Shard(count, number))
        path = root / f"shard-{number}"
        with RunFolder(path) as folder:
            folder.keep_plan(part, plan)
            _fill(folder, part, life)
        paths.append(path)
    return paths


@contextmanager
def _place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as root:
        yield Path(root)


def _published(path: Path) -> dict[str, Any]:
    """What readers see of a folder, but for its path and its id."""
    with RunFolder(path, writing=False) as folder:
        found: dict[str, Any] = json.loads(document(folder, date(2026, 12, 2)).as_json())
    del found["run"]["id"]
    for cell in found["cells"]:
        del cell["rerun"]
    return found


def _content(path: Path) -> dict[str, bytes]:
    """All that a merge wrote, but for the database, whose bytes are SQLite's own."""
    names = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith((".", "results."))]
    return {str(file.relative_to(path)): file.read_bytes() for file in names}


@settings(max_examples=25, deadline=None)
@given(lives, counts)
def test_a_merge_is_what_one_machine_would_have(life: Lives, count: int) -> None:
    """Verdicts, attempts, environments and their order: all as in the folder of one run of the whole plan."""
    with _place() as root:
        with RunFolder(root / "one") as folder:
            folder.keep_plan(PLAN)
            folder.started(PLAN.created)
            _fill(folder, PLAN, life)
        merged = merge(_shards(root, count, life), root / "merged")
        assert _published(root / "merged") == _published(root / "one")
        ids = [sorted(json.loads(line)["id"] for line in _lines(root / name)) for name in ("one", "merged")]
        assert ids[0] == ids[1]
        assert len(ids[1]) == merged.attempts
        open_ = sum(1 for cell in _published(root / "merged")["cells"] if cell["verdict"] is None)
        assert sum(account.lacking for account in merged.shards) == open_
        assert merged.complete == (open_ == 0)
        assert sum(account.cells for account in merged.shards) == len(PLAN.cells)


@settings(max_examples=25, deadline=None)
@given(lives, counts, st.randoms(use_true_random=False))
def test_order_and_doubles_do_not_matter(life: Lives, count: int, chance: random.Random) -> None:
    """In any order, with some shards twice, once more into the same folder, or bit by bit: byte for byte the same; the shards stay as they are."""
    with _place() as root:
        shards = _shards(root, count, life)
        before = [{path: path.read_bytes() for path in shard.rglob("*") if path.is_file()} for shard in shards]
        first = merge(shards, root / "first")
        mixed = [*shards, *chance.choices(shards, k=2)]
        chance.shuffle(mixed)
        assert merge(mixed, root / "mixed") == first
        assert merge([shards[0]], root / "first") == first
        cut = chance.randrange(count + 1)
        merge([*shards[:cut], shards[0]], root / "bits")
        assert merge(shards[cut:] or shards, root / "bits") == first
        assert merge([root / "bits", *shards[1:]], root / "again") == first
        wanted = _content(root / "first")
        assert all(_content(root / name) == wanted for name in ("mixed", "bits", "again"))
        assert _published(root / "mixed") == _published(root / "again") == _published(root / "first")
        after = [{path: path.read_bytes() for path in shard.rglob("*") if path.is_file()} for shard in shards]
        assert after == before


@settings(max_examples=15, deadline=None)
@given(lives, lives, st.integers(2, 4))
def test_two_runs_of_a_shard_are_put_together(one: Lives, other: Lives, count: int) -> None:
    """A shard that ran twice, or was cut and went on: every attempt of both is there, once, whichever came first."""
    with _place() as root:
        shards = _shards(root / "one", count, one)
        again = _shards(root / "other", count, other)[:1]
        merge([*shards, *again], root / "there")
        merge([*again, *shards], root / "back")
        assert _content(root / "there") == _content(root / "back")
        ids = [json.loads(line)["id"] for line in (root / "there" / "attempts.ndjson").read_text().splitlines()]
        lines = [line for path in [*shards, *again] for line in (path / "attempts.ndjson").read_text().splitlines()]
        assert sorted(ids) == sorted({json.loads(line)["id"] for line in lines})


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 4), st.data())
def test_what_is_missing_is_told(count: int, data: st.DataObject) -> None:
    """Without some shards the rest is there, those are named with their cells, and the merge is incomplete."""
    with _place() as root:
        shards = _shards(root, count, ALL_GOOD)
        given_ = data.draw(st.sets(st.integers(1, count), min_size=1, max_size=count - 1))
        merged = merge([shards[number - 1] for number in given_], root / "merged")
        assert not merged.complete
        assert {account.shard.number for account in merged.shards if account.given} == given_
        verdicts = {cell["id"]: cell["verdict"] for cell in _published(root / "merged")["cells"]}
        for account in merged.shards:
            part = share(PLAN, account.shard)
            owed = [cell for cell in part.cells if verdicts[cell.id] is None]
            assert len(owed) == account.lacking
            if account.given:
                assert owed == []
        assert set(verdicts) == {cell.id for cell in PLAN.cells}


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Two good shards; `a` is in the first."""
    found = _shards(tmp_path, 2, ALL_GOOD)
    assert "a" in {entry.key for entry in share(PLAN, Shard(2, 1)).environments}
    return found


def _lines(path: Path) -> list[str]:
    return (path / "attempts.ndjson").read_text().splitlines()


def _without_database(path: Path) -> None:
    for name in ("results.sqlite", "results.sqlite-wal", "results.sqlite-shm"):
        (path / name).unlink(missing_ok=True)


def _whole(merged: Merged, output: Path) -> None:
    assert merged.complete, merged
    assert {cell["verdict"] for cell in _published(output)["cells"]} == {"pass", "unresolvable", "install-error"}


def test_the_exchange_files_alone_are_enough(shards: list[Path], tmp_path: Path) -> None:
    """No database, no logs, no locks: the verdicts are all there, and what is gone is told."""
    for path in shards:
        _without_database(path)
        for name in ("logs", "locks", "arrays", "results.json"):
            shutil.rmtree(path / name, ignore_errors=True)
    merged = merge(shards, tmp_path / "merged")
    _whole(merged, tmp_path / "merged")
    assert "have lost their log" in merged.notes[0]


@pytest.mark.parametrize(
    "content", [b"", b"no database at all, but long enough to look at", b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_database_that_is_none_does_no_harm(shards: list[Path], tmp_path: Path, content: bytes) -> None:
    """The exchange files are what is read."""
    _without_database(shards[0])
    (shards[0] / "results.sqlite").write_bytes(content)
    _whole(merge(shards, tmp_path / "merged"), tmp_path / "merged")


def test_a_database_whose_tables_are_views_is_not_asked(shards: list[Path], tmp_path: Path) -> None:
    """A view computes whatever its maker wants, for as long as he wants."""
    _without_database(shards[0])
    database = sqlite3.connect(shards[0] / "results.sqlite")
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS sequence, x AS body FROM n"
    database.execute(f"CREATE VIEW attempts AS {endless}")
    database.execute(f"CREATE VIEW environments AS {endless}")
    database.close()
    _whole(merge(shards, tmp_path / "merged"), tmp_path / "merged")


def test_a_torn_line_is_taken_from_the_database(shards: list[Path], tmp_path: Path) -> None:
    """A kill between the database and the exchange file loses nothing where both are there."""
    path = shards[0] / "attempts.ndjson"
    path.write_bytes(path.read_bytes()[:-40])
    merged = merge(shards, tmp_path / "merged")
    _whole(merged, tmp_path / "merged")
    assert "the last line is cut" in merged.notes[0]


def test_a_torn_line_without_a_database_is_one_attempt_less(shards: list[Path], tmp_path: Path) -> None:
    """The cell of the cut line has no answer, and the shard is named as cut; with the whole shard all is well again."""
    shutil.copytree(shards[0], tmp_path / "good")
    _without_database(shards[0])
    path = shards[0] / "attempts.ndjson"
    path.write_bytes(path.read_bytes()[:-40])
    merged = merge(shards, tmp_path / "merged")
    assert [(str(account.shard), account.given, account.lacking) for account in merged.shards] == [
        ("1/2", True, 1),
        ("2/2", True, 0),
    ]
    _whole(merge([tmp_path / "good"], tmp_path / "merged"), tmp_path / "merged")


def test_a_folder_without_a_plan_says_nothing(shards: list[Path], tmp_path: Path) -> None:
    """A shard that was killed before it wrote its plan is a missing shard."""
    (tmp_path / "nothing").mkdir()
    merged = merge([shards[0], tmp_path / "nothing"], tmp_path / "merged")
    assert "has no plan.json" in merged.notes[0]
    assert [account.given for account in merged.shards] == [True, False]


def test_the_plan_can_be_given(shards: list[Path], tmp_path: Path) -> None:
    """Shards that have lost the whole plan are merged with the plan's own file, and with no other."""
    for path in shards:
        (path / "whole-plan.json").unlink()
    with pytest.raises(RunFolderError, match="nothing here says what was to be run"):
        merge(shards, tmp_path / "merged")
    write_plan(PLAN, tmp_path / "plan.json")
    write_plan(plan_of({"a": 1}), tmp_path / "other.json")
    with pytest.raises(RunFolderError, match="is of plan"):
        merge(shards, tmp_path / "merged", tmp_path / "other.json")
    _whole(merge(shards, tmp_path / "merged", tmp_path / "plan.json"), tmp_path / "merged")


def test_a_merged_folder_that_was_finished_is_whole(shards: list[Path], tmp_path: Path) -> None:
    """What the missing shard owed can be run in the merged folder itself; merged again, nothing is missing."""
    output = tmp_path / "merged"
    assert not merge(shards[:1], output).complete
    with RunFolder(output) as folder:
        folder.keep_plan(PLAN)
        _fill(folder, share(PLAN, Shard(2, 2)), ALL_GOOD)
    _whole(merge(shards[:1], output), output)


def test_a_damaged_environment_counts_for_nothing(tmp_path: Path) -> None:
    """One of two runs of a shard found that something wrote into its environment: its attempts must not give a pass."""
    one, other = _shards(tmp_path / "one", 1, ALL_GOOD), _shards(tmp_path / "other", 1, ALL_GOOD)
    with RunFolder(one[0]) as folder:
        folder.keep_environment("a", EnvironmentState(record={"python": "3.11.7"}, fault="a file has changed"))
    for name, order in (("there", [*one, *other]), ("back", [*other, *one])):
        merge(order, tmp_path / name)
        found = {cell["verdict"] for cell in _published(tmp_path / name)["cells"] if cell["environment"] == "a"}
        assert found == {"install-error"}


# --- what no kill leaves


def _change(path: Path, number: int, **values: Any) -> None:
    """Make a line of the exchange file say something else."""
    lines = _lines(path)
    lines[number] = json.dumps({**json.loads(lines[number]), **values})
    (path / "attempts.ndjson").write_text("".join(line + "\n" for line in lines))


def _garbage_in_the_middle(path: Path) -> None:
    lines = _lines(path)
    (path / "attempts.ndjson").write_text("\n".join([lines[0], lines[1][:30], *lines[2:], ""]))


def _deep(path: Path) -> None:
    with (path / "attempts.ndjson").open("a") as file:
        file.write("[" * 100_000 + "\n")


def _log(content: bytes | None, name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        _without_database(path)
        _change(path, 0, log=name)
        if content is not None:
            (path / "logs" / name).write_bytes(content)

    return change


def _foreign_cell(path: Path) -> None:
    """A vote on a cell of the other shard."""
    other = next(cell for cell in share(PLAN, Shard(2, 2)).cells if cell.environment != "gone")
    row = json.dumps(_made(other, 7).as_json())
    with (path / "attempts.ndjson").open("a") as file:
        file.write(row + "\n")


def _foreign_environment(path: Path) -> None:
    data = json.loads((path / "environments.json").read_text())
    key = next(entry.key for entry in share(PLAN, Shard(2, 2)).environments)
    data["environments"][key] = {"record": None, "fault": "down", "missing": {}}
    (path / "environments.json").write_text(json.dumps(data))


def _linked(name: str, target: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).symlink_to(target)

    return change


def _linked_logs(path: Path) -> None:
    shutil.move(path / "logs", path.parent / "elsewhere")
    (path / "logs").symlink_to(path.parent / "elsewhere")


def _piped(path: Path) -> None:
    (path / "attempts.ndjson").unlink()
    os.mkfifo(path / "attempts.ndjson")


def _plan(**values: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = json.loads((path / "plan.json").read_text())
        (path / "plan.json").write_text(json.dumps({**data, **values}))

    return change


def _other_whole(path: Path) -> None:
    write_plan(plan_of({"a": 3}), path / "whole-plan.json")


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a cut line in the middle": (_garbage_in_the_middle, r"attempts\.ndjson:2: is no attempt"),
    "a line without end of brackets": (_deep, "is no attempt: RecursionError"),
    "another body than the database": (lambda path: _change(path, 0, seconds=9.0), "there twice, and says two things"),
    "a kind of the wrong type": (lambda path: _change(path, 0, signal="SIGKILL"), "signal"),
    "a stage that there is none": (lambda path: _change(path, 0, stages=[{"stage": "../x", "findings": [], "facts": {}, "seconds": 0}]), "stage"),
    "an id that is a path": (lambda path: _change(path, 0, id="../../x"), "id: "),
    "a log that is a path": (_log(None, "../../plan.json"), "log: "),
    "a log that is no digest": (_log(None, "A" * 64), "log: "),
    "a log of other content": (_log(b"other", "0" * 64), "another sha256"),
    "a cell of another shard": (_foreign_cell, "of a cell that this shard does not have"),
    "an environment of another shard": (_foreign_environment, "which this shard does not have"),
    "a link to another file": (_linked("attempts.ndjson", "/etc/passwd"), "no plain file"),
    "a link to an endless file": (_linked("environments.json", "/dev/zero"), "no plain file"),
    "logs that are elsewhere": (_linked_logs, "is a link"),
    "a pipe": (_piped, "no plain file"),
    "no environments": (lambda path: (path / "environments.json").write_text("[1]") and None, "does not say what became"),
    "a shard that is none": (_plan(shard="9/2"), "does not say which shard"),
    "a shard that is a list": (_plan(shard=[]), "does not say which shard"),
    "a plan that is none": (lambda path: (path / "plan.json").write_text("[]") and None, "does not say which shard"),
    "another plan": (_plan(whole="0" * 64), "is not the plan that the shard is of"),
    "another whole plan": (_other_whole, "is not the plan that the shard is of"),
    "another number of shards": (_plan(shard="1/3"), "these are parts of 2 and 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_kill_leaves_is_refused(shards: list[Path], tmp_path: Path, name: str) -> None:
    """With the place, exit code 2, and no folder; the other shards alone are merged."""
    change, message = HOSTILE[name]
    change(shards[0])
    with pytest.raises(MetamatrixError, match=message) as raised:
        merge(shards, tmp_path / "merged")
    assert raised.value.exit_code == 2
    assert raised.value.remedy
    assert not (tmp_path / "merged").exists()
    assert merge(shards[1:], tmp_path / "merged").shards[1].complete


def test_a_whole_plan_that_lies_is_refused(shards: list[Path], tmp_path: Path) -> None:
    """Ids become names of pages, digests names of files: each must be what its content gives."""
    data = json.loads((shards[0] / "whole-plan.json").read_text())

    def changed(**values: Any) -> str:
        return json.dumps({**data, **values})

    cell, entry = data["cells"][0], data["environments"][0]
    wrong = {
        "is no id": changed(cells=[{**cell, "subject": "../../x"}]),
        "is not of probe": changed(cells=[{**cell, "id": "0" * 16}]),
        "asks for an offload": changed(cells=[{**cell, "probe": {**cell["probe"], "offload": "x"}}]),
        "another sha256": changed(locks={"../../x": "text"}),
        "has no lock": changed(locks={}),
        "has an environment twice": changed(environments=[entry, entry]),
        "is no plan": changed(environments=[{**entry, "asked": 3}]),
        "is no plan: ValueError": changed(cells=[{**cell, "expectation": {"verdict": "pass", "expires": "soon"}}]),
    }
    for message, text in wrong.items():
        (shards[0] / "whole-plan.json").write_text(text)
        with pytest.raises(RunFolderError, match=message):
            merge(shards[:1], tmp_path / "merged")


def test_an_output_of_something_else_is_left_alone(shards: list[Path], tmp_path: Path) -> None:
    """The folder of a shard, or of another plan, is no place for a merge."""
    with pytest.raises(WrongShard, match="is the folder of a shard"):
        merge(shards, shards[0])
    other = _shards(tmp_path / "other", 1, {cell.id: "none" for cell in plan_of({"a": 1}).cells}, plan_of({"a": 1}))
    merge(other, tmp_path / "merged")
    before = _content(tmp_path / "merged")
    with pytest.raises(RunFolderError, match="is of plan"):
        merge(shards, tmp_path / "merged")
    assert _content(tmp_path / "merged") == before


def test_attempts_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """One id, two bodies, in two folders: the message names both."""
    one, other = _shards(tmp_path / "one", 1, ALL_GOOD), _shards(tmp_path / "other", 1, ALL_GOOD)
    _without_database(other[0])
    _change(other[0], 0, seconds=9.0)
    with pytest.raises(RunFolderError, match=r"says one thing in .*one/shard-1 and another in .*other/shard-1"):
        merge([*one, *other], tmp_path / "merged")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["../x", "orphan", "load"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a JSON value."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


RICH = {
    "kind": "orphan",
    "text": "one tensor",
    "whole": ["unet"],
    "tensors": [{"module": "unet", "name": "w", "kind": "parameter", "state": "orphan", "shape": [1], "detail": ""}],
}  # fmt: skip
FACTS = {"controls": [CONTROL], "golden": {"within": False, "array": "image", "difference": 0.1}}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_a_line_says_it_is_refused_or_can_be_published(data: st.DataObject) -> None:
    """No value in an attempt or a record breaks the merge or the pages: there is an error in words, or a site."""
    plan = plan_of({"a": 1})
    cell = plan.cells[0]
    row = _made(cell, 1, found={"load": [RICH, exception()]}, facts=FACTS, stages=("import", "load")).as_json()
    states = {
        "environments": {"a": {"record": {"installed": {"torch": "2"}, "direct_url": {}}, "fault": "", "missing": {}}}
    }
    target = data.draw(st.sampled_from([row, states]))
    _put(target, data.draw(st.sampled_from(list(_places(target)))), data.draw(json_values))
    with _place() as root:
        shards = _shards(root, 1, {cell.id: "none"}, plan)
        _without_database(shards[0])
        (shards[0] / "attempts.ndjson").write_text(json.dumps(row) + "\n")
        (shards[0] / "environments.json").write_text(json.dumps(states))
        try:
            run_merge(shards, root / "merged", None, as_json=True)
        except MetamatrixError as error:
            assert error.exit_code == 2
            return
        assert run_report(ReportChoices(root / "merged", None, None, None, False, None, True)) == 0


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_a_plan_says_it_is_refused_or_can_be_published(data: st.DataObject) -> None:
    """The same of a plan that no digest vouches for: that of a folder which claims to be a whole run's."""
    plan = plan_of({"a": 1, "gone": 0})
    with _place() as root:
        with RunFolder(root / "run") as folder:
            folder.keep_plan(plan)
            _fill(folder, plan, dict.fromkeys((cell.id for cell in plan.cells), "good"))
        written = json.loads((root / "run" / "plan.json").read_text())
        _put(written, data.draw(st.sampled_from(list(_places(written)))), data.draw(json_values))
        (root / "run" / "plan.json").write_text(json.dumps(written))
        try:
            run_merge([root / "run"], root / "merged", None, as_json=True)
        except MetamatrixError as error:
            assert error.exit_code == 2
            return
        try:
            assert run_report(ReportChoices(root / "merged", None, None, None, False, None, True)) == 0
        except MetamatrixError as error:
            assert re.search("there is no cell|lock of environment .* cannot be read", str(error))
        assert {path.name for path in root.iterdir()} == {"run", "merged"}


# --- the command


def test_the_command_says_what_is_missing(
    shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 where all is there; 4, with K/N and the cells, where a shard is missing or cut."""
    assert run_merge(shards, tmp_path / "all", None, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["complete"], found["lacking"], found["cells"]) == (True, 0, len(PLAN.cells))
    assert run_merge(shards[:1], tmp_path / "some", None, as_json=False) == 4
    told = capsys.readouterr().err
    assert "shard 2/2 is missing: " in told and "of its" in told and "metamatrix run --plan" in told
    assert json.loads((tmp_path / "some" / "results.json").read_text())["run"]["no_answer_share"] > 0
