"""`metamatrix run`: from a matrix or a plan to results in a folder."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from metamatrix import __version__
from metamatrix.dataset import plan_again
from metamatrix.document import document
from metamatrix.planning import narrowed, plan_matrix
from metamatrix.progress import Progress
from reports.document import ResultsModel
from runner.engine.engine import Engine, Options
from runner.errors import MetamatrixError, WrongShard
from runner.isolation.choose import isolation_for
from runner.isolation.contract import Isolation
from runner.isolation.venv import default_store
from runner.matrix.load import load_matrix
from runner.matrix.schema import MatrixModel
from runner.plan import Plan, read_plan
from runner.probe.words import PROBE_VERSION
from runner.resolve.lock import Platform
from runner.resolve.uv import Uv
from runner.results.folder import RunFolder
from runner.shard import Shard, share
from runner.verdicts import Verdict
from runner.whole_files import write_whole

__all__ = ["Choices", "run_matrix"]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user asked for on the command line."""

    matrix: Path
    select: str | None
    output: Path
    plan_file: Path | None
    jobs: int
    isolation: str
    disk_gb: float
    fail_on: str | None
    cold: bool
    shuffle: int | None
    as_json: bool
    shard: str | None = None


def run_matrix(choices: Choices) -> int:
    """Run; the exit code is 0 where it is complete, 3 where something could not be built, 4 where it was stopped, 1 with --fail-on and a new failure."""
    if choices.fail_on not in (None, "unexpected"):
        raise MetamatrixError(f"--fail-on {choices.fail_on!r} is unknown", "It takes `unexpected`.")
    shard = Shard.parse(choices.shard) if choices.shard is not None else None
    console = Console(stderr=True)
    uv = Uv()
    with (
        RunFolder(choices.output) as folder,
        isolation_for(
            choices.isolation,
            uv,
            __version__,
            lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True),
        ) as isolation,
    ):
        whole = _plan(choices, folder, uv, isolation.platform, console)
        plan = share(whole, shard) if shard is not None else whole
        folder.keep_plan(plan, whole if shard is not None else None)
        folder.started(plan.created)
        for warning in plan.warnings:
            console.print("warning: " + warning, highlight=False, markup=False)
        stopped, fault = _drive(choices, plan, folder, isolation, console)
        results = document(folder)
        write_whole(choices.output / "results.json", results.as_json().encode())
    if choices.as_json:
        sys.stdout.write(results.as_json())
    _summarise(results, console)
    if fault is not None:
        raise fault
    return _exit_code(choices, results, stopped, console)


def _plan(choices: Choices, folder: RunFolder, uv: Uv, target: Platform, console: Console) -> Plan:
    """The plan file that was given; the folder's own where nothing has changed; else a new one.

    Raises:
        MetamatrixError: the plan file was made for another platform than the isolation has.
    """
    if choices.plan_file is not None and choices.plan_file.is_dir():
        return plan_again(choices.plan_file, choices.select, uv, _torch_index(choices.matrix), target, console)
    if choices.plan_file is not None:
        plan = read_plan(choices.plan_file)
        if plan.platform is not None and not plan.platform.same_as(target):
            raise MetamatrixError(
                f"{choices.plan_file} was made for {plan.platform.words()}; this isolation has {target.words()}",
                "Choose another --isolation, or make the plan again with `metamatrix plan`.",
            )
        return _narrowed(plan, choices)
    kept = folder.whole_plan()
    if kept is not None and kept.select == choices.select and kept.matrix_digest == load_matrix(choices.matrix).digest:
        if kept.platform is None or kept.platform.same_as(target):
            if not any(environment.fault for environment in kept.environments):
                return kept
    return plan_matrix(choices.matrix, choices.select, uv, console, target)


def _narrowed(plan: Plan, choices: Choices) -> Plan:
    """The cells of a plan file that are asked for.

    Raises:
        WrongShard: a shard of a shard is asked for.
    """
    if plan.shard is not None and choices.shard is not None:
        raise WrongShard(
            f"{choices.plan_file} is shard {plan.shard} of a plan already",
            "Give the whole plan with --plan (whole-plan.json beside it), or leave --shard out.",
        )
    plan = replace(plan, shard=None, whole=None)  # some cells of a shard are no shard
    return narrowed(plan, choices.select) if choices.select else plan


def _torch_index(matrix: Path) -> str:
    """Where torch comes from: as the matrix file says, if there is one."""
    if matrix.exists():
        return load_matrix(matrix).torch_index
    return str(MatrixModel.model_fields["torch_index"].default)


def _drive(
    choices: Choices, plan: Plan, folder: RunFolder, isolation: Isolation, console: Console
) -> tuple[bool, BaseException | None]:
    """Run the engine in a thread, so that Ctrl-C reaches this one; whether it was stopped, and what it raised."""
    attempts = folder.attempts(PROBE_VERSION, plan.limits.as_json())
    done = sum(1 for identifier in {cell.id for cell in plan.cells} if attempts.get(identifier))
    options = Options(
        choices.jobs or os.cpu_count() or 1, round(choices.disk_gb * (1 << 30)), choices.cold, choices.shuffle
    )
    with Progress(plan, done, console) as progress:
        engine = Engine(plan, folder, isolation, default_store(), progress, options)
        raised: list[BaseException] = []

        def work() -> None:
            try:
                engine.run()
            except BaseException as error:  # handed to the main thread below
                raised.append(error)

        def stop(_number: int, _frame: object) -> None:
            engine.stop()
            isolation.stop()

        old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        thread = threading.Thread(target=work, name="engine")
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.2)
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
        return engine.stopped, raised[0] if raised and not engine.stopped else None


def _summarise(results: ResultsModel, console: Console) -> None:
    """The share of no-answers first, then the verdicts."""
    groups = Counter(cell.group for cell in results.cells)
    asked = len(results.cells) - results.run.not_run
    console.print(f"no answer: {results.run.no_answer_share:.1%} of {asked} cells", highlight=False)
    if results.run.not_run:
        reasons = {cell.cause for cell in results.cells if cell.verdict == Verdict.NOT_RUN}
        console.print(
            f"not run: {results.run.not_run} cells: {'; '.join(sorted(reasons))}", highlight=False, markup=False
        )
    for verdict, count in sorted(results.counts().items(), key=lambda pair: (-pair[1], pair[0])):
        console.print(f"  {count:5} {verdict}", highlight=False)
    console.print(", ".join(f"{count} {group}" for group, count in groups.most_common()), highlight=False)
    surprises = [cell for cell in results.cells if cell.expectation and not cell.expected and cell.group == "good"]
    for cell in surprises[:10]:
        console.print(f"unexpected pass: {cell.subject} {' '.join(cell.axes.values())}", highlight=False)
    if any(cell.expired for cell in results.cells):
        console.print("warning: an `expect` entry has expired; look at it again", highlight=False)


def _exit_code(choices: Choices, results: ResultsModel, stopped: bool, console: Console) -> int:
    unfinished = sum(1 for cell in results.cells if cell.verdict is None)
    if stopped or unfinished:
        console.print(f"{unfinished} cells have no verdict yet. Run the same command again to go on.", highlight=False)
        return 4
    command = "report" if choices.shard is None else "merge --output FOLDER"
    console.print(f"next: metamatrix {command} {choices.output}", highlight=False, markup=False)
    faults = [environment for environment in results.environments if environment.fault]
    for environment in faults:
        console.print(
            f"not built: {environment.id}: {environment.fault}", highlight=False, markup=False, soft_wrap=True
        )
    if faults:
        console.print("Check the network, the indexes and the disk; run the same command again to try those again.")
        return 3
    unexpected = [cell for cell in results.cells if cell.group == "bad" and (not cell.expected or cell.expired)]
    return 1 if choices.fail_on == "unexpected" and unexpected else 0
