"""Which words and marks do people read? The meaning of each verdict, its class, its letter; names of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a lookup needs some words, and no models
    from reports.document import CellModel, EnvironmentModel

__all__ = [
    "CAVEATS",
    "CLASSES",
    "LETTERS",
    "MARKS",
    "MEANINGS",
    "RUNNERS",
    "SILENT",
    "cell_name",
    "clipped",
    "environment_name",
    "harmless",
    "one_line",
    "shown_class",
]

MEANINGS: dict[str, str] = {
    "pass": "loaded, offloaded, painted and released; every weight is there and equals the checkpoint",
    "refused": "a damaged checkpoint was rejected with an error at load, which is right",
    "orphan-meta": "a tensor is on the meta device with no data behind it, or a hook will ask for data it lacks",
    "unexpected-meta": "a tensor is on the meta device, with its data behind a hook, where the mode leaves none",
    "corrupt-weights": "a weight is not what the checkpoint says: random, uninitialised, zero, untied or stale",
    "bad-output": "the image or a component's output is NaN, constant, not repeatable, or differs from the reference",
    "load-error": "loading a sound checkpoint raised an exception",
    "offload-error": "offloading, or removing it again, raised an exception",
    "step-error": "the txt2img step raised an exception",
    "import-error": "the environment installs, but the pipeline class cannot be imported",
    "crash": "the process died by a signal, also when run alone",
    "timeout": "no end within the time limit, also when run alone",
    "out-of-memory": "the memory limit was reached, also when run alone",
    "flaky": "attempts of one run disagree",
    "unresolvable": "the resolver proves that no such environment exists",
    "unsupported": "this version has no such class, mode or argument, or this runner cannot show it",
    "not-run": "no runner of that kind here",
    "install-error": "the network or the disk kept the environment from being built",
    "harness-error": "this program is at fault, or cannot vouch for the answer",
    "unfinished": "the run ended before this cell had its verdict",
}
"""What each verdict means, in one line."""

_LONG = 8000
MARKS = {"good": "✓", "bad": "✗", "not applicable": "–", "no answer": "?", "unfinished": "…"}
"""The shape of each class, which tells it where colours do not."""

AXES = {
    "pipeline": {
        "sd15, sdxl, sd3, flux, pixart-sigma": "the kind of model: Stable Diffusion 1.5, XL and 3, FLUX.1, PixArt-Sigma",
    },
    "load": {
        "pretrained": "from_pretrained of a diffusers folder",
        "components": "each component by its own class, then put together",
        "single_file": "from_single_file of one checkpoint file in the original layout",
        "empty_init-raw, empty_init-remapped": "into an empty model, as front ends do; our reconstruction",
    },
    "offload": {
        "none": "everything stays where it was loaded",
        "model": "a whole component at a time goes to the accelerator",
        "sequential": "a layer at a time",
        "disk": "weights stay on the disk until they are needed",
        "group_block, group_leaf": "groups of layers, by diffusers' own hooks",
    },
    "lifecycle": {
        "single": "one image, then released",
        "two-generations": "a second image of the same pipeline",
        "other-offload": "offloaded another way after the first image",
        "move": "moved to another device or dtype after the first image",
        "unload-reload": "released, and loaded again in the same process",
        "shared-component": "a second pipeline made of the first one's components",
        "used-folder": "disk offload into a folder that another model used before",
        "save-load": "saved after the first image, and loaded from there",
    },
    "checkpoint": {
        "canonical": "a sound file, in the layout of the hub",
        "duplicated-tie": "sound, with a tied weight stored twice",
        "all others": "damaged on purpose: to refuse them with an error is right",
    },
}
"""What the values of the axes mean."""

RUNNERS = ("cpu", "cuda", "emulated")
"""Where one may ask about, measured or not."""

CAVEATS = (
    (
        {"runner": "cpu", "offload": "model"},
        "On a CPU, model offload moves nothing: a pass says nothing about moving to a GPU.",
    ),
    (
        {"runner": "cpu", "offload": "sequential"},
        "On a CPU, sequential offload is accelerate.cpu_offload for each component, as diffusers calls it.",
    ),
)
"""What a verdict does not say, by the values of axes that it is about."""

SILENT = ("no answer", "unfinished")
"""The classes that say nothing: never counted as good, never as bad, and always counted."""

CLASSES = {
    **dict.fromkeys(MEANINGS, "bad"),
    **dict.fromkeys(("pass", "refused"), "good"),
    **dict.fromkeys(("unresolvable", "unsupported"), "not applicable"),
    **dict.fromkeys(("not-run", "install-error", "harness-error"), "no answer"),
    "unfinished": "unfinished",
}

LETTERS = {
    "refused": "R",
    "orphan-meta": "M",
    "unexpected-meta": "U",
    "corrupt-weights": "W",
    "bad-output": "O",
    "load-error": "L",
    "offload-error": "F",
    "step-error": "S",
    "import-error": "I",
    "crash": "C",
    "timeout": "T",
    "out-of-memory": "Y",
    "flaky": "K",
}
"""One letter for each kind of bad verdict, and for what was refused: good in another way than a pass."""


def harmless(text: str) -> str:
    """Text from outside for people: line breaks stay, other control characters are shown as numbers.

    So neither colours nor marks that change the direction of text get through.
    """
    return "".join(letter if letter.isprintable() or letter in "\n\t" else f"\\x{ord(letter):02x}" for letter in text)


def shown_class(group: str) -> str:
    """The class under which people count a cell: what has no verdict yet has no answer."""
    return "no answer" if group in SILENT else group


def one_line(text: str) -> str:
    """Text from outside as one line, each control character a space."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def clipped(value: Any) -> Any:
    """Plain data whose texts are cut after some kilobytes: nobody reads a message of ten megabytes."""
    if isinstance(value, str):
        return value if len(value) <= _LONG else f"{value[:_LONG]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [clipped(entry) for entry in value]
    if isinstance(value, dict):
        return {clipped(name): clipped(entry) for name, entry in value.items()}
    return value


def environment_name(environment: EnvironmentModel) -> str:
    """What was asked, in words."""
    return ", ".join(f"{axis} {value}" for axis, value in environment.requested.items())


def cell_name(cell: CellModel) -> str:
    """The probe axes of a cell that tell it from others."""
    names = ("pipeline", "checkpoint", "load", "offload", "lifecycle", "dtype", "runner")
    return " ".join(cell.axes[name] for name in names)
