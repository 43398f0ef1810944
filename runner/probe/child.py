"""What does one cell do? Load, offload, step, release, with the guard after each, and a word after each stage."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional

from runner.probe import controls, failure, words
from runner.probe.expected import Weights
from runner.probe.guard import inspect_components
from runner.probe.loads import LOADS, Loaded, Request, Unsupported, load, model_components, pipeline_class
from runner.probe.messages import Recorder
from runner.probe.offloads import OFFLOADS
from runner.probe.step import GOLDEN_TOLERANCE, REFERENCE_TOLERANCE, compare, judge, paint, to_plain

__all__ = ["Cell", "import_libraries"]

Report = Callable[[Dict[str, Any]], None]


def import_libraries(class_name: str) -> Dict[str, str]:
    """Import what every cell needs; name -> version. The pipeline's class is asked for, not only the package."""
    import accelerate
    import diffusers
    import safetensors
    import torch
    import transformers

    pipeline_class(class_name)
    libraries = (torch, diffusers, transformers, accelerate, safetensors)
    return {library.__name__: str(library.__version__) for library in libraries}


class _Stop(Exception):
    """The stages after this one cannot run."""


class Cell:
    """One cell in one process. `report` is called after each stage with what was found there.

    A request is {"class", "folder", "single", "components", "load", "offload", "dtype", "runner",
    "reference", "golden", "arrays", "controls"}; `reference` and `golden` are arrays in plain form or
    None; `arrays` asks for this cell's own arrays back.
    """

    def __init__(self, request: Dict[str, Any], weights: Weights, folder: str, report: Report) -> None:
        self._request = request
        self._weights = weights
        self._folder = folder
        self._report = report
        self._findings: List[Dict[str, Any]] = []
        self._facts: Dict[str, Any] = {}

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
            ("lifecycle", self._release),
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

    def _library(self, work: Callable[[], Any]) -> Any:
        """Call into a library; what it raises is a finding, and the cell stops there."""
        try:
            return work()
        except Unsupported as error:
            self._findings.append(words.finding(words.UNSUPPORTED, str(error)))
        except Exception as error:
            kind = words.OUT_OF_MEMORY if failure.is_out_of_memory(error) else words.EXCEPTION
            kind = words.HARNESS if failure.is_of_the_machine(error) else kind
            self._findings.append(words.finding(kind, _line(error), exception=failure.describe(error)))
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
        self._facts["versions"] = self._library(lambda: import_libraries(self._request["class"]))
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
        import torch

        before = torch.nn.Module.register_parameter
        loaded = self._load_pipeline(self._request["load"])
        self._pipeline = loaded.pipeline
        self._pipeline.set_progress_bar_config(disable=True)
        if torch.nn.Module.register_parameter is not before:
            self._findings.append(
                words.finding(words.CORRUPT, "torch.nn.Module.register_parameter was left patched by the load")
            )
        self._guard(False)

    def _load_pipeline(self, strategy: str) -> Loaded:
        request = self._request
        asked = Request(request["class"], request["folder"], request["single"], request["dtype"], request["components"])
        with Recorder() as recorder:
            try:
                loaded: Loaded = self._library(lambda: load(strategy, asked))
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

    def _device(self) -> Any:
        import torch

        return torch.device(self._request["runner"])

    def _offload(self) -> None:
        mode = OFFLOADS[self._request["offload"]]
        folder = os.path.join(self._folder, "offload")
        os.makedirs(folder)
        self._facts["call"] = self._library(lambda: mode.apply(self._pipeline, self._device(), folder))
        self._guard(mode.backed)

    def _step(self) -> None:
        first = self._library(lambda: paint(self._pipeline))
        second = self._library(lambda: paint(self._pipeline))
        self._findings += judge(first, second)
        self._facts["image"] = {"mean": _number(first["image"].mean()), "deviation": _number(first["image"].std())}
        if not self._findings:
            self._compare_output(first)
        if self._request.get("arrays") and not self._findings:
            self._facts["arrays"] = to_plain(first)
        self._guard(OFFLOADS[self._request["offload"]].backed)

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
        plain = self._request.get(name)
        if plain is None:
            return None
        difference, where = compare(arrays, plain)
        within = difference is not None and difference <= tolerance
        self._facts[name] = {"difference": difference, "array": where, "tolerance": tolerance, "within": within}
        return dict(self._facts[name])

    def _release(self) -> None:
        mode = OFFLOADS[self._request["offload"]]
        self._library(lambda: mode.release(self._pipeline))
        self._guard(False)

    def _controls(self) -> None:
        """Find a load that is clean, and plant the controls into it."""
        for strategy in LOADS:
            self._findings = []
            try:
                self._import()
                self._pipeline = self._load_pipeline(strategy).pipeline
                self._guard(False)
            except _Stop:
                continue
            if not self._findings:
                self._facts["controls"] = controls.run(model_components(self._pipeline), self._weights)
                return
        self._findings = [words.finding(words.HARNESS, "no load of this environment is clean enough for controls")]


def _line(error: BaseException) -> str:
    return "{}: {}".format(type(error).__name__, str(error)[:2000])


def _merged(told: List[str], logged: List[str]) -> List[str]:
    """Keys that the call returned, and those of messages that no returned key (component.key) ends with."""
    extra = [key for key in logged if not any(other == key or other.endswith("." + key) for other in told)]
    return sorted(set(told) | set(extra))


def _number(value: Any) -> Optional[float]:
    number = float(value)
    return number if number - number == 0 else None
