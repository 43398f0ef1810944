"""From attempts to verdicts: precedence, totals, witnesses, refusals, controls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.matrix.load import Limits
from runner.plan import Expectation, Plan, PlannedCell, PlannedEnvironment
from runner.results.attempt import Attempt
from runner.results.conclude import (
    Conclusion,
    EnvironmentState,
    conclude,
    controls_cell,
    reference_cell,
    sibling,
    unconfirmed,
)
from runner.results.outcome import judge
from runner.results.signature import normalised, signature
from runner.verdicts import CLASSES, FINDING_ORDER, Class, Verdict, class_of
from tests.strategies import ALL_STAGES, attempt, cell, exception

ORPHAN = {
    "kind": "orphan",
    "text": "1 tensor",
    "tensors": [{"module": "unet", "name": "a", "kind": "parameter", "state": "orphan", "shape": [1], "detail": "x"}],
}


def plan_of(*cells: PlannedCell) -> Plan:
    """A plan of one environment."""
    environment = PlannedEnvironment("environment", {"torch": "2.13.0"}, {"torch": "2.13.0"}, "cpu", lock="l")
    return Plan("m", "d", None, "now", Limits(120, 1, 1), (environment,), cells, (), {})


def controls(planned: PlannedCell, got: tuple[str, ...] = ("corrupt",)) -> dict[str, list[Attempt]]:
    """The attempt that planted a control, of which the guard said `got`."""
    hidden = controls_cell(planned)
    caught = "corrupt" in got
    table = {"controls": [{"id": "zeroed", "expected": "corrupt", "got": list(got), "caught": caught}]}
    return {hidden.id: [attempt(hidden, stages=("lifecycle",), facts=table)]}


def verdict(planned: PlannedCell, attempts: dict[str, list[Attempt]], day: str = "2026-12-01") -> Conclusion:
    return conclude(plan_of(planned), {}, attempts, date.fromisoformat(day))[0]


def test_every_verdict_has_exactly_one_class() -> None:
    """The classes part the verdicts."""
    assert sorted(v for members in CLASSES.values() for v in members) == sorted(Verdict)
    assert {class_of(v) for v in Verdict} == set(CLASSES)


@given(st.permutations(FINDING_ORDER), st.sampled_from(ALL_STAGES))
def test_within_a_stage_the_weightiest_finding_decides(order: list[str], stage: str) -> None:
    """The order in which a stage reports its findings does not matter."""
    found = [exception() if kind == "exception" else {"kind": kind, "text": kind} for kind in order]
    assert judge(attempt(cell(), {stage: found})).verdict == Verdict.HARNESS_ERROR


@given(st.sampled_from(ALL_STAGES), st.sampled_from(ALL_STAGES))
def test_the_earliest_stage_decides(one: str, two: str) -> None:
    """A heavier finding at a later stage does not hide an earlier one."""
    early, late = sorted((one, two), key=ALL_STAGES.index)
    found = {late: [ORPHAN], early: [{"kind": "corrupt", "text": "c"}, *([ORPHAN] if early == late else [])]}
    outcome = judge(attempt(cell(), found))
    assert outcome.stage == early
    assert outcome.verdict == (Verdict.ORPHAN_META if early == late else Verdict.CORRUPT_WEIGHTS)


@pytest.mark.parametrize(
    ("how", "stages", "expected", "stage"),
    [
        ("exited", ALL_STAGES, Verdict.PASS, "lifecycle"),
        ("exited", ALL_STAGES[:3], Verdict.HARNESS_ERROR, "step"),
        ("exited", ALL_STAGES[-1:], Verdict.HARNESS_ERROR, "lifecycle"),
        ("signal", ALL_STAGES[:2], Verdict.CRASH, "offload"),
        ("died", ALL_STAGES[:1], Verdict.CRASH, "load"),
        ("timeout", (), Verdict.TIMEOUT, "import"),
        ("harness", ALL_STAGES, Verdict.HARNESS_ERROR, "lifecycle"),
    ],
)
def test_how_an_attempt_ended_without_findings(how: str, stages: Any, expected: Verdict, stage: str) -> None:
    """A death names the stage that was under way; an early end without a word is our fault, never a pass."""
    outcome = judge(attempt(cell(), how=how, stages=stages))
    assert (outcome.verdict, outcome.stage) == (expected, stage)


def test_no_pass_without_controls_that_were_caught() -> None:
    """Controls that did not run, that the guard missed, or that another verdict hides, turn a pass into no answer."""
    planned = cell()
    good = {planned.id: [attempt(planned)]}
    for more, expected in (
        ({}, Verdict.HARNESS_ERROR),
        (controls(planned, got=()), Verdict.HARNESS_ERROR),
        (controls(planned, got=("corrupt", "harness")), Verdict.HARNESS_ERROR),
        (controls(planned, got=("bad-output", "corrupt")), Verdict.PASS),
        (controls(planned), Verdict.PASS),
    ):
        outcome = verdict(planned, {**good, **more}).outcome
        assert outcome is not None
        assert outcome.verdict == expected


def test_a_bad_verdict_waits_for_its_cold_witness() -> None:
    """Forked and bad is no verdict yet; with a cold attempt that agrees it is; with one that does not it is ours."""
    planned = cell()
    bad = attempt(planned, {"load": [ORPHAN]})
    assert verdict(planned, {planned.id: [bad]}).outcome is None
    assert unconfirmed([planned], {planned.id: [bad]}) == [planned]
    witness = attempt(planned, {"load": [ORPHAN]}, mode="cold", identifier="b")
    outcome = verdict(planned, {planned.id: [bad, witness]}).outcome
    assert outcome is not None
    assert outcome.verdict == Verdict.ORPHAN_META
    clean = attempt(planned, mode="cold", identifier="b")
    outcome = verdict(planned, {planned.id: [bad, clean]}).outcome
    assert outcome is not None
    assert outcome.verdict == Verdict.HARNESS_ERROR
    assert unconfirmed([planned], {planned.id: [bad, clean]}) == []


def test_a_witness_that_gave_no_answer_is_asked_again() -> None:
    """A cold process that met a fault of ours confirms nothing, and the next run asks another."""
    planned = cell()
    bad = attempt(planned, {"load": [ORPHAN]})
    silent = attempt(planned, mode="cold", how="harness", stages=(), identifier="b")
    rows = {planned.id: [bad, silent]}
    outcome = verdict(planned, rows).outcome
    assert outcome is not None
    assert outcome.verdict == Verdict.HARNESS_ERROR
    assert unconfirmed([planned], rows) == [planned]
    rows[planned.id].append(attempt(planned, {"load": [ORPHAN]}, mode="cold", identifier="c"))
    outcome = verdict(planned, rows).outcome
    assert outcome is not None
    assert outcome.verdict == Verdict.ORPHAN_META
    assert unconfirmed([planned], rows) == []


def test_one_witness_serves_all_cells_of_its_signature() -> None:
    """Only one cell of a signature must run cold, and all of them then have their verdict."""
    cells = [cell(offload=mode) for mode in ("none", "disk", "sequential")]
    attempts = {planned.id: [attempt(planned, {"load": [ORPHAN]})] for planned in cells}
    assert unconfirmed(cells, attempts) == cells[:1]
    attempts[cells[0].id].append(attempt(cells[0], {"load": [ORPHAN]}, mode="cold"))
    found = conclude(plan_of(*cells), {}, attempts, date(2026, 12, 1))
    assert [c.outcome and c.outcome.verdict for c in found] == [Verdict.ORPHAN_META] * 3


def test_attempts_of_one_mode_that_disagree_are_flaky() -> None:
    """Two forks, two answers."""
    planned = cell()
    rows = [attempt(planned), attempt(planned, {"step": [exception()]}, identifier="b")]
    outcome = verdict(planned, {planned.id: rows, **controls(planned)}).outcome
    assert outcome is not None
    assert outcome.verdict == Verdict.FLAKY


@given(st.permutations([0, 1, 2]), st.lists(st.sampled_from(["good", "bad", "harness"]), min_size=3, max_size=3))
def test_the_order_of_attempts_does_not_matter_and_no_answers_never_vote(order: list[int], kinds: list[str]) -> None:
    """Permuting attempts keeps the verdict; a harness fault beside an answer changes nothing."""
    planned = cell()

    def made(kind: str, index: int) -> Attempt:
        found = {"good": {}, "bad": {"load": [ORPHAN]}, "harness": {"load": [{"kind": "harness", "text": "h"}]}}
        return attempt(planned, found[kind], mode="cold", identifier=str(index))

    rows = [made(kind, index) for index, kind in enumerate(kinds)]
    one = verdict(planned, {planned.id: rows, **controls(planned)}).outcome
    two = verdict(planned, {planned.id: [rows[index] for index in order], **controls(planned)}).outcome
    voting = [row for row, kind in zip(rows, kinds, strict=True) if kind != "harness"]
    assert one is not None
    assert two is not None
    assert one.verdict == two.verdict
    if voting:
        three = verdict(planned, {planned.id: voting, **controls(planned)}).outcome
        assert three is not None
        assert three.verdict == one.verdict


def test_a_refusal_needs_a_sound_sibling() -> None:
    """The same error on a sound checkpoint is a load error; another one is a refusal; no sibling is no answer."""
    damaged = cell(checkpoint="truncated")
    rows = {damaged.id: [attempt(damaged, {"load": [exception("OSError", "cut")]}, mode="cold")]}
    sound = sibling(damaged)
    same = attempt(sound, {"load": [exception("OSError", "cut")]})
    for more, expected in (
        ({sound.id: [attempt(sound)]}, Verdict.REFUSED),
        ({sound.id: [same]}, Verdict.LOAD_ERROR),
        ({}, Verdict.HARNESS_ERROR),
    ):
        outcome = verdict(damaged, {**rows, **more}).outcome
        assert outcome is not None
        assert outcome.verdict == expected


@pytest.mark.parametrize("how", ["signal", "timeout", "oom"])
def test_a_sibling_that_never_loaded_makes_no_refusal(how: str) -> None:
    """A sound checkpoint that crashed shows nothing about the damaged one: no answer, never good."""
    damaged = cell(checkpoint="truncated")
    rows = {damaged.id: [attempt(damaged, {"load": [exception()]}, stages=ALL_STAGES[:2])]}
    sound = sibling(damaged)
    rows[sound.id] = [attempt(sound, how=how, stages=ALL_STAGES[:1], identifier="b")]
    outcome = verdict(damaged, {**rows, **controls(damaged)}).outcome
    assert outcome is not None
    assert outcome.verdict == Verdict.HARNESS_ERROR


def test_an_expected_failure_is_expected_until_it_expires() -> None:
    """`expect` covers its verdict; after its day it still does, and says that it has expired."""
    planned = replace(cell(), expectation=Expectation("orphan-meta", "2026-12-31"))
    rows = {planned.id: [attempt(planned, {"load": [ORPHAN]}, mode="cold")]}
    assert (verdict(planned, rows).expected, verdict(planned, rows).expired) == (True, False)
    assert verdict(planned, rows, "2027-01-01").expired


def finding(kind: str) -> dict[str, Any]:
    """A finding of a kind, without tensors."""
    return exception() if kind == "exception" else {"kind": kind, "text": kind}


LIVED = {
    Verdict.PASS: attempt(cell()),
    Verdict.ORPHAN_META: attempt(cell(), {"load": [finding("orphan")]}, mode="cold"),
    Verdict.UNEXPECTED_META: attempt(cell(), {"offload": [finding("unexpected-meta")]}, mode="cold"),
    Verdict.CORRUPT_WEIGHTS: attempt(cell(), {"load": [finding("corrupt")]}, mode="cold"),
    Verdict.BAD_OUTPUT: attempt(cell(), {"step": [finding("bad-output")]}, mode="cold"),
    Verdict.IMPORT_ERROR: attempt(cell(), {"import": [exception()]}, mode="cold"),
    Verdict.LOAD_ERROR: attempt(cell(), {"load": [exception()]}, mode="cold"),
    Verdict.OFFLOAD_ERROR: attempt(cell(), {"offload": [exception()]}, mode="cold"),
    Verdict.STEP_ERROR: attempt(cell(), {"step": [exception()]}, mode="cold"),
    Verdict.CRASH: attempt(cell(), how="signal", stages=ALL_STAGES[:2], mode="cold"),
    Verdict.TIMEOUT: attempt(cell(), how="timeout", stages=ALL_STAGES[:2], mode="cold"),
    Verdict.OUT_OF_MEMORY: attempt(cell(), how="oom", stages=ALL_STAGES[:2], mode="cold"),
    Verdict.UNSUPPORTED: attempt(cell(), {"offload": [finding("unsupported")]}),
    Verdict.HARNESS_ERROR: attempt(cell(), {"load": [finding("harness")]}),
}
"""Verdicts that one attempt of a sound cell decides."""


def _conclusions() -> dict[Verdict, Conclusion]:
    """A conclusion for every verdict, each made the way it comes about."""
    planned = cell()
    sure = controls(planned)
    found = {kind: verdict(planned, {planned.id: [row], **sure}) for kind, row in LIVED.items()}
    flaky = [attempt(planned), attempt(planned, {"load": [ORPHAN]}, identifier="b")]
    found[Verdict.FLAKY] = verdict(planned, {planned.id: flaky, **sure})
    damaged = cell(checkpoint="truncated")
    rows = {damaged.id: [attempt(damaged, {"load": [exception()]})], sibling(damaged).id: [attempt(sibling(damaged))]}
    found[Verdict.REFUSED] = verdict(damaged, rows)
    day = date(2026, 12, 1)
    environment = plan_of(planned).environments[0]
    proven = replace(plan_of(planned), environments=(replace(environment, lock=None, proof="because"),))
    found[Verdict.UNRESOLVABLE] = conclude(proven, {}, {}, day)[0]
    states = {
        Verdict.NOT_RUN: EnvironmentState(missing={"cpu": "there is none"}),
        Verdict.INSTALL_ERROR: EnvironmentState(fault="the disk is full"),
    }
    found |= {kind: conclude(plan_of(planned), {"environment": state}, {}, day)[0] for kind, state in states.items()}
    return found


def test_every_verdict_can_be_reached() -> None:
    """Each verdict of the design is the conclusion of some cell, and comes with a cause where it is not good."""
    found = _conclusions()
    assert {kind: conclusion.outcome and conclusion.outcome.verdict for kind, conclusion in found.items()} == {
        kind: kind for kind in Verdict
    }
    for kind, conclusion in found.items():
        assert conclusion.outcome is not None
        assert bool(conclusion.outcome.cause) is (kind is not Verdict.PASS)
        assert bool(conclusion.outcome.signature) is (class_of(kind) is Class.BAD)


@given(st.lists(st.sampled_from(sorted(LIVED)), max_size=6), st.integers(0, 3))
def test_every_cell_has_one_conclusion_and_the_classes_add_up(kinds: list[Verdict], unfinished: int) -> None:
    """As many conclusions as cells, in their order; none is lost, counted twice, or answered without an attempt."""
    offloads = ("none", "model", "sequential", "disk", "group_leaf", "group_block")
    lived = [cell(offload=mode) for mode, _ in zip(offloads, kinds, strict=False)]
    waiting = [cell(offload=mode, lifecycle="move") for mode in offloads[:unfinished]]
    attempts = {c.id: [replace(LIVED[kind], cell=c.id)] for c, kind in zip(lived, kinds, strict=True)}
    found = conclude(plan_of(*lived, *waiting), {}, {**controls(cell()), **attempts}, date(2026, 12, 1))
    assert [conclusion.cell for conclusion in found] == [*lived, *waiting]
    assert [c.outcome and c.outcome.verdict for c in found] == [*kinds, *[None] * unfinished]
    classes = Counter(class_of(c.outcome.verdict) for c in found if c.outcome)
    assert sum(classes.values()) == len(kinds)


@pytest.mark.parametrize(
    ("during", "expected"),
    [("load", Verdict.LOAD_ERROR), ("offload", Verdict.OFFLOAD_ERROR), ("step", Verdict.STEP_ERROR)],
)
def test_an_exception_of_a_lifecycle_is_named_after_what_it_did(during: str, expected: Verdict) -> None:
    """A lifecycle loads, offloads and steps again: the verdict says which, the stage that it was later."""
    found = {**exception(), "during": during, "doing": "something"}
    outcome = judge(attempt(cell(lifecycle="move"), {"lifecycle": [found]}))
    assert (outcome.verdict, outcome.stage) == (expected, "lifecycle")


def test_hidden_cells_are_those_of_the_pipeline() -> None:
    """Each pipeline has a reference and controls of its own, in the plain lifecycle."""
    planned = cell(pipeline="sdxl", lifecycle="move", offload="disk")
    for hidden in (reference_cell(planned), controls_cell(planned)):
        assert (hidden.probe["pipeline"], hidden.probe["lifecycle"]) == ("sdxl", "single")
    assert controls_cell(planned).id != controls_cell(cell()).id


def test_signatures_forget_the_machine_and_keep_the_failure() -> None:
    """Paths, addresses, numbers and tensor names go; what failed stays."""
    one = "OSError: cannot read /home/a/x.safetensors at 0x7f00, unet.mid_block.resnets.0.conv1.weight of 12"
    two = "OSError: cannot read /srv/b/y.safetensors at 0x1234, vae.decoder.conv_in.weight of 7"
    assert normalised(one) == normalised(two)
    attribute = "AttributeError: 'CLIPTextModel' object has no attribute 'text_model'"
    assert "text_model" in normalised(attribute)
    assert signature("load-error", "load", one) != signature("load-error", "load", attribute)
