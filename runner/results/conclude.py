"""Where is a verdict decided? From all attempts of a cell, and from what its environment showed.

A pure function of what is written down: run it again and it says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from runner.checkpoints.damage import CANONICAL, damaged, not_applicable
from runner.plan import Plan, PlannedCell, PlannedEnvironment
from runner.results.attempt import Attempt
from runner.results.outcome import Outcome, decided, judge
from runner.verdicts import Class, Verdict

__all__ = [
    "Conclusion",
    "EnvironmentState",
    "conclude",
    "confirmed_claims",
    "controls_cell",
    "controls_table",
    "reference_arrays",
    "reference_cell",
    "sibling",
    "unconfirmed",
]


@dataclass(frozen=True, slots=True)
class EnvironmentState:
    """What became of an environment: built with its `record`, or not, with the `fault` (an install error).

    `missing` names the runners that this machine does not have, each with the reason.
    """

    record: Mapping[str, Any] | None = None
    fault: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A cell's verdict, or `outcome` None while it has none. `expected` says whether `expect` covers it."""

    cell: PlannedCell
    outcome: Outcome | None
    attempts: tuple[Attempt, ...]
    expected: bool = False
    expired: bool = False


_SINGLE = "single"
"""The lifecycle of hidden cells: load, offload, step, release."""
_NEVER_LOADED = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY, Verdict.FLAKY)
"""A sound sibling that ended so shows nothing about the damaged file."""

Attempts = Mapping[str, Sequence[Attempt]]


def reference_cell(cell: PlannedCell) -> PlannedCell:
    """The cell whose output all others of its environment are compared with."""
    return cell.at(checkpoint=CANONICAL, load="pretrained", offload="none", lifecycle=_SINGLE)


def reference_arrays(cell: PlannedCell, attempts: Attempts) -> str:
    """sha256 of the arrays that a good reference of this cell's environment gave; empty where there is none."""
    for attempt in attempts.get(reference_cell(cell).id, ()):
        for report in attempt.stages:
            kept = report["facts"].get("arrays")
            if kept and judge(attempt).group is Class.GOOD:
                return str(kept)
    return ""


def controls_cell(cell: PlannedCell) -> PlannedCell:
    """The hidden cell that plants the negative controls of a cell's environment."""
    return cell.at(checkpoint=CANONICAL, load="controls", offload="none", lifecycle=_SINGLE)


def sibling(cell: PlannedCell) -> PlannedCell:
    """The hidden cell that shows whether a load works with an undamaged checkpoint."""
    return cell.at(checkpoint=CANONICAL, offload="none", lifecycle=_SINGLE)


def _settled(attempts: Sequence[Attempt]) -> Outcome | None:
    """What the attempts of one cell agree on; no-answers never vote."""
    judged = [(attempt.mode, judge(attempt)) for attempt in attempts]
    votes = [(mode, outcome) for mode, outcome in judged if outcome.group is not Class.NO_ANSWER]
    if not votes:
        return judged[-1][1] if judged else None
    by_mode: dict[str, set[tuple[str, str]]] = {}
    for mode, outcome in votes:
        by_mode.setdefault(mode, set()).add((outcome.verdict, outcome.stage))
    if len(set().union(*by_mode.values())) == 1:
        return votes[0][1]
    said = "; ".join(f"{mode}: {outcome.verdict} at {outcome.stage}" for mode, outcome in votes)
    if all(len(answers) == 1 for answers in by_mode.values()):
        stage = votes[0][1].stage
        return Outcome(Verdict.HARNESS_ERROR, stage, f"a forked and a cold process disagree ({said}): our fault")
    return Outcome(Verdict.FLAKY, votes[0][1].stage, f"attempts disagree ({said})", "flaky")


def _with_siblings(cell: PlannedCell, outcome: Outcome, attempts: Attempts) -> Outcome:
    """A damaged checkpoint that is rejected at load is refused, unless that load fails on a sound one too."""
    if not damaged(cell.probe["checkpoint"]) or outcome.verdict is not Verdict.LOAD_ERROR:
        return outcome
    sound = _settled(attempts.get(sibling(cell).id, ()))
    if sound is None or sound.group is Class.NO_ANSWER or sound.verdict in _NEVER_LOADED:
        return Outcome(Verdict.HARNESS_ERROR, "load", "nothing shows whether this load works with a sound checkpoint")
    if sound.verdict is Verdict.LOAD_ERROR and sound.signature == outcome.signature:
        return outcome
    return Outcome(Verdict.REFUSED, outcome.stage, outcome.cause)


_DEATHS = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY)


def _claim(cell: PlannedCell, outcome: Outcome) -> str:
    """What a cold process confirms: a signature, for all cells that have it; a death only of its own cell.

    One cell that is truly too slow must not vouch for another that was slow once, on a busy machine.
    """
    return f"{outcome.signature} {cell.id}" if outcome.verdict in _DEATHS else outcome.signature


def confirmed_claims(cells: Iterable[PlannedCell], attempts: Attempts) -> set[str]:
    """The claims (see `_claim`) of bad outcomes that a cold process has shown, in one environment."""
    return {
        _claim(cell, outcome)
        for cell in cells
        for attempt in attempts.get(cell.id, ())
        if attempt.mode == "cold" and (outcome := judge(attempt)).group is Class.BAD
    }


def unconfirmed(cells: Sequence[PlannedCell], attempts: Attempts) -> list[PlannedCell]:
    """Which cells must run cold next: one for each bad signature that no cold process has shown.

    Where the cold process of one cell did not show the signature of its fork, every cell of that
    signature is run cold. A cold process that gave no answer does not count: who loops over this must see to
    it that no cell is asked for ever.
    """
    confirmed = confirmed_claims(cells, attempts)
    groups: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        rows = attempts.get(cell.id, ())
        forked = [judge(attempt) for attempt in rows if attempt.mode == "fork"]
        outcome = forked[-1] if forked else None
        if outcome is not None and outcome.group is Class.BAD and _claim(cell, outcome) not in confirmed:
            if _with_siblings(cell, outcome, attempts).verdict is not Verdict.REFUSED:
                groups.setdefault(_claim(cell, outcome), []).append(cell)
    wanted = []
    for members in groups.values():
        cold = [cell for cell in members if _answered_cold(attempts.get(cell.id, ()))]
        wanted += [cell for cell in members if cell not in cold] if cold else members[:1]
    return wanted


def _answered_cold(attempts: Sequence[Attempt]) -> bool:
    """Whether a cold process said anything: one that met a fault of ours, or of the engine, is asked again."""
    return any(row.mode == "cold" and judge(row).group is not Class.NO_ANSWER for row in attempts)


def controls_table(cell: PlannedCell, attempts: Attempts) -> list[dict[str, Any]]:
    """What came of each negative control in a cell's environment and pipeline; empty where they did not run.

    Each is a verdict: one that was found, but would be published under another name, is not caught.
    """
    tables = [
        report["facts"]["controls"]
        for attempt in attempts.get(controls_cell(cell).id, ())
        for report in attempt.stages
        if "controls" in report["facts"]
    ]
    return [_control(row) for row in tables[-1]] if tables else []


def _control(row: Mapping[str, Any]) -> dict[str, Any]:
    expected, got = decided(row["expected"]), decided(*row["got"])
    return {**row, "expected_verdict": expected, "verdict": got, "caught": row["caught"] and expected == got}


def _gate(cell: PlannedCell, outcome: Outcome, attempts: Attempts) -> Outcome:
    """No `pass` without controls that were all caught."""
    if outcome.verdict is not Verdict.PASS:
        return outcome
    table = controls_table(cell, attempts)
    if not table:
        return Outcome(Verdict.HARNESS_ERROR, "lifecycle", "the negative controls of this environment did not run")
    missed = [control["id"] for control in table if not control["caught"]]
    if missed:
        text = f"the guard missed a planted defect in this environment: {', '.join(missed)}"
        return Outcome(Verdict.HARNESS_ERROR, "lifecycle", text)
    return outcome


def _cell_outcome(
    cell: PlannedCell,
    environment: PlannedEnvironment,
    state: EnvironmentState | None,
    attempts: Attempts,
    confirmed: set[str],
) -> Outcome | None:
    if environment.proof:
        return Outcome(Verdict.UNRESOLVABLE, "resolve", environment.proof)
    if environment.fault:
        return Outcome(Verdict.INSTALL_ERROR, "resolve", environment.fault)
    reason = not_applicable(cell.probe["checkpoint"], cell.probe["pipeline"])
    if reason:
        return Outcome(Verdict.UNSUPPORTED, "load", reason)
    if state is not None and cell.probe["runner"] in state.missing:
        return Outcome(Verdict.NOT_RUN, "load", state.missing[cell.probe["runner"]])
    if state is not None and state.fault:
        return Outcome(Verdict.INSTALL_ERROR, "build", state.fault)
    outcome = _settled(attempts.get(cell.id, ()))
    if outcome is None:
        return None
    outcome = _with_siblings(cell, outcome, attempts)
    if outcome.group is Class.BAD and outcome.verdict is not Verdict.FLAKY and _claim(cell, outcome) not in confirmed:
        return _without_witness(outcome, attempts[cell.id])
    return _gate(cell, outcome, attempts)


def _without_witness(outcome: Outcome, attempts: Sequence[Attempt]) -> Outcome | None:
    """A bad outcome whose signature no cold process has shown: None while it waits for its cold witness.

    Where the cell has run cold itself, its modes agree on verdict and stage (see `_settled`), or the
    cold process gave no answer.
    """
    cold = [judge(attempt) for attempt in attempts if attempt.mode == "cold"]
    if not cold:
        return None
    if any(witness.group is Class.BAD for witness in cold):
        return outcome
    text = f"{outcome.verdict} at {outcome.stage} could not be confirmed: the cold process gave no answer"
    return Outcome(Verdict.HARNESS_ERROR, outcome.stage, text)


def conclude(
    plan: Plan,
    states: Mapping[str, EnvironmentState],
    attempts: Attempts,
    today: date,
) -> list[Conclusion]:
    """The conclusion of every cell of a plan, in the plan's order.

    Args:
        plan: what was to be run.
        states: what became of each environment, by key.
        attempts: all attempts by cell id, hidden cells included.
        today: the day by which `expect` entries have expired or not.
    """
    environments = {environment.key: environment for environment in plan.environments}
    confirmed = {key: confirmed_claims(plan.of(key), attempts) for key in environments}
    conclusions = []
    for cell in plan.cells:
        environment = environments[cell.environment]
        state = states.get(cell.environment)
        outcome = _cell_outcome(cell, environment, state, attempts, confirmed[cell.environment])
        conclusion = Conclusion(cell, outcome, tuple(attempts.get(cell.id, ())))
        known = cell.expectation
        if known is not None and outcome is not None and known.verdict == outcome.verdict:
            expired = date.fromisoformat(known.expires) < today
            conclusion = replace(conclusion, expected=True, expired=expired)
        conclusions.append(conclusion)
    return conclusions
