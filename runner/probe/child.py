"""What does one cell do? Load, offload, step, release, with the guard after each, and a word after each stage."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional

from runner.probe import controls, failure, words
from runner.probe.expected import Weights
from runner.probe.guard import inspect_components
from runner.probe.lifecycles import LIFECYCLES
from runner.probe.loads import LOADS, Loaded, Request, Unsupported, load, model_components, pipeline_class
from runner.probe.messages import Recorder
from runner.probe.offloads import OFFLOADS, Mode
from runner.probe.step import GOLDEN_TOLERANCE, PROMPT, REFERENCE_TOLERANCE, compare, judge, paint, to_plain

__all__ = ["Cell", "import_libraries"]

Report = Callable[[Dict[str, Any]], None]


def import_libraries() -> Dict[str, str]:
    """Import what every cell needs; name -> version."""
    import accelerate
    import diffusers
    import safetensors
    import torch
    import transformers

    libraries = (torch, diffusers, transformers, accelerate, safetensors)
    return {library.__name__: str(library.__version__) for library in libraries}


class _Stop(Exception):
    """The stages after this one cannot run."""


class Cell:
    """One cell in one process. `report` is called after each stage with what was found there.

    A request is {"pipeline", "class", "folder", "single", "no_single", "components", "options", "call", "load",
    "offload", "lifecycle", "dtype", "runner", "reference", "golden", "arrays", "controls"}; `reference` and `golden`
    are arrays in plain form by pipeline; `arrays` asks for this cell's own arrays back.
    """

    def __init__(self, request: Dict[str, Any], weights: Weights, folder: str, report: Report) -> None:
        self._request = request
        self._weights = weights
        self._folder = folder
        self._report = report
        self._findings: List[Dict[str, Any]] = []
        self._facts: Dict[str, Any] = {}
        self._lifecycle = LIFECYCLES[request["lifecycle"]]

    def run(self) -> None:
        """Run every stage; a stage that cannot be followed ends the cell."""
        if self._request.get("controls"):
            self._stage("lifecycle", self._controls)
            return
        for name, work in (
            ("import", self._import),
            ("load", self._load),
            ("offload", self._offload),
            ("step", self._step),
            ("lifecycle", self._live),
        ):
            if not self._stage(name, work):
                return

    def _stage(self, name: str, work: Callable[[], None]) -> bool:
        self._findings, self._facts = [], {}
        started = time.monotonic()
        try:
            work()
            goes_on = True
        except _Stop:
            goes_on = False
        except Exception as error:  # a fault of this program: the library's own are met in `_library`
            self._findings.append(words.finding(words.HARNESS, _line(error), exception=failure.describe(error)))
            goes_on = False
        self._report(
            {
                "stage": name,
                "findings": self._findings,
                "facts": self._facts,
                "seconds": round(time.monotonic() - started, 4),
            }
        )
        return goes_on

    def _library(self, work: Callable[[], Any], during: str = "", doing: str = "") -> Any:
        """Call into a library; what it raises is a finding, and the cell stops there.

        `during` and `doing` say what was being done where the stage does not: a lifecycle loads and offloads too.
        """
        try:
            return work()
        except Unsupported as error:
            self._findings.append(words.finding(words.UNSUPPORTED, str(error)))
        except Exception as error:
            kind = words.OUT_OF_MEMORY if failure.is_out_of_memory(error) else words.EXCEPTION
            kind = words.HARNESS if failure.is_of_the_machine(error) else kind
            found = words.finding(kind, _line(error), exception=failure.describe(error))
            self._findings.append({**found, "during": during, "doing": doing} if during else found)
        raise _Stop

    def _guard(self, backed: bool) -> None:
        components = model_components(self._pipeline)
        others = {name: value for name, value in vars(self._pipeline).items() if name not in components}
        inspection = inspect_components(components, self._weights, backed, self._request["dtype"], others)
        self._findings += inspection.findings
        self._facts["census"] = inspection.counts

    def _import(self) -> None:
        import warnings

        warnings.simplefilter("default")
        self._facts["versions"] = self._library(import_libraries)
        self._library(lambda: pipeline_class(self._request["class"]))
        import diffusers

        diffusers.utils.logging.disable_progress_bar()
        if self._request["runner"] == "cuda":
            self._facts["device"] = self._open_device()

    def _open_device(self) -> Dict[str, Any]:
        """Initialise CUDA, here and not before the fork, and say on what this cell computes."""
        import torch

        if torch.version.cuda is None:
            self._findings.append(words.finding(words.UNSUPPORTED, "this build of torch has no CUDA"))
            raise _Stop
        try:
            torch.zeros(1, device="cuda")
            properties = torch.cuda.get_device_properties(0)
        except (RuntimeError, AssertionError) as error:
            # There is a device, or no such cell would run: that torch cannot use it says nothing about a load.
            self._findings.append(words.finding(words.HARNESS, "torch cannot use the GPU: " + _line(error)))
            raise _Stop from error
        return {
            "name": properties.name,
            "capability": "{}.{}".format(properties.major, properties.minor),
            "memory_mb": properties.total_memory // (1 << 20),
            "driver": torch._C._cuda_getDriverVersion(),
            "cuda": torch.version.cuda,
        }

    def _load(self) -> None:
        self._load_and_look(self._request["load"], self._request["folder"])

    def _load_and_look(self, strategy: str, folder: str, during: str = "") -> None:
        loaded = self._load_pipeline(strategy, folder, during)
        self._pipeline = loaded.pipeline
        self._pipeline.set_progress_bar_config(disable=True)
        self._guard(False)

    def _load_pipeline(self, strategy: str, folder: str, during: str = "") -> Loaded:
        request = self._request
        asked = Request(
            class_name=request["class"],
            folder=folder,
            single=request["single"],
            no_single=request["no_single"],
            dtype=request["dtype"],
            components=request["components"],
            options=request["options"],
        )
        with Recorder() as recorder:
            try:
                loaded: Loaded = self._library(lambda: load(strategy, asked), during)
            finally:
                self._facts["messages"] = recorder.kept()
        self._facts["call"] = loaded.call
        keys = recorder.keys(self._known_names(loaded.pipeline))
        self._facts["missing_keys"] = _merged(loaded.missing, keys["missing"])
        self._facts["unexpected_keys"] = _merged(loaded.unexpected, keys["unexpected"])
        return loaded

    def _known_names(self, pipeline: Any) -> List[str]:
        names = [name for known in self._weights.components.values() for name in known]
        for module in model_components(pipeline).values():
            names += [name for name, _ in module.named_parameters()]
        return names

    def _offload(self) -> None:
        import torch

        self._acts = _Acts(self, os.path.join(self._folder, "offload"), torch.device(self._request["runner"]))
        self._follow(self._lifecycle.before)
        self._facts["call"] = self._acts.enter(self._request["offload"], self._acts.folder)
        self._guard(self._acts.backed)

    def _step(self) -> None:
        options = self._request["call"]
        first = self._library(lambda: paint(self._pipeline, options))
        second = self._library(lambda: paint(self._pipeline, options))
        self._findings += judge(first, second)
        self._facts["image"] = {"mean": _number(first["image"].mean()), "deviation": _number(first["image"].std())}
        if not self._findings:
            self._compare_output(first)
        if self._request.get("arrays") and not self._findings:
            self._facts["arrays"] = to_plain(first)
        self._guard(self._acts.backed)
        self._first = first

    def _compare_output(self, arrays: Dict[str, Any]) -> None:
        golden = self._against("golden", arrays, GOLDEN_TOLERANCE)
        reference = self._against("reference", arrays, REFERENCE_TOLERANCE)
        if reference is not None and reference["within"] is False:
            text = "differs from the reference: {} by {}".format(reference["array"], reference["difference"])
            self._findings.append(words.finding(words.BAD_OUTPUT, text))
        if reference is None and not self._request.get("arrays") and (golden is None or not golden["within"]):
            text = "no reference in this environment, and no golden array that agrees: nothing can be said"
            self._findings.append(words.finding(words.HARNESS, text))

    def _against(self, name: str, arrays: Dict[str, Any], tolerance: float) -> Optional[Dict[str, Any]]:
        plain = self._request.get(name, {}).get(self._request["pipeline"])
        if plain is None:
            return None
        difference, where = compare(arrays, plain)
        within = difference is not None and difference <= tolerance
        self._facts[name] = {"difference": difference, "array": where, "tolerance": tolerance, "within": within}
        return dict(self._facts[name])

    def _live(self) -> None:
        self._facts["steps"] = []
        self._follow(self._lifecycle.after)

    def _follow(self, sequence: Callable[[Any], None]) -> None:
        """Live through a sequence. Its calls into libraries are met in `_library`; what else fails in it is ours."""
        try:
            sequence(self._acts)
        except Unsupported as error:
            self._findings.append(words.finding(words.UNSUPPORTED, str(error)))
            raise _Stop from error

    def _controls(self) -> None:
        """Find a load that is clean, and plant the controls into it."""
        for strategy in LOADS:
            self._findings = []
            try:
                self._import()
                self._load_and_look(strategy, self._request["folder"])
            except _Stop:
                continue
            if not self._findings:
                self._facts["controls"] = controls.run(model_components(self._pipeline), self._weights)
                return
        self._findings = [words.finding(words.HARNESS, "no load of this environment is clean enough for controls")]


class _Acts:
    """What a lifecycle does with the pipeline of a cell; each step is written down, the first finding ends it."""

    def __init__(self, cell: Cell, folder: str, device: Any) -> None:
        self._cell = cell
        self._request = cell._request
        self._mode: Optional[Mode] = None
        self._folders = 1
        self.folder, self.device = folder, device
        self.offload = cell._request["offload"]

    @property
    def pipeline(self) -> Any:
        return self._cell._pipeline

    @pipeline.setter
    def pipeline(self, pipeline: Any) -> None:
        self._cell._pipeline = pipeline

    @property
    def backed(self) -> bool:
        """Whether data may be behind hooks now."""
        return self._mode is not None and self._mode.backed

    def enter(self, mode: str, folder: str) -> str:
        """Offload to `folder`; the call that was made."""
        os.makedirs(folder, exist_ok=True)
        self._mode = OFFLOADS[mode]
        apply = self._mode.apply
        return str(self.library("offload", "offload: " + mode, lambda: apply(self.pipeline, self.device, folder)))

    def library(self, during: str, text: str, work: Callable[[], Any]) -> Any:
        self._did(text)
        return self._cell._library(work, during, text)

    def _did(self, text: str) -> None:
        self._cell._facts.setdefault("steps", []).append({"step": text})

    def guard(self) -> None:
        self._cell._guard(self.backed)
        self._judge()

    def _judge(self) -> None:
        """Write down what the guard saw at the last step, and end the cell if it found something."""
        self._cell._facts["steps"][-1]["census"] = self._cell._facts["census"]
        if self._cell._findings:
            raise _Stop

    def paint(self, text: str, prompt: str = PROMPT) -> None:
        options = self._request["call"]
        arrays = self.library("step", text, lambda: paint(self.pipeline, options, prompt))
        self._cell._findings += judge(arrays, arrays)
        if not self._cell._findings and prompt == PROMPT:
            difference, where = compare(arrays, to_plain(self._cell._first))
            if difference is None or difference > REFERENCE_TOLERANCE:
                found = "{}: differs from the first image: {} by {}".format(text, where, difference)
                self._cell._findings.append(words.finding(words.BAD_OUTPUT, found))
        self.guard()

    def apply(self, mode: str) -> None:
        self._folders += 1
        self.enter(mode, "{}-{}".format(self.folder, self._folders))
        self.guard()

    def release(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            self.library("offload", "release", lambda: mode.release(self.pipeline))
            self.guard()

    def load(self, folder: str = "") -> None:
        self._did("load")
        strategy = "pretrained" if folder else self._request["load"]
        self._cell._load_and_look(strategy, folder or self._request["folder"], "load")
        self._judge()


def _line(error: BaseException) -> str:
    return "{}: {}".format(type(error).__name__, str(error)[:2000])


def _merged(told: List[str], logged: List[str]) -> List[str]:
    """Keys that the call returned, and those of messages that no returned key (component.key) ends with."""
    extra = [key for key in logged if not any(other == key or other.endswith("." + key) for other in told)]
    return sorted(set(told) | set(extra))


def _number(value: Any) -> Optional[float]:
    number = float(value)
    return number if number - number == 0 else None
