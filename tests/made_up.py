"""Results that nobody measured, of any size, for tests of what is published and for `nox -s bench`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from reports.dataset import Column, DatasetModel, KeptEnvironment
from reports.document import RunModel

PIPELINES = ("sd15", "sdxl", "sd3", "flux", "pixart-sigma")
LOADS = ("pretrained", "components", "single_file", "empty_init-raw", "empty_init-remapped")
OFFLOADS = ("none", "model", "sequential", "disk", "split")
LIFECYCLES = ("single", "two-generations", "move", "save-load")
REBUILT = "our reconstruction"


def run_of(number: int) -> RunModel:
    """The n-th nightly run."""
    return RunModel(
        id=f"run{number}",
        started=f"2026-12-{number + 1:02}T03:00:00+00:00",
        tool="metamatrix 0.1.0",
        no_answer_share=0.0,
        matrix="matrix.yaml",
        select="nightly",
        isolation="docker",
        limits={},
    )


def environments(count: int) -> list[KeptEnvironment]:
    """As many environments: versions become newer now and then, and transformers 5 comes after a hundred."""
    return [_environment(number) for number in range(count)]


def _environment(number: int) -> KeptEnvironment:
    chosen = {
        "diffusers": f"0.{27 + number // 20}.{number % 3}",
        "transformers": f"4.{40 + number // 4}.0" if number < 100 else f"5.{number // 10}.0",
        "accelerate": f"1.{number // 25}.0",
        "torch": f"2.{6 + number % 8}.0",
    }
    return KeptEnvironment(
        id=f"e{number:015x}",
        requested={"python": "3.11", **chosen},
        exact={"python": "3.11", **chosen},
        backend="cpu",
        installed=chosen,
        python="3.11.7",
        platform="linux",
        packages=[(name, version, f"{name}-{version}-py3-none-any.whl", "0" * 64) for name, version in chosen.items()],
        controls=40,
        missed=[],
        drift="",
        proof="",
        fault="",
    )


def combinations() -> list[tuple[str, ...]]:
    """Five hundred combinations of probe axes."""
    return list(product(PIPELINES, LOADS, OFFLOADS, LIFECYCLES))


def dataset(run: int, environment_count: int, combination_count: int = 500, noise: float = 0.0) -> DatasetModel:
    """One run over all environments; a share of `noise` of the cells has a verdict of its own, drawn at random."""
    chance = random.Random(run)
    kept = environments(environment_count)
    asked = combinations()[:combination_count]
    rows = [(place, combination) for place in range(len(kept)) for combination in range(len(asked))]
    verdicts = [_verdict(kept[place], asked[combination], run, chance, noise) for place, combination in rows]
    columns: dict[str, Column] = {
        "subject": Column(
            values=[f"{place * 1000 + combination:016x}" for place, combination in rows], rows=list(range(len(rows)))
        ),
        "id": Column(values=[f"c{place}-{combination}" for place, combination in rows], rows=list(range(len(rows)))),
        "environment": Column(values=[entry.id for entry in kept], rows=[place for place, _ in rows]),
        "requested": Column(values=[entry.requested for entry in kept], rows=[place for place, _ in rows]),
    }
    for axis, values in zip(("pipeline", "load", "offload", "lifecycle"), zip(*asked, strict=True), strict=True):
        columns[f"axes.{axis}"] = _column([values[combination] for _, combination in rows])
    for axis, value in (("checkpoint", "canonical"), ("dtype", "float32"), ("runner", "cpu")):
        columns[f"axes.{axis}"] = _column([value] * len(rows))
    columns["rebuilt"] = _column([REBUILT if asked[c][1].startswith("empty_init") else None for _, c in rows])
    for name, values in zip(
        ("verdict", "group", "stage", "signature", "cause"), zip(*verdicts, strict=True), strict=True
    ):
        columns[name] = _column(list(values))
    for name, value in (("emulated", False), ("expected", False), ("expectation", None), ("attempts", 1)):
        columns[name] = _column([value] * len(rows))
    columns["tensors"] = Column(values=[[]], rows=[0] * len(rows))
    columns["seconds"] = _column([round(0.2 + chance.random() / 10, 2) for _ in rows])
    columns["peak_rss_mb"] = _column([300 + chance.randrange(60) for _ in rows])
    return DatasetModel(schema_version=1, run=run_of(run), probe_version="3", environments=kept, columns=columns)


def _column(items: list[Any]) -> Column:
    """`Column.of` for values that are their own keys."""
    places: dict[Any, int] = {}
    rows = [places.setdefault(item, len(places)) for item in items]
    return Column(values=list(places), rows=rows)


def _verdict(
    environment: KeptEnvironment, values: tuple[str, ...], run: int, chance: random.Random, noise: float
) -> tuple[str, str, str, str, str]:
    if chance.random() < noise:
        number = chance.randrange(40)
        return ("load-error", "bad", "load", f"{number:012x}", f"ValueError: the {number}th way to fail")
    _, load, offload, lifecycle = values
    if lifecycle == "move" and offload in ("sequential", "disk"):
        return ("offload-error", "bad", "offload", "a" * 12, "NotImplementedError: Cannot copy out of meta tensor")
    if load == "single_file" and environment.installed["transformers"].startswith("5."):
        return ("orphan-meta", "bad", "load", "b" * 12, "37 tensor(s): text_encoder.weight (on meta; no hook holds it)")
    if run and offload == "split" and environment.installed["torch"] == "2.13.0":
        return ("step-error", "bad", "step", "c" * 12, "RuntimeError: expected all tensors on one device, got 2")
    return ("pass", "good", "lifecycle", "", "")


def nights(
    count: int, environment_count: int, combination_count: int = 500, noise: float = 0.0
) -> Iterator[DatasetModel]:
    """The data sets of as many runs."""
    return (dataset(run, environment_count, combination_count, noise) for run in range(count))
