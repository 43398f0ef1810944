"""What goes when a store grows over its budget: property tests on real files with real hardlinks."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.environments.tidy import plan_tidying

BLOCK = 4096
OLD = time.time() - 10 * 86400


def _store(root: Path, environments: list[list[int]]) -> None:
    """Environments, oldest first, each of the wheels (numbers) that it has; a file for each wheel, shared by hardlinks."""
    for folder in ("environments", "bytecode", "uv-cache/archive-v0", "locks"):
        (root / folder).mkdir(parents=True)
    for number, wheels in enumerate(environments):
        (root / "environments" / f"e{number}").mkdir()
        for wheel in wheels:
            kept = root / "uv-cache" / "archive-v0" / f"w{wheel}" / "file"
            if not kept.exists():
                kept.parent.mkdir()
                kept.write_bytes(b"x" * BLOCK)
                os.utime(kept.parent, (OLD, OLD))
            os.link(kept, root / "environments" / f"e{number}" / f"w{wheel}")
        lock = root / "locks" / f"e{number}"
        lock.touch()
        os.utime(lock, (OLD + number, OLD + number))


def _names(root: Path, folder: str) -> set[str]:
    return set(os.listdir(root / folder))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=5),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_the_budget_is_kept_and_the_oldest_go_first(environments: list[list[int]], blocks: int, kept: int) -> None:
    """Afterwards the store is within its budget, or only what must stay is left; the oldest went first."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _store(root, environments)
        keep = {f"e{kept}"}
        before = _names(root, "environments")
        planned = plan_tidying(root, blocks * BLOCK, keep)
        assert planned.total == BLOCK * len({wheel for wheels in environments for wheel in wheels})
        planned.carry_out(root)
        after = plan_tidying(root, 1 << 40, ())
        assert after.total == planned.total - planned.frees
        left = _names(root, "environments")
        assert after.total <= blocks * BLOCK or left <= keep
        gone = sorted(before - left)
        assert gone == sorted(before - keep)[: len(gone)]
        assert keep & before <= left
        held = {wheel for name in left for wheel in _names(root, f"environments/{name}")}
        assert held <= _names(root, "uv-cache/archive-v0")
        if planned.total <= blocks * BLOCK:
            assert planned.names == ()


def test_what_was_used_lately_stays(tmp_path: Path) -> None:
    """A run that cannot be seen from here may use it: its lock is young."""
    _store(tmp_path, [[1], [2]])
    os.utime(tmp_path / "locks" / "e0")
    assert plan_tidying(tmp_path, 0, ()).names == ("environments/e1", "uv-cache/archive-v0/w2")


def test_builds_that_were_killed_go_when_they_are_old(tmp_path: Path) -> None:
    """A young one may be under way."""
    _store(tmp_path, [[1]])
    for name in ("old", "young"):
        (tmp_path / "environments" / f".building-{name}").mkdir()
        (tmp_path / "environments" / f".building-{name}" / "file").write_bytes(b"x")
    os.utime(tmp_path / "environments" / ".building-old", (OLD, OLD))
    assert plan_tidying(tmp_path, 1 << 40, ()).names == ("environments/.building-old",)
