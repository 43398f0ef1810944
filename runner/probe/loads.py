"""How is a pipeline loaded? Each strategy is a path that people's programs really take.

`pretrained`: the whole pipeline from the folder. `components`: each submodel by its class in
`model_index.json`, as InvokeAI does. `single_file`: one file in the original layout, with a local
configuration. `empty_init-raw`, `empty_init-remapped`: modules built empty on meta, then filled by
`load_state_dict(assign=True)`; our reconstruction of what front ends do, with the keys as stored or
renamed to what the class wants.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from typing import Any, Callable, Dict, List, NamedTuple

from runner.probe.expected import aliases

__all__ = ["LOADS", "Loaded", "Request", "Unsupported", "load", "model_components", "pipeline_class"]


_WITHOUT = ("safety_checker", "feature_extractor")
"""What an assembled pipeline does without."""


class Unsupported(Exception):
    """This version has no such class, mode or argument, or this runner cannot show it."""


class Request(NamedTuple):
    """What to load: the pipeline's class, the checkpoint's `folder` and `single` file, a dtype, the parts with weights.

    `no_single` says why there is no single file; `options` are arguments of `from_pretrained` beside the path.
    """

    class_name: str
    folder: str
    single: str
    no_single: str
    dtype: str
    components: List[str]
    options: Dict[str, Any]


class Loaded(NamedTuple):
    pipeline: Any
    call: str
    missing: List[str]
    unexpected: List[str]


def pipeline_class(name: str) -> Any:
    """The class from diffusers. `import diffusers` is lazy: only this shows whether it can be imported.

    Raises:
        Unsupported: this diffusers has no class of that name.
    """
    import diffusers

    try:
        return getattr(diffusers, name)
    except AttributeError as error:
        # A failing import inside also arrives as AttributeError in no version; a missing name names itself.
        if "has no attribute" in str(error):
            raise Unsupported("diffusers {} has no {}".format(diffusers.__version__, name)) from error
        raise


def model_components(pipeline: Any) -> Dict[str, Any]:
    """The parts of a pipeline that hold weights."""
    import torch

    return {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _pretrained(request: Request) -> Loaded:
    pipeline = pipeline_class(request.class_name).from_pretrained(
        request.folder,
        torch_dtype=_dtype(request.dtype),
        local_files_only=True,
        **request.options,
    )
    return Loaded(pipeline, "{}.from_pretrained(folder)".format(request.class_name), [], [])


def _single_file(request: Request) -> Loaded:
    if request.no_single:
        raise Unsupported(request.no_single)
    kind = pipeline_class(request.class_name)
    if not hasattr(kind, "from_single_file"):
        raise Unsupported("this diffusers has no {}.from_single_file".format(request.class_name))
    import diffusers

    if _version(diffusers.__version__) < (0, 28):
        raise Unsupported("diffusers before 0.28 takes no local `config` for a single file of this width")
    pipeline = kind.from_single_file(
        request.single,
        config=request.folder,
        torch_dtype=_dtype(request.dtype),
        local_files_only=True,
        **request.options,
    )
    return Loaded(pipeline, "{}.from_single_file(file, config=folder)".format(request.class_name), [], [])


def _index(folder: str) -> Dict[str, List[str]]:
    with open(os.path.join(folder, "model_index.json"), encoding="utf-8") as file:
        return {name: value for name, value in json.load(file).items() if isinstance(value, list)}


def _class(library: str, name: str) -> Any:
    return getattr(importlib.import_module(library), name)


def _other_parts(request: Request) -> Dict[str, Any]:
    """What a pipeline needs beside its models: scheduler and tokenizer."""
    return {
        name: _class(library, kind).from_pretrained(os.path.join(request.folder, name))
        for name, (library, kind) in _index(request.folder).items()
        if name not in request.components and name not in _WITHOUT
    }


def _assembled(request: Request, models: Dict[str, Any], call: str, missing: List[str], extra: List[str]) -> Loaded:
    kind = pipeline_class(request.class_name)
    absent = {name: None for name in _WITHOUT if name in _index(request.folder)}
    pipeline = kind(**models, **_other_parts(request), **{**absent, **request.options})
    return Loaded(pipeline, call, missing, extra)


def _components(request: Request) -> Loaded:
    models, missing, unexpected = {}, [], []
    index = _index(request.folder)
    for name in request.components:
        library, kind = index[name]
        models[name], info = _class(library, kind).from_pretrained(
            os.path.join(request.folder, name),
            torch_dtype=_dtype(request.dtype),
            local_files_only=True,
            output_loading_info=True,
        )
        missing += [name + "." + key for key in info["missing_keys"]]
        unexpected += [name + "." + key for key in info["unexpected_keys"]]
    return _assembled(request, models, "each submodel's from_pretrained(folder/name)", missing, unexpected)


def _empty_init(request: Request, remap: bool) -> Loaded:
    _needs_assign()
    import accelerate
    import safetensors.torch

    models, missing, unexpected = {}, [], []
    index = _index(request.folder)
    for name in request.components:
        library, kind_name = index[name]
        kind = _class(library, kind_name)
        folder = os.path.join(request.folder, name)
        with accelerate.init_empty_weights():
            model = _from_configuration(kind, folder)
        stored = safetensors.torch.load_file(_weights_file(folder))
        if remap:
            wanted = set(model.state_dict())
            stored = {_renamed(key, wanted): value for key, value in stored.items()}
        result = model.load_state_dict(stored, strict=False, assign=True)
        if hasattr(model, "tie_weights"):
            model.tie_weights()
        models[name] = model.to(_dtype(request.dtype)).eval() if request.dtype != "float32" else model.eval()
        missing += [name + "." + key for key in result.missing_keys]
        unexpected += [name + "." + key for key in result.unexpected_keys]
    call = "init_empty_weights(), load_state_dict(strict=False, assign=True), tie_weights()"
    return _assembled(request, models, call, missing, unexpected)


def _from_configuration(kind: Any, folder: str) -> Any:
    if hasattr(kind, "config_class"):
        return kind(kind.config_class.from_pretrained(folder))
    return kind.from_config(kind.load_config(folder))


def _weights_file(folder: str) -> str:
    files = [name for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")]
    return os.path.join(folder, files[0])


def _renamed(key: str, wanted: Any) -> str:
    """The name that the class knows this stored key by; the key itself where it knows none."""
    for candidate in aliases(key):
        if candidate in wanted:
            return candidate
    return key


def _needs_assign() -> None:
    import torch

    if "assign" not in inspect.signature(torch.nn.Module.load_state_dict).parameters:
        raise Unsupported("torch {} has no load_state_dict(assign=True)".format(torch.__version__))


def _version(text: str) -> tuple:  # type: ignore[type-arg]
    parts = []
    for part in text.split(".")[:3]:
        digits = "".join(letter for letter in part if letter.isdigit())
        parts.append(int(digits or 0))
    return tuple(parts)


LOADS: Dict[str, Callable[[Request], Loaded]] = {
    "pretrained": _pretrained,
    "components": _components,
    "single_file": _single_file,
    "empty_init-raw": lambda request: _empty_init(request, remap=False),
    "empty_init-remapped": lambda request: _empty_init(request, remap=True),
}


def load(strategy: str, request: Request) -> Loaded:
    """Load by `strategy`, one of LOADS.

    Raises:
        Unsupported: this version does not offer it.
        Exception: whatever the library raises, untouched.
    """
    return LOADS[strategy](request)
