"""How do the folders of shards become one? Everything that they say, once, in an order that does not depend on theirs.

What is read is the exchange format: `plan.json` and `whole-plan.json`, `attempts.ndjson`, `environments.json`, logs and
arrays by content. A database beside it may have more, and must not say anything else (see `foreign.py`). The same
shard twice, or two states of it, are put together: no attempt is lost, and none counts twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from runner.checkpoints.damage import damaged
from runner.errors import InfrastructureError, RunFolderError, WrongShard
from runner.identifiers import digest
from runner.plan import Plan
from runner.probe.words import PROBE_VERSION
from runner.results.attempt import Attempt
from runner.results.conclude import EnvironmentState, conclude, controls_cell, reference_cell, sibling
from runner.results.folder import MERGED, RunFolder
from runner.results.foreign import Say, checked_plan, kept, read_attempts, read_inside, read_states, refuse
from runner.shard import Shard, plan_digest, shares
from runner.whole_files import write_once, write_whole

__all__ = ["Account", "Merged", "merge"]


@dataclass(frozen=True, slots=True)
class Account:
    """What one shard owes: how many cells it has, and how many of them have no verdict. `given`: its folder was there."""

    shard: Shard
    given: bool
    cells: int
    lacking: int

    @property
    def complete(self) -> bool:
        return self.given and not self.lacking


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a merge. `notes` tell what could not be read and did no harm."""

    digest: str
    attempts: int
    shards: tuple[Account, ...]
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return all(account.complete for account in self.shards)


@dataclass(frozen=True, slots=True)
class _Source:
    """A folder to be merged: the shards in it; `everything` where one machine ran the whole plan.

    The folder of a shard is `strict`: it may speak of its own environments only.
    """

    path: Path
    digest: str
    shards: frozenset[Shard]
    everything: bool = False
    strict: bool = False


def merge(folders: Sequence[Path], output: Path, plan_file: Path | None = None) -> Merged:
    """Make one run's folder of those of shards; a folder that was merged before can be among them, or be `output`.

    Args:
        folders: of shards of one plan, in any order; of a whole run of it, too.
        output: where the run is written; what is there of the same plan stays.
        plan_file: the whole plan; else it is taken from the shards.

    Raises:
        RunFolderError: a folder is none of a run, or of another plan, or says what cannot be.
        WrongShard: shards of different numbers, or `output` is a shard's.
        InfrastructureError: the disk.
    """
    notes: list[str] = []
    try:
        identity, sources, plans = _sources(folders, output, plan_file, notes.append)
        plan = min(plans, key=lambda plan: (plan.created, plan.matrix, plan.warnings))
        count = _count(sources)
        parts = shares(plan, count)
        attempts, states = _read(sources, plan, parts, notes.append)
        new = not output.exists()
        try:
            return _write(output, plan, identity, sources, parts, attempts, states, notes)
        except RunFolderError:
            if new:
                shutil.rmtree(output, ignore_errors=True)
            raise
    except (OSError, sqlite3.OperationalError) as error:
        raise InfrastructureError(f"the merge failed: {error}", "Look at the disk, and merge again.") from error


# --- which plan, which shards


def _sources(
    folders: Sequence[Path], output: Path, plan_file: Path | None, say: Say
) -> tuple[str, list[_Source], list[Plan]]:
    """The digest of the one plan, the folders that say something of it, and every copy of it."""
    given = list(dict.fromkeys(path.resolve() for path in folders))
    for path in given:
        if not path.is_dir():
            raise RunFolderError(f"{path} is no folder", "Give the folders that `metamatrix run --shard` wrote.")
    if (output / "plan.json").exists():
        given = list(dict.fromkeys([*given, output.resolve()]))
    plans: dict[bytes, tuple[str, Plan]] = {}

    def whole(path: Path) -> str:
        content = read_inside(path.parent, path.name) or b""
        key = hashlib.sha256(content).digest()
        if key not in plans:
            plan = checked_plan(path)
            if plan.shard is not None:
                raise WrongShard(f"{path} is shard {plan.shard} of a plan", "Give the whole plan.")
            plans[key] = (plan_digest(plan), plan)
        return plans[key][0]

    found = []
    first = whole(plan_file.resolve()) if plan_file is not None else None
    for path in given:
        source = _source(path, whole, say)
        if source is None:
            continue
        if source.strict and path == output.resolve():
            raise WrongShard(f"{path} is the folder of a shard", "Give another --output.")
        first = first or source.digest
        if source.digest != first:
            raise RunFolderError(
                f"{path} is of plan {source.digest[:12]}, the others are of plan {first[:12]}",
                "Only shards of one plan make one run: plan once, and give that file to each with `run --plan`.",
            )
        found.append(source)
    if first is None or not plans:
        raise RunFolderError("nothing here says what was to be run", "Give the plan with --plan.")
    return first, found, [plan for _, plan in plans.values()]


def _source(path: Path, whole: Callable[[Path], str], say: Say) -> _Source | None:
    own = path / "plan.json"
    content = read_inside(path, own.name)
    if content is None:
        say(f"{path} has no plan.json: it says nothing")
        return None
    try:
        data = json.loads(content)
        shard, of = data.get("shard"), data.get("whole")
        parsed = None if shard is None else Shard.parse(shard)
    except (ValueError, TypeError, AttributeError, RecursionError, WrongShard) as error:
        refuse(own, f"does not say which shard it is ({error})")
    if parsed is None:
        return _whole_source(path, whole(own))
    planned = path / "whole-plan.json"
    if read_inside(path, planned.name) is not None and whole(planned) != of:
        refuse(planned, "is not the plan that the shard is of")
    return _Source(path, str(of), frozenset({parsed}), strict=True)


def _whole_source(path: Path, identity: str) -> _Source:
    """The folder of a whole run: of one machine, or of a merge, whose note tells which shards it has."""
    content = read_inside(path, MERGED)
    if content is None:
        return _Source(path, identity, frozenset(), everything=True)
    try:
        data = json.loads(content)
        shards = frozenset(Shard.parse(text) for text in data["shards"])
        return _Source(path, identity, shards, everything=data["everything"] is True)
    except (ValueError, TypeError, KeyError, RecursionError, WrongShard) as error:
        refuse(path / MERGED, f"does not say which shards are merged ({error})")


def _count(sources: Iterable[_Source]) -> int:
    counts = {shard.count for source in sources for shard in source.shards}
    if len(counts) > 1:
        words = " and ".join(str(count) for count in sorted(counts))
        raise WrongShard(f"these are parts of {words}", "Merge shards of one run: K/N with the same N.")
    return counts.pop() if counts else 1


# --- what they say


def _read(
    sources: Sequence[_Source], plan: Plan, parts: Sequence[set[str]], say: Say
) -> tuple[dict[str, tuple[str, list[Path]]], dict[str, EnvironmentState]]:
    """Every attempt, with the folders that have it, and what became of each environment."""
    cells = _known_cells(plan)
    attempts: dict[str, tuple[str, list[Path]]] = {}
    states: dict[str, EnvironmentState] = {}
    for source in sorted(sources, key=lambda source: str(source.path)):
        keys = {entry.key for entry in plan.environments}
        if source.strict:
            keys = set().union(*(parts[shard.number - 1] for shard in source.shards))
        own = {cell: key for cell, key in cells.items() if key in keys}
        for identifier, body in read_attempts(source.path, own, source.strict, say).items():
            known, places = attempts.setdefault(identifier, (body, []))
            if known != body:
                raise RunFolderError(
                    f"attempt {identifier} says one thing in {places[0]} and another in {source.path}",
                    "An attempt never changes: one of these folders is not what a run wrote. Run that shard again.",
                )
            places.append(source.path)
        for key, state in read_states(source.path, keys, source.strict, say):
            states[key] = _joined(states[key], state) if key in states else state
    return attempts, dict(sorted(states.items()))


def _known_cells(plan: Plan) -> dict[str, str]:
    """Cell -> environment, with the hidden cells that serve them."""
    known = {}
    for cell in plan.cells:
        hidden = [reference_cell(cell), controls_cell(cell)]
        if damaged(cell.probe["checkpoint"]):
            hidden.append(sibling(cell))
        known.update({one.id: cell.environment for one in (cell, *hidden)})
    return known


def _joined(one: EnvironmentState, other: EnvironmentState) -> EnvironmentState:
    """Two words on one environment as one, whichever came first.

    A damaged environment counts for nothing whatever another says; one that was built says more than one that was not.
    A runner is missing where all say so.
    """
    winner = max(one, other, key=_weight)
    missing = {
        runner: min(reason, other.missing[runner]) for runner, reason in one.missing.items() if runner in other.missing
    }
    return replace(winner, missing=missing)


def _weight(state: EnvironmentState) -> tuple[bool, bool, bool, str]:
    built, failed = state.record is not None, bool(state.fault)
    return built and failed, built, failed, json.dumps([state.record, state.fault], sort_keys=True)


# --- writing


def _write(
    output: Path,
    plan: Plan,
    identity: str,
    sources: Sequence[_Source],
    parts: Sequence[set[str]],
    attempts: Mapping[str, tuple[str, list[Path]]],
    states: Mapping[str, EnvironmentState],
    notes: list[str],
) -> Merged:
    everything = any(source.everything for source in sources)
    shards = sorted(set().union(*(source.shards for source in sources)))
    # `started` before the id: the attempts of a cell follow each other in the order in which they were made
    found = [(Attempt(**json.loads(body)), body) for body, _ in attempts.values()]
    found.sort(key=lambda pair: (pair[0].started, pair[0].id))
    with RunFolder(output) as folder:
        folder.keep_plan(plan)
        lost = sum(1 for attempt, _ in found if not _keep_files(attempt, attempts[attempt.id][1], output))
        if lost:
            notes.append(f"{lost} attempts have lost their log, or their arrays")
        aside = output / ".merging"
        shutil.rmtree(aside, ignore_errors=True)
        with RunFolder(aside) as fresh:
            # the run's id follows from what was planned and when: the same for whoever merges it
            fresh.fill((digest(["run", identity, plan.created])[:16], plan.created), states, found)
        folder.take_over(aside)
        shutil.rmtree(aside)
        note = {"schema_version": 1, "everything": everything, "shards": [str(shard) for shard in shards]}
        write_whole(output / MERGED, json.dumps(note, indent=1).encode())
        given = {Shard(len(parts), number) for number in range(1, len(parts) + 1)} if everything else set(shards)
        accounts = _accounts(plan, parts, given, folder)
    return Merged(identity, len(found), accounts, tuple(notes))


def _keep_files(attempt: Attempt, places: Sequence[Path], output: Path) -> bool:
    """Copy the log and the arrays of an attempt; whether all were there."""
    wanted = {("logs", attempt.log)}
    wanted |= {("arrays", report["facts"]["arrays"]) for report in attempt.stages if report["facts"].get("arrays")}
    whole = True
    for kind, name in wanted:
        contents = [content for place in places if (content := kept(place, kind, name)) is not None]
        if contents:
            write_once(output / kind / name, contents[0])
        else:
            whole = False
    return whole


def _accounts(plan: Plan, parts: Sequence[set[str]], given: set[Shard], folder: RunFolder) -> tuple[Account, ...]:
    attempts = folder.attempts(PROBE_VERSION, plan.limits.as_json())
    conclusions = conclude(plan, folder.environments(), attempts, datetime.now(UTC).date())
    cells = Counter(cell.environment for cell in plan.cells)
    lacking = Counter(found.cell.environment for found in conclusions if found.outcome is None)
    accounts = []
    for number, keys in enumerate(parts, start=1):
        shard = Shard(len(parts), number)
        total, open_ = (sum(counter[key] for key in keys) for counter in (cells, lacking))
        accounts.append(Account(shard, shard in given, total, open_))
    return tuple(accounts)
