"""How does a run become a data set, and a data set a plan again? Locks go in as packages, and come back through uv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from metamatrix.document import document
from metamatrix.planning import narrowed
from reports.dataset import DatasetModel, KeptEnvironment, compact, read_dataset
from reports.document import ResultsModel
from runner.checkpoints.damage import NAMES
from runner.checkpoints.pipelines import PIPELINES
from runner.errors import MetamatrixError
from runner.identifiers import cell_id
from runner.matrix.load import Limits
from runner.plan import Expectation, Plan, PlannedCell, PlannedEnvironment, checkpoint_digest
from runner.probe.words import PROBE_VERSION
from runner.resolve.lock import Package, Platform
from runner.resolve.resolver import Resolver
from runner.resolve.uv import Uv
from runner.results.folder import RunFolder

__all__ = ["dataset", "plan_again"]


def dataset(folder: RunFolder, results: ResultsModel | None = None) -> DatasetModel:
    """The data set of a run's folder; `results` are its results where they were concluded already."""
    results = results or document(folder)
    plan = folder.plan()
    assert plan is not None  # `document` has read it
    published = {environment.id: environment for environment in results.environments}
    kept = []
    for planned in plan.environments:
        known = published[planned.key]
        packages = _packages(plan, planned)
        kept.append(
            KeptEnvironment(
                id=planned.key,
                requested=planned.asked,
                exact=planned.exact,
                backend=planned.backend,
                installed=known.installed,
                python=known.python,
                platform=known.platform,
                packages=[(package.name, package.version, package.wheel, package.sha256) for package in packages],
                controls=len(known.controls),
                missed=[row for row in known.controls if not row["caught"]],
                drift=known.drift,
                proof=known.proof,
                fault=known.fault,
            )
        )
    return compact(results, kept, PROBE_VERSION)


def _packages(plan: Plan, planned: PlannedEnvironment) -> Sequence[Package]:
    if planned.lock is None:
        return ()
    try:
        return plan.lock(planned).packages
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetamatrixError(
            f"the lock of environment {planned.key} cannot be read: {error}",
            "The plan was written by hand or damaged; run the matrix again.",
        ) from error


def plan_again(folder: Path, select: str | None, uv: Uv, torch_index: str, target: Platform, console: Console) -> Plan:
    """A plan of the cells of a data set that `select` fits, in the very environments that they ran in.

    Raises:
        MetamatrixError: there is no data set, its probe was another one, or this machine gets other wheels.
    """
    try:
        found = read_dataset(folder)
    except ValueError as error:
        raise MetamatrixError(str(error), "Give the folder that `metamatrix report --dataset` wrote.") from error
    if found.probe_version != PROBE_VERSION:
        raise MetamatrixError(
            f"{folder} was made by probe {found.probe_version}; this is probe {PROBE_VERSION}",
            "Use the release that made it, or run its matrix again.",
        )
    everything = _plan(found, target)
    plan = narrowed(everything, select) if select else everything
    kept = {environment.id: environment for environment in found.environments}
    resolver = Resolver(uv, torch_index, None, target)
    locked, locks = [], {}
    with console.status("asking for the wheels of the data set"):
        for environment in plan.environments:
            if environment.lock is None:
                locked.append(environment)
                continue
            text = _lock(resolver, environment, kept[environment.key].packages)
            locks[environment.lock] = text
            locked.append(environment)
    digests = {old: new for old, (new, _) in locks.items()}
    return replace(
        plan,
        environments=tuple(replace(e, lock=digests[e.lock]) if e.lock else e for e in locked),
        locks=dict(locks.values()),
        warnings=tuple(resolver.warnings),
    )


def _lock(
    resolver: Resolver, environment: PlannedEnvironment, packages: Sequence[tuple[str, str, str, str]]
) -> tuple[str, str]:
    """(digest, text) of the lock of an environment, resolved again with every package pinned."""
    pins = {name: version for name, version, _, _ in packages}
    lock = resolver.resolve({"python": environment.exact["python"], **pins}, environment.backend).lock
    if lock is None or lock.environment != environment.key:
        theirs = {wheel for _, _, wheel, _ in packages}
        other = sorted({package.wheel for package in lock.packages} - theirs) if lock else []
        raise MetamatrixError(
            f"environment {environment.key} cannot be made here as it was: "
            + (f"this index gives {', '.join(other) or 'other files'}" if lock else "its packages are not to be had"),
            "Wheels depend on the index, the platform and the Python; run the matrix itself to see what these give.",
        )
    return lock.digest, lock.text


def _plan(found: DatasetModel, target: Platform) -> Plan:
    """Everything that the data set holds, without locks yet: an environment's key stands for its own."""
    environments = tuple(
        PlannedEnvironment(
            key=entry.id,
            asked=entry.requested,
            exact=entry.exact,
            backend=entry.backend,
            lock=entry.id if entry.packages else None,
            proof=entry.proof,
            fault="" if entry.packages else entry.fault,
        )
        for entry in found.environments
    )
    cells = []
    for cell in found.cells():
        if cell.axes["pipeline"] not in PIPELINES or cell.axes["checkpoint"] not in NAMES:
            raise MetamatrixError(
                f"this release has no checkpoint {cell.axes['checkpoint']} of {cell.axes['pipeline']}",
                "Use the release that made the data set.",
            )
        digest = checkpoint_digest(cell.axes["pipeline"], cell.axes["checkpoint"])
        identifier = cell_id(cell.environment, cell.axes, digest, PROBE_VERSION)
        if identifier != cell.id:
            raise MetamatrixError(
                f"the checkpoint {cell.axes['checkpoint']} of {cell.axes['pipeline']} is not the one that was measured",
                "Use the release that made the data set, or run its matrix again.",
            )
        known = Expectation(**cell.expectation) if cell.expectation else None
        cells.append(PlannedCell(identifier, cell.subject, cell.environment, cell.requested, cell.axes, digest, known))
    return Plan(
        matrix=found.run.matrix,
        matrix_digest="",
        select=found.run.select,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        limits=Limits(**found.run.limits),
        environments=environments,
        cells=tuple(cells),
        excluded=(),
        locks={},
        platform=target,
    )
