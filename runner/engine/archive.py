"""How does the probe get into an environment? As one zipapp, the same bytes for the same sources."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import runner.probe
from runner.whole_files import write_once

__all__ = ["write_archive"]

_MAIN = "from runner.probe.zygote import main\n\nmain()\n"
_DATE = (1980, 1, 1, 0, 0, 0)


def _content() -> bytes:
    """A zip of `runner/probe` under its own name, so that the archive imports as the sources do."""
    files = {"__main__.py": _MAIN.encode(), "runner/__init__.py": b""}
    folder = Path(runner.probe.__file__).parent
    for path in sorted(folder.glob("*.py")):
        files[f"runner/probe/{path.name}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
    return buffer.getvalue()


def write_archive(folder: Path) -> Path:
    """Write the probe's zipapp into `folder` under its digest, once, and give its path."""
    content = _content()
    path = folder / f"probe-{hashlib.sha256(content).hexdigest()[:16]}.pyz"
    folder.mkdir(parents=True, exist_ok=True)
    write_once(path, content)
    return path
