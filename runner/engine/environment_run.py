"""How does one environment get its attempts? Reference, controls, siblings, cells; then cold witnesses.

One zygote imports once; its cells are forked as slots are free. What dies, and what is bad, is run again
in a cold process, alone where it died.
"""

from __future__ import annotations

import os
import platform
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.checkpoints.damage import damaged, not_applicable
from runner.checkpoints.golden import golden_arrays
from runner.engine.requests import Requests
from runner.engine.slots import Slots
from runner.engine.under_way import UnderWay, Zygote
from runner.engine.zygote_client import ZygoteClient, ZygoteLost
from runner.environments.store import Environment
from runner.isolation.contract import Isolation, StartRequest
from runner.plan import PlannedCell
from runner.probe import words
from runner.probe.words import PROBE_VERSION
from runner.results.attempt import Attempt
from runner.results.conclude import controls_cell, reference_arrays, reference_cell, sibling, unconfirmed
from runner.results.folder import RunFolder
from runner.results.outcome import judge, weighed
from runner.verdicts import Class

__all__ = ["EnvironmentRun", "Settings", "Stopped"]

_OPEN_SECONDS = 300
_LOST_TWICE = 2


class Stopped(Exception):
    """The user asked to stop."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same for every environment of a run."""

    isolation: Isolation
    archive: Path
    limits: dict[str, int]
    jobs: int
    cold: bool
    slots: Slots
    stop: threading.Event
    on_attempt: Callable[[Attempt], None]
    on_note: Callable[[str], None]


class EnvironmentRun:
    """Runs the cells of one environment and runner that have no answer yet."""

    def __init__(
        self,
        environment: Environment,
        runner: str,
        cells: Sequence[PlannedCell],
        folder: RunFolder,
        requests: Requests,
        settings: Settings,
    ) -> None:
        self._environment = environment
        self._runner = runner
        self._cells = [
            cell for cell in cells if not_applicable(cell.probe["checkpoint"], cell.probe["pipeline"]) is None
        ]
        self._folder = folder
        self._requests = requests
        self._settings = settings
        self._attempts = folder.attempts(PROBE_VERSION, settings.limits)
        self._shared: dict[str, Any] = {}
        self._where: Mapping[str, Any] = {}
        self._losses: dict[str, int] = {}
        self._suspects: list[PlannedCell] = []
        self._zygote: Zygote | None = None
        self._import_errors: dict[str, dict[str, Any]] = {}
        self._first_of = {cell.probe["pipeline"]: cell for cell in reversed(self._cells)}

    def run(self) -> None:
        """Run what is left to run.

        Raises:
            Stopped: the user asked to; what was under way is lost, what is written down stays.
            EnvironmentDamaged: something was written into the sealed environment.
        """
        if not self._cells:
            return
        cells = self._needed()
        if not self._left(cells) and not unconfirmed(self._cells, self._attempts):
            return
        try:
            if self._runner == "cpu":  # the golden arrays were computed there; a GPU has its own reference
                golden = {pipeline: golden_arrays(pipeline) for pipeline in self._first_of}
                self._shared["golden"] = {pipeline: arrays for pipeline, arrays in golden.items() if arrays}
            self._run_references([reference_cell(cell) for cell in self._first_of.values()])
            self._run_cells(self._left(cells))
            self._close()
            self._run_cold(self._suspects, alone=True)
            self._run_witnesses()
            self._settings.isolation.check(self._environment)
        finally:
            self._close()

    def _needed(self) -> list[PlannedCell]:
        """All cells to run, hidden ones first: the reference, the controls, a sound sibling of each damaged load."""
        hidden = [make(cell) for make in (reference_cell, controls_cell) for cell in self._first_of.values()]
        hidden += [sibling(cell) for cell in self._cells if damaged(cell.probe["checkpoint"])]
        return list({cell.id: cell for cell in [*hidden, *self._cells]}.values())

    def _left(self, cells: Sequence[PlannedCell]) -> list[PlannedCell]:
        """What has no attempt that says anything: a fault of ours, or of the engine, is tried again."""
        return [
            cell
            for cell in cells
            if all(judge(attempt).group is Class.NO_ANSWER for attempt in self._attempts.get(cell.id, ()))
        ]

    def _run_references(self, cells: Sequence[PlannedCell]) -> None:
        """They come first: their arrays are what every other cell of the environment and pipeline is compared with."""
        self._run_cells(self._left(cells), arrays=True)
        kept = {cell.probe["pipeline"]: reference_arrays(cell, self._attempts) for cell in cells}
        self._shared["reference"] = {
            pipeline: self._folder.arrays(digest) for pipeline, digest in kept.items() if digest
        }
        self._share()

    def _share(self) -> None:
        """Give an open zygote what its cells compare with; a later one gets it when it starts."""
        if self._zygote is not None:
            try:
                self._zygote.client.send({"kind": "share", "values": self._shared})
            except ZygoteLost as error:
                self._settings.on_note(f"{self._environment.id}: {error}")
                self._zygote = None

    def _run_cells(self, cells: Sequence[PlannedCell], arrays: bool = False) -> None:
        if self._settings.cold:
            self._run_cold(cells, arrays)
        else:
            self._run_forked(cells, arrays)

    # --- forked cells

    def _run_forked(self, cells: Sequence[PlannedCell], arrays: bool = False) -> None:
        """Fork the cells from one zygote; a zygote that is lost is replaced, its cells run again alone."""
        pending = list(cells)
        alone: list[PlannedCell] = []
        while pending or alone:
            zygote = self._zygote = self._zygote or self._open()
            pending, alone = self._without_imports(pending), self._without_imports(alone)
            if zygote is None:
                self._run_cold([*pending, *alone], arrays)
                return
            try:
                self._drive(zygote, pending, alone, arrays)
                while alone:
                    with self._settings.slots.all():
                        self._drive_alone(zygote, alone, arrays)
            except ZygoteLost as error:
                self._zygote = None
                self._settings.on_note(f"{self._environment.id}: {error}")
                alone += self._lost(zygote, error)

    def _open(self) -> Zygote | None:
        """The environment's zygote: one import, kept until `_close`; None where forks are not to be had."""
        try:
            zygote = self._start(warm=True)
            message = zygote.client.receive(_OPEN_SECONDS)
        except ZygoteLost as error:
            self._settings.on_note(f"{self._environment.id}: {error}")
            return None
        answer: dict[str, Any] = message[0] if message else {"kind": "silent"}
        self._import_errors = answer.get("failures", {})
        if answer["kind"] == "ready" and answer["threads"] == 1:
            return zygote
        zygote.client.kill()
        if answer["kind"] == "ready":
            text = f"imports leave {answer['threads']} threads, so nothing is forked; each cell runs cold"
            self._settings.on_note(f"{self._environment.id}: {text}")
        elif answer["kind"] == "failed":
            self._import_errors = dict.fromkeys(self._first_of, answer["error"])
        return None

    def _without_imports(self, cells: Sequence[PlannedCell]) -> list[PlannedCell]:
        """What cannot be imported stops every cell of its pipeline at import; the cells that are left.

        One import serves all cells here as elsewhere, and a cold witness confirms it as any bad verdict.
        """
        left = []
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        for cell in cells:
            error = self._import_errors.get(cell.probe["pipeline"])
            if error is None:
                left.append(cell)
                continue
            kind = words.UNSUPPORTED if error["type"] == "Unsupported" else words.EXCEPTION
            text = error["message"] if kind == words.UNSUPPORTED else f"{error['type']}: {error['message']}"
            found = words.finding(kind, text, exception=error)
            report = {"stage": "import", "findings": [found], "facts": {}, "seconds": 0.0}
            self._keep(self._attempt(UnderWay(cell, now, [report], {"how": "exited"}, 0.0, False), "fork", False))
        return left

    def _start(self, warm: bool) -> Zygote:
        settings = self._settings
        request = StartRequest(settings.archive, settings.limits, settings.jobs if warm else 1, self._runner)
        client = ZygoteClient(settings.isolation.start(self._environment, request))
        self._where = client.conditions
        firsts = [reference_cell(cell) for cell in self._first_of.values()]
        opening: list[dict[str, Any]] = [
            {
                "kind": "open",
                "warm": warm,
                "pipelines": self._requests.pipelines(self._first_of),
                "scratch": client.scratch,
                "container": "engine" in client.conditions,
                "rehearsals": [self._requests.request(cell) for cell in firsts] if warm else [],
            },
            {"kind": "share", "values": self._shared},
        ]
        for message in opening:
            client.send(message)
        return Zygote(client)

    def _drive(self, zygote: Zygote, pending: list[PlannedCell], alone: list[PlannedCell], arrays: bool) -> None:
        """Keep as many cells under way as there are slots, until none is left; add to `alone` what others disturbed."""
        slots = self._settings.slots
        while pending or zygote.under_way:
            self._check_stop()
            while pending:
                if zygote.under_way:
                    if not slots.try_take():
                        break
                else:
                    slots.take()
                zygote.dispatch(pending.pop(0), self._requests, self._settings.limits, arrays)
            ended = zygote.receive()
            for _ in ended:
                slots.give()  # all of them first: to write one down may fail
            for attempt_of in ended:
                attempt = self._attempt(attempt_of, "fork", alone=False)
                self._keep(attempt)
                if attempt.how == "crowded":
                    alone.append(attempt_of.cell)

    def _drive_alone(self, zygote: Zygote, alone: list[PlannedCell], arrays: bool) -> None:
        zygote.dispatch(alone.pop(0), self._requests, self._settings.limits, arrays, holds_slot=False)
        while zygote.under_way:
            self._check_stop()
            for ended in zygote.receive():
                self._keep(self._attempt(ended, "fork", alone=True))

    def _lost(self, zygote: Zygote, error: ZygoteLost) -> list[PlannedCell]:
        """The cells that were under way when a zygote went: to run again alone, or `crash` at the second time."""
        again = []
        if not zygote.under_way:
            self._losses["no cell"] = self._losses.get("no cell", 0) + 1
            if self._losses["no cell"] >= _LOST_TWICE:
                raise error
        for ended in self._take_back(zygote):
            count = self._losses[ended.cell.id] = self._losses.get(ended.cell.id, 0) + 1
            if count < _LOST_TWICE:
                again.append(ended.cell)
            else:
                # An engine may have gone twice as well: it says nothing yet, a process of its own will.
                ended.message = {"how": "harness", "text": f"its zygote was lost twice: {error}"}
                self._keep(self._attempt(ended, "fork", alone=True))
                self._suspects.append(ended.cell)
        return again

    def _take_back(self, zygote: Zygote) -> list[UnderWay]:
        """What a zygote had under way, with the slots of that given back."""
        abandoned = zygote.abandon()
        for ended in abandoned:
            if ended.holds_slot:
                self._settings.slots.give()
        return abandoned

    def _close(self) -> None:
        """End the zygote, and give back the slots of what it still had under way."""
        zygote, self._zygote = self._zygote, None
        if zygote is None:
            return
        if self._take_back(zygote) or self._settings.stop.is_set():
            zygote.client.kill()
        else:
            zygote.client.close()

    # --- cold cells

    def _run_cold(self, cells: Sequence[PlannedCell], arrays: bool = False, alone: bool = False) -> None:
        """One fresh process per cell: nothing is imported before it starts."""
        for cell in cells:
            self._check_stop()
            if alone:
                with self._settings.slots.all():
                    self._one_cold(cell, arrays, alone=True)
                continue
            self._settings.slots.take()
            try:
                self._one_cold(cell, arrays, alone=False)
            finally:
                self._settings.slots.give()

    def _one_cold(self, cell: PlannedCell, arrays: bool, alone: bool) -> None:
        zygote = self._start(warm=False)
        try:
            zygote.client.receive(_OPEN_SECONDS)
            zygote.dispatch(cell, self._requests, self._settings.limits, arrays, holds_slot=False)
            while zygote.under_way:
                self._check_stop()
                for ended in zygote.receive():
                    self._keep(self._attempt(ended, "cold", alone))
        except ZygoteLost as error:
            for ended in zygote.abandon():
                ended.message = {"how": "harness", "text": str(error)}
                if ended.cell in self._suspects:
                    ended.message = {"how": "signal", "signal": 9, "text": f"it ended its zygote each time: {error}"}
                self._keep(self._attempt(ended, "cold", alone))
        finally:
            zygote.client.kill()

    def _run_witnesses(self) -> None:
        """A bad verdict is published only after a cold process has shown it too, once per signature."""
        tried: set[str] = set()
        while cells := [cell for cell in unconfirmed(self._cells, self._attempts) if cell.id not in tried]:
            for cell in cells:
                tried.add(cell.id)
                last = self._attempts[cell.id][-1]
                self._run_cold([cell], alone=last.how in ("signal", "died", "timeout", "oom"))

    # --- writing down

    def _keep(self, attempt: Attempt) -> None:
        self._folder.keep_attempt(attempt)
        self._attempts.setdefault(attempt.cell, []).append(attempt)
        self._settings.on_attempt(attempt)

    def _attempt(self, ended: UnderWay, mode: str, alone: bool) -> Attempt:
        message = ended.message
        for report in ended.stages:
            arrays = report["facts"].pop("arrays", None)
            if arrays:
                report["facts"]["arrays"] = self._folder.keep_arrays(arrays)
        pressure = {"pressure": message["pressure"]} if message.get("pressure") else {}
        attempt = Attempt(
            id=uuid.uuid4().hex,
            cell=ended.cell.id,
            environment=self._environment.id,
            mode=mode,
            alone=alone,
            how=message["how"],
            signal=message.get("signal", 0),
            text=message.get("text", ""),
            stages=ended.stages,
            log=self._folder.keep_log(message.get("log", "")),
            started=ended.started,
            seconds=message.get("seconds", 0.0),
            peak_rss_kb=message.get("peak_rss_kb", 0),
            probe_version=PROBE_VERSION,
            conditions={
                "limits": self._settings.limits,
                "isolation": self._settings.isolation.name,
                **self._where,
                **pressure,
                "python": self._environment.record["python"],
                "platform": self._environment.record["platform"],
                "cpus": os.cpu_count(),
                "machine": platform.machine(),
                "threads": 1,
            },
        )
        return weighed(attempt, message.get("alone", True))

    def _check_stop(self) -> None:
        if self._settings.stop.is_set():
            raise Stopped
