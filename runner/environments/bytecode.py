"""Who compiles the sources? We, once per wheel; every environment gets hardlinks to the same files.

Kept by (wheel digest, cache tag, optimisation), with unchecked hashes: a hardlinked source has the time
of its wheel, not of its compilation. Without this each cold process would compile some 2 500 modules.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["link_bytecode"]

_COMPILE = """
import compileall, py_compile, sys
ok = compileall.compile_dir(
    sys.argv[1], maxlevels=60, quiet=2, workers=int(sys.argv[2]), force=True,
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
)
print(sys.implementation.cache_tag)
"""


def link_bytecode(
    python: Path, site: Path, packages: Iterable[tuple[str, str, str]], store: Path, workers: int
) -> None:
    """Give every source file below `site` its bytecode, compiling only wheels that the store does not hold.

    Args:
        python: the environment's interpreter.
        site: its site-packages.
        packages: what is installed there: (name, version, wheel digest).
        store: the bytecode store, on the filesystem of the environment.
        workers: processes that compile.
    """
    tag = _cache_tag(python)
    for wheel, sources in _sources(site, packages):
        kept = store / f"{wheel}-{tag}-0"
        if not kept.is_dir():
            _compile(python, site, sources, kept, workers)
        _link(kept, site)


def _cache_tag(python: Path) -> str:
    code = "import sys; print(sys.implementation.cache_tag)"
    return subprocess.run([python, "-I", "-S", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _sources(site: Path, packages: Iterable[tuple[str, str, str]]) -> Iterable[tuple[str, list[str]]]:
    """The Python files of each wheel, as its RECORD lists them."""
    records = {}
    for record in site.glob("*.dist-info/RECORD"):
        name, _, version = record.parent.name.removesuffix(".dist-info").partition("-")
        records[name.lower().replace("-", "_").replace(".", "_"), version] = record
    for package, version, wheel in packages:
        found = records.get((package.lower().replace("-", "_").replace(".", "_"), version))
        if found is not None:
            with found.open(encoding="utf-8", newline="") as file:
                paths = [row[0] for row in csv.reader(file) if row]
            yield wheel, [path for path in paths if path.endswith(".py") and not path.startswith(("..", "/"))]


def _compile(python: Path, site: Path, sources: list[str], kept: Path, workers: int) -> None:
    """Compile in a tree of hardlinked sources, then keep only the bytecode, under its final name at once."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=kept.parent))
    try:
        for source in sources:
            target = building / source
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(site / source, target)
        # Some wheels carry sources that are no Python of this version (templates, tests): the status says
        # that too, so it is not looked at. What has no bytecode is compiled by whoever imports it.
        subprocess.run(
            [python, "-I", "-S", "-c", _COMPILE, str(building), str(workers)],
            check=True,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for source in sources:
            (building / source).unlink()
        try:
            os.rename(building, kept)
        except OSError:
            if not kept.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _link(kept: Path, site: Path) -> None:
    for folder, _, files in os.walk(kept):
        target = site / os.path.relpath(folder, kept)
        if files:
            target.mkdir(exist_ok=True)
        for name in files:
            if not (target / name).exists():
                os.link(os.path.join(folder, name), target / name)
