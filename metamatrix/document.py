"""How do a run's results become the document that `reports` reads?"""

from __future__ import annotations

import shlex
from datetime import UTC, date, datetime

from metamatrix import __version__
from reports.document import SCHEMA_VERSION, AttemptModel, CellModel, EnvironmentModel, ResultsModel, RunModel
from runner.errors import RunFolderError
from runner.matrix.axes import REBUILT
from runner.plan import Plan, PlannedCell, PlannedEnvironment
from runner.probe.words import PROBE_VERSION
from runner.results.attempt import Attempt
from runner.results.conclude import Conclusion, EnvironmentState, conclude, controls_table, reference_cell
from runner.results.folder import RunFolder
from runner.results.outcome import judge
from runner.verdicts import Verdict

__all__ = ["document"]


def document(folder: RunFolder, today: date | None = None) -> ResultsModel:
    """The published results of a run's folder, with verdicts concluded now.

    Raises:
        RunFolderError: the folder has no plan.
    """
    plan = folder.plan()
    if plan is None:
        raise RunFolderError(f"{folder.path} has no plan", "Run `metamatrix run --output` with this folder first.")
    states = folder.environments()
    attempts = folder.attempts(PROBE_VERSION, plan.limits.as_json())
    conclusions = conclude(plan, states, attempts, today or datetime.now(UTC).date())
    cells = [_cell(conclusion, folder) for conclusion in conclusions]
    not_run = sum(1 for cell in cells if cell.verdict == Verdict.NOT_RUN)
    silent = sum(1 for cell in cells if cell.group in ("no answer", "unfinished")) - not_run
    run, started = folder.started(plan.created)
    return ResultsModel(
        schema_version=SCHEMA_VERSION,
        run=RunModel(
            id=run,
            started=started,
            tool=f"metamatrix {__version__}",
            no_answer_share=round(silent / (len(cells) - not_run), 6) if len(cells) > not_run else 0.0,
            not_run=not_run,
            matrix=plan.matrix,
            select=plan.select,
            isolation=_isolation(attempts),
            limits=plan.limits.as_json(),
            excluded=[{"reason": rule.reason, "when": rule.when, "count": rule.count} for rule in plan.excluded],
            warnings=list(plan.warnings),
        ),
        environments=[_environment(plan, entry, states.get(entry.key), attempts) for entry in plan.environments],
        cells=cells,
    )


def _isolation(attempts: dict[str, list[Attempt]]) -> str:
    """How environments were entered: one word, or several where a folder was continued another way."""
    used = {attempt.conditions["isolation"] for rows in attempts.values() for attempt in rows}
    return " and ".join(sorted(used)) or "none"


def _environment(
    plan: Plan, planned: PlannedEnvironment, state: EnvironmentState | None, attempts: dict[str, list[Attempt]]
) -> EnvironmentModel:
    record = dict(state.record) if state is not None and state.record is not None else {}
    first = {cell.probe["pipeline"]: cell for cell in reversed(plan.of(planned.key))}
    return EnvironmentModel(
        id=planned.key,
        requested=planned.asked,
        installed=record.get("installed", planned.versions),
        lock=f"sha256:{planned.lock}" if planned.lock else None,
        python=record.get("python"),
        platform=record.get("platform"),
        torch_build=record.get("torch_build", ""),
        direct_url=record.get("direct_url", {}),
        controls=[
            {"pipeline": pipeline, **row} for pipeline, cell in first.items() for row in controls_table(cell, attempts)
        ],
        drift="; ".join(found for cell in first.values() if (found := _drift(cell, attempts))),
        proof=planned.proof,
        fault=planned.fault or (state.fault if state is not None else ""),
    )


def _drift(cell: PlannedCell, attempts: dict[str, list[Attempt]]) -> str:
    """One finding on the environment where its reference misses the golden arrays."""
    for attempt in attempts.get(reference_cell(cell).id, ()):
        for report in attempt.stages:
            golden = report["facts"].get("golden")
            if golden and not golden["within"]:
                return f"{cell.probe['pipeline']}: {golden['array']} differs by {golden['difference']} from the golden arrays"
    return ""


def _cell(conclusion: Conclusion, folder: RunFolder) -> CellModel:
    cell, outcome = conclusion.cell, conclusion.outcome
    known = cell.expectation
    return CellModel(
        id=cell.id,
        subject=cell.subject,
        environment=cell.environment,
        axes=cell.probe,
        requested=cell.asked,
        verdict=outcome.verdict.value if outcome else None,
        group=outcome.group.value if outcome else "unfinished",
        stage=outcome.stage if outcome else "",
        cause=outcome.cause if outcome else "",
        signature=outcome.signature if outcome else "",
        emulated=cell.probe["runner"] == "emulated",
        rebuilt=REBUILT.get(cell.probe["load"]),
        expected=conclusion.expected,
        expired=conclusion.expired,
        expectation=None
        if known is None
        else {"verdict": known.verdict, "expires": known.expires, "link": known.link, "reason": known.reason},
        attempts=len(conclusion.attempts),
        tensors=list(outcome.tensors) if outcome else [],
        history=[_attempt(attempt) for attempt in conclusion.attempts],
        rerun=_rerun(cell, folder),
    )


def _attempt(attempt: Attempt) -> AttemptModel:
    outcome = judge(attempt)
    return AttemptModel(
        id=attempt.id,
        mode=attempt.mode,
        alone=attempt.alone,
        how=attempt.how,
        verdict=outcome.verdict.value,
        stage=outcome.stage,
        started=attempt.started,
        seconds=attempt.seconds,
        peak_rss_kb=attempt.peak_rss_kb,
        log=attempt.log,
        conditions=attempt.conditions,
        stages=attempt.stages,
    )


def _rerun(cell: PlannedCell, folder: RunFolder) -> str:
    """The command that runs this one cell again, with the same locks."""
    plan = shlex.quote(str(folder.path / "plan.json"))
    return f"metamatrix run --plan {plan} --select 'subject == {cell.subject}' --output out/cell-{cell.subject}"
