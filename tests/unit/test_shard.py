"""Shards: every environment in exactly one, balanced, the same everywhere; a folder holds one of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import WrongShard
from runner.plan import read_plan, write_plan
from runner.results.folder import RunFolder
from runner.shard import Shard, plan_digest, share, shares
from tests.strategies import plan_of

sizes = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 9), max_size=9)
"""Environment -> its cells; one without cells does not exist, and has a single cell that says so."""


@given(sizes, st.integers(1, 9))
def test_every_environment_and_cell_is_in_exactly_one_shard(cells: dict[str, int], count: int) -> None:
    """The shards of a plan, put together, are the plan: nothing twice, nothing left out, proofs and faults too."""
    plan = plan_of(cells)
    parts = [share(plan, Shard(count, number)) for number in range(1, count + 1)]
    assert sorted(entry.key for part in parts for entry in part.environments) == sorted(cells)
    assert sorted(cell.id for part in parts for cell in part.cells) == sorted(cell.id for cell in plan.cells)
    for part in parts:
        assert {cell.environment for cell in part.cells} <= {entry.key for entry in part.environments}
        assert set(part.locks) == {entry.lock for entry in part.environments if entry.lock}


@given(sizes, st.integers(1, 9))
def test_shards_are_balanced_by_cells(cells: dict[str, int], count: int) -> None:
    """No two shards differ by more than the largest environment of the heavier one."""
    loads = [[cells[key] for key in part] for part in shares(plan_of(cells), count)]
    heaviest = max(loads, key=sum)
    assert sum(heaviest) - min(map(sum, loads)) <= max(heaviest, default=0)


@given(sizes, st.integers(1, 5), st.randoms())
def test_the_order_of_a_plan_moves_nothing(cells: dict[str, int], count: int, chance: random.Random) -> None:
    """Which shard an environment is in depends on keys and sizes alone."""
    names = list(cells)
    chance.shuffle(names)
    other = plan_of({name: cells[name] for name in names})
    assert shares(plan_of(cells), count) == shares(other, count)


def test_the_heaviest_goes_first_and_ties_go_by_key() -> None:
    """One example by hand, so that no release moves environments from shard to shard unseen."""
    plan = plan_of({"a": 5, "b": 3, "c": 3, "d": 2, "e": 1, "gone": 0})
    assert shares(plan, 2) == [{"a", "d", "gone"}, {"b", "c", "e"}]
    assert shares(plan, 3) == [{"a"}, {"b", "d"}, {"c", "e", "gone"}]


@given(sizes.filter(bool), st.integers(1, 4))
def test_a_plan_file_says_which_shard_it_is(cells: dict[str, int], count: int) -> None:
    """What is written is read again: the part, the digest of the whole, and that digest is the file's own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        whole = plan_of(cells)
        write_plan(whole, path)
        assert plan_digest(read_plan(path)) == plan_digest(whole)
        write_plan(share(whole, Shard(count, 1)), path)
        part = read_plan(path)
    assert (part.shard, part.whole) == (f"1/{count}", plan_digest(whole))


def test_when_and_where_a_plan_was_made_is_not_what_it_is() -> None:
    """Two machines that plan the same, at another time and from another path, have the same plan; another cell is another."""
    plan = plan_of({"a": 2})
    same = replace(plan, created="2027-01-01", matrix="/elsewhere/matrix.yaml", warnings=("slow",))
    assert plan_digest(plan) == plan_digest(same)
    assert plan_digest(plan) != plan_digest(replace(plan, cells=plan.cells[:1]))


def test_plans_of_older_releases_are_read(tmp_path: Path) -> None:
    """A plan file without the new fields is a whole plan."""
    path = tmp_path / "plan.json"
    write_plan(plan_of({"a": 1}), path)
    data = json.loads(path.read_text())
    del data["shard"], data["whole"]
    path.write_text(json.dumps(data))
    assert (read_plan(path).shard, read_plan(path).whole) == (None, None)


@pytest.mark.parametrize(
    "text", ["", "2", "0/3", "4/3", "1/0", "-1/3", "1/3/3", "a/b", "1 / 3", "01/3", "1/99999", "１/3"]
)
def test_what_is_no_shard_is_refused(text: str) -> None:
    """K is a number from 1 to N, and nothing else stands there."""
    with pytest.raises(WrongShard, match="no shard"):
        Shard.parse(text)


@given(st.integers(1, 9999).flatmap(lambda count: st.tuples(st.integers(1, count), st.just(count))))
def test_a_shard_is_written_as_it_is_read(pair: tuple[int, int]) -> None:
    """Both directions agree."""
    assert str(Shard.parse(f"{pair[0]}/{pair[1]}")) == f"{pair[0]}/{pair[1]}"


def test_a_folder_holds_one_shard_of_one_plan(tmp_path: Path) -> None:
    """Going on with the same shard is right; another one, another plan, or all of it is refused, and changes nothing."""
    plan, other = plan_of({"a": 2, "b": 1}), plan_of({"a": 2, "b": 2})
    with RunFolder(tmp_path) as folder:
        folder.keep_plan(share(plan, Shard(2, 1)), plan)
        folder.keep_plan(share(plan, Shard(2, 1)), plan)
        before = (tmp_path / "plan.json").read_bytes()
        for wrong, whole in ((share(plan, Shard(2, 2)), plan), (share(other, Shard(2, 1)), other), (plan, None)):
            with pytest.raises(WrongShard, match="holds shard 1/2 of plan"):
                folder.keep_plan(wrong, whole)
        assert (tmp_path / "plan.json").read_bytes() == before
        assert folder.whole_plan() == plan


def test_the_folder_of_a_whole_run_becomes_no_shard(tmp_path: Path) -> None:
    """It has attempts of other environments, which a shard must not speak of."""
    plan = plan_of({"a": 2, "b": 1})
    with RunFolder(tmp_path) as folder:
        folder.keep_plan(plan)
        with pytest.raises(WrongShard, match="holds a plan that is no shard; this run is shard 2/2"):
            folder.keep_plan(share(plan, Shard(2, 2)), plan)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "metamatrix", "run", "--isolation", "venv", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_wrong_shard_exits_with_2_and_makes_nothing(tmp_path: Path) -> None:
    """The message names what was given and what is right."""
    done = _run("--shard", "3/2", "--output", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "'3/2' is no shard" in done.stderr and "K/N" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_shard_without_environments_is_complete(tmp_path: Path) -> None:
    """It writes a whole, empty folder, exits with 0, and can go on; a shard of it is refused."""
    write_plan(plan_of({"a": 0}), tmp_path / "plan.json")
    flags = ("--plan", str(tmp_path / "plan.json"), "--output", str(tmp_path / "run"))
    for _ in range(2):
        done = _run(*flags, "--shard", "2/2")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "attempts.ndjson").read_bytes() == b""
    assert json.loads((tmp_path / "run" / "results.json").read_text())["cells"] == []
    assert read_plan(tmp_path / "run" / "plan.json").shard == "2/2"
    done = _run("--plan", str(tmp_path / "run" / "plan.json"), "--shard", "1/2", "--output", str(tmp_path / "other"))
    assert done.returncode == 2
    assert "is shard 2/2 of a plan already" in done.stderr
