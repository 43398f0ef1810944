"""Covering arrays: nothing that may occur together is lost, whatever the constraints are."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.matrix.axes import pointless
from runner.matrix.cover import combinations, cover
from runner.matrix.expand import expand
from runner.matrix.load import load_matrix
from tests.integration.conftest import ROOT
from tests.strategies import SMALL, matrix, releases

AXES = {"a": "123", "b": "12", "c": "1234", "d": "12"}
ALL = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values())]


@settings(deadline=None)
@given(st.sets(st.integers(0, len(ALL) - 1), min_size=1), st.data(), st.sampled_from([2, 3]))
def test_every_combination_that_may_occur_occurs(numbers: set[int], data: st.DataObject, strength: int) -> None:
    """Whatever rows are allowed: only such rows are chosen, each once, all combinations of them, and all anchors."""
    rows = [ALL[number] for number in sorted(numbers)]
    anchors = data.draw(st.lists(st.sampled_from(rows), unique_by=lambda row: tuple(row.values())))
    chosen = cover(rows, strength, anchors)
    assert all(row in rows for row in chosen)
    assert len({tuple(row.values()) for row in chosen}) == len(chosen)
    assert combinations(chosen, strength) == combinations(rows, strength)
    assert all(row in chosen for row in anchors)


def test_a_cover_is_smaller_than_the_product_and_the_same_twice() -> None:
    """What is saved is what coverage is for; the same matrix gives the same cells."""
    chosen = cover(ALL, 2, [])
    assert len(chosen) < len(ALL) / 2
    assert cover(ALL, 2, []) == chosen


COVERED = (
    SMALL.replace(b"offload: [none, sequential]", b"offload: [none, sequential, disk, model]")
    .replace(
        b"load: [pretrained, single_file]",
        b"load: [pretrained, single_file, components]\n  pipeline: [sd15, sdxl, flux]\n  lifecycle: [single, move]",
    )
    .replace(b"few: [offload == none]", b"few: [runner == cpu]")
    + b"""
coverage:
  few: {strength: pairwise, anchors: [pipeline == sdxl and offload == disk]}
"""
)


def test_each_environment_of_a_selection_is_covered() -> None:
    """Every pair of probe values that can say something occurs in every environment, beside the anchors."""
    full, few = (expand(matrix(COVERED), select, releases).asked for select in (None, "few"))
    assert len(few) < len(full)
    for environment in {tuple(cell.asked.items()) for cell in full}:
        own = [[c.probe for c in cells if tuple(c.asked.items()) == environment] for cells in (full, few)]
        possible = [probe for probe in own[0] if not pointless(probe)]
        assert combinations(own[1], 2) == combinations(possible, 2)
        assert [probe for probe in possible if probe["pipeline"] == "sdxl" and probe["offload"] == "disk"] == [
            probe for probe in own[1] if probe["pipeline"] == "sdxl" and probe["offload"] == "disk"
        ]


def test_what_coverage_leaves_out_is_counted() -> None:
    """The plan says how many cells were not chosen, and why."""
    cells = expand(matrix(COVERED), "few", releases)
    assert any("pairwise" in rule.reason for rule in cells.excluded)
    assert len(cells.asked) + sum(rule.count for rule in cells.excluded) == cells.total


def test_the_nightly_selection_is_wide_enough() -> None:
    """From diffusers 0.27, transformers 4.41 and accelerate 0.30 to the newest, with two torch versions, few cells each."""
    cells = expand(load_matrix(ROOT / "matrix.yaml"), "nightly", releases).asked
    environments = {tuple(cell.asked.items()): cell.asked for cell in cells}
    assert len(environments) >= 12
    oldest = {"diffusers": "0.27.2", "transformers": "4.41.2", "accelerate": "0.30.1"}
    for package, version in oldest.items():
        assert {version, "latest"} <= {asked[package] for asked in environments.values()}
    assert len({asked["torch"] for asked in environments.values()}) >= 2
    assert max(Counter(tuple(cell.asked.items()) for cell in cells).values()) <= 1500
