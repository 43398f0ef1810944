"""Which Python runs an environment? uv looks first; pyenv's versions, which uv sees only when active, after."""

from __future__ import annotations

import os
from pathlib import Path

from runner.resolve.uv import Uv

__all__ = ["find_python"]


def find_python(uv: Uv, minor: str) -> str:
    """What `uv venv --python` takes for a minor version such as 3.11: a path where one is found, else the version."""
    answer = uv.run(["python", "find", minor, "--no-project", "--offline", "--quiet", "--system"])
    path = answer.stdout.strip()
    if answer.status == 0 and path:
        return path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    versions = sorted(root.glob(f"{minor}.*/bin/python"), key=_patch) if root.is_dir() else []
    return str(versions[-1]) if versions else minor


def _patch(path: Path) -> int:
    digits = path.parent.parent.name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else -1
