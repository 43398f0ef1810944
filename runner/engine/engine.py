"""Who does what when? Builds environments one after the other, runs those that are ready beside that."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from runner.engine.environment_run import EnvironmentRun, Settings, Stopped
from runner.engine.requests import Requests
from runner.engine.slots import Slots
from runner.environments.store import BuildFailed, Environment
from runner.errors import EnvironmentDamaged, InfrastructureError
from runner.isolation.archive import write_probe
from runner.isolation.contract import Isolation
from runner.plan import Plan, PlannedEnvironment
from runner.results.attempt import Attempt
from runner.results.conclude import EnvironmentState
from runner.results.folder import RunFolder

__all__ = ["Engine", "Observer", "Options"]


class Observer(Protocol):
    """Who is told what happens; called from several threads."""

    def environment(self, key: str, state: str) -> None:
        """An environment is now waiting, building, running, done or failed."""

    def attempt(self, attempt: Attempt) -> None:
        """An attempt was written down."""

    def note(self, text: str) -> None:
        """Something that a reader of the run should know."""


@dataclass(frozen=True, slots=True)
class Options:
    """`jobs` cells at once; `cold` gives each cell a process of its own; `shuffle` seeds the order of cells.

    `budget` is how many bytes may be held for environments; None for no limit.
    """

    jobs: int
    budget: int | None = None
    cold: bool = False
    shuffle: int | None = None


class Engine:
    """Runs a plan into a folder; what it makes for cells lies below `store`. `stop` may be called from a signal handler or another thread."""

    def __init__(
        self, plan: Plan, folder: RunFolder, isolation: Isolation, store: Path, observer: Observer, options: Options
    ) -> None:
        self._plan, self._folder, self._isolation = plan, folder, isolation
        self._observer, self._options = observer, options
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._gpu_slots: Slots | None = None
        self._requests = Requests(store / "checkpoints", isolation.give)
        self._settings = Settings(
            isolation=isolation,
            archive=write_probe(store / "probe"),
            limits=plan.limits.as_json(),
            jobs=max(1, options.jobs),
            cold=options.cold,
            slots=Slots(options.jobs),
            stop=self._stop,
            on_attempt=observer.attempt,
            on_note=observer.note,
        )

    def stop(self) -> None:
        """End soon: what is under way is given up, what is written down stays."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def run(self) -> None:
        """Run all environments of the plan.

        A fault of this program in one environment does not keep the others from running; the first such
        error is raised at the end.
        """
        errors: list[BaseException] = []
        wanted = {entry.key: entry.exact["python"] for entry in self._plan.environments if entry.lock is not None}
        if self._options.budget is not None and wanted:
            try:
                self._isolation.make_room(self._options.budget, wanted)
            except InfrastructureError as error:  # if it matters, a build will say so, and of which environment
                self._observer.note(f"no room was made: {error}")
        with ThreadPoolExecutor(max_workers=max(1, self._options.jobs)) as pool:
            futures: list[Future[None]] = []
            for environment in self._plan.environments:
                if self._stop.is_set():
                    break
                if environment.lock is None:
                    self._observer.environment(environment.key, "failed")
                    continue
                missing = self._missing_runners(environment)
                if {cell.probe["runner"] for cell in self._plan.of(environment.key)} <= missing.keys():
                    self._folder.keep_environment(environment.key, EnvironmentState(missing=missing))
                    self._observer.environment(environment.key, "not run")
                    continue
                built = self._build(environment, missing)
                if built is not None:
                    futures.append(pool.submit(self._guarded(errors, built, environment, missing)))
            for future in futures:
                future.result()
        if errors and not self._stop.is_set():
            raise errors[0]

    def _missing_runners(self, environment: PlannedEnvironment) -> dict[str, str]:
        """The runners that cells of an environment want and this machine does not have, each with the reason."""
        wanted = {cell.probe["runner"] for cell in self._plan.of(environment.key)}
        missing = {}
        if "cuda" in wanted:
            gpus = self._isolation.gpus(environment.exact["python"])
            reason = gpus.unavailable(environment.backend)
            if reason:
                missing["cuda"] = reason
        return missing

    def _build(self, environment: PlannedEnvironment, missing: dict[str, str]) -> Environment | None:
        key = environment.key
        self._observer.environment(key, "building")
        try:
            built = self._isolation.build(self._plan.lock(environment), max(1, self._options.jobs))
        except BuildFailed as error:
            if self._stop.is_set():
                return None
            self._folder.keep_environment(key, EnvironmentState(fault=str(error), missing=missing))
            self._observer.environment(key, "failed")
            return None
        except InfrastructureError as error:  # other environments may need another image, or nothing built
            if self._stop.is_set():
                return None
            self._folder.keep_environment(key, EnvironmentState(fault=f"{error}\n{error.remedy}", missing=missing))
            self._observer.environment(key, "failed")
            return None
        self._folder.keep_environment(key, EnvironmentState(record=built.record, missing=missing))
        self._observer.environment(key, "waiting")
        return built

    def _settings_for(self, runner: str, python: str) -> Settings:
        """On a GPU as many cells run at once as its memory takes, beside those on the CPU."""
        if runner == "cpu":
            return self._settings
        jobs = min(self._settings.jobs, self._isolation.gpus(python).at_once(self._settings.limits["memory_mb"]))
        with self._lock:
            slots = self._gpu_slots = self._gpu_slots or Slots(jobs)
        return replace(self._settings, slots=slots, jobs=jobs)

    def _guarded(
        self,
        errors: list[BaseException],
        built: Environment,
        environment: PlannedEnvironment,
        missing: Mapping[str, str],
    ) -> Callable[[], None]:
        def run() -> None:
            cells = self._plan.of(built.id)
            if self._options.shuffle is not None:
                random.Random(self._options.shuffle).shuffle(cells)  # noqa: S311 - an order, not a secret
            self._observer.environment(built.id, "running")
            try:
                for runner in sorted({cell.probe["runner"] for cell in cells} - missing.keys()):
                    settings = self._settings_for(runner, environment.exact["python"])
                    own = [cell for cell in cells if cell.probe["runner"] == runner]
                    EnvironmentRun(built, runner, own, self._folder, self._requests, settings).run()
                self._observer.environment(built.id, "done")
            except Stopped:
                self._observer.environment(built.id, "stopped")
            except EnvironmentDamaged as error:  # what its cells have said so far counts for nothing
                fault = f"{error}\n{error.remedy}"
                self._folder.keep_environment(built.id, EnvironmentState(built.record, fault, missing))
                self._observer.environment(built.id, "failed")
                errors.append(error)
            except Exception as error:  # one environment's trouble must not end the others; raised at the end
                self._observer.note(f"{built.id}: {type(error).__name__}: {error}")
                self._observer.environment(built.id, "failed")
                errors.append(error)

        return run
