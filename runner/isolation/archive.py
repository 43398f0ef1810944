"""How does our code get into an environment? As a zipapp, the same bytes for the same sources."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import runner
from runner.whole_files import write_once

__all__ = ["write_archive", "write_probe"]

_DATE = (1980, 1, 1, 0, 0, 0)
_PROBE = "from runner.probe.zygote import main\n\nmain()\n"


def _content(sources: Iterable[str], main: str) -> bytes:
    """A zip of `sources` (paths below `runner`) under their own names, so that it imports as the sources do."""
    root = Path(runner.__file__).parent
    files = {"__main__.py": main.encode(), "runner/__init__.py": b""}
    files |= {f"runner/{source}": (root / source).read_bytes() for source in sources}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
    return buffer.getvalue()


def write_archive(folder: Path, name: str, sources: Iterable[str], main: str) -> Path:
    """Write a zipapp into `folder` under its name and digest, once, and give its path."""
    content = _content(sources, main)
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    folder.mkdir(parents=True, exist_ok=True)
    write_once(path, content)
    return path


def write_probe(folder: Path) -> Path:
    """The probe's zipapp."""
    sources = sorted(f"probe/{path.name}" for path in (Path(runner.__file__).parent / "probe").glob("*.py"))
    return write_archive(folder, "probe", sources, _PROBE)
