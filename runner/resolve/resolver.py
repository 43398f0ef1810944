"""Does such an environment exist? A lock, or the resolver's proof that there is none, or no answer."""

from __future__ import annotations

import json
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from runner.resolve.lock import Lock, Platform, read_lock
from runner.resolve.uv import Uv

__all__ = ["Resolution", "Resolver"]

_TORCH_FAMILY = ("torch", "torchvision", "torchaudio")


@dataclass(frozen=True, slots=True)
class Resolution:
    """Exactly one of: `lock`; `proof`, the derivation that nothing fits; `fault`, why there is no answer."""

    lock: Lock | None = None
    proof: str = ""
    fault: str = ""


class Resolver:
    """Resolves requests with uv for a platform, torch from the index of its backend where that answers."""

    def __init__(self, uv: Uv, torch_index: str, as_of: date | None, target: Platform | None = None) -> None:
        self._uv = uv
        self._target = target or Platform.here()
        self._torch_index = torch_index
        self._as_of = as_of
        self._indexes: dict[str, str | None] = {}
        self.warnings: list[str] = []

    def resolve(self, exact: Mapping[str, str], backend: str) -> Resolution:
        """Resolve the environment axes `exact` (axis -> version; `python` a minor version) for a torch backend."""
        python = exact["python"]
        requirements = [f"{axis.replace('_', '-')}=={version}" for axis, version in exact.items() if axis != "python"]
        with tempfile.TemporaryDirectory(prefix="metamatrix-resolve-") as folder:
            project = Path(folder) / "pyproject.toml"
            project.write_text(self._project(requirements, python, backend), encoding="utf-8")
            output = Path(folder) / "pylock.toml"
            arguments = ["pip", "compile", str(project), "--python-version", python, "--quiet"]
            arguments += ["--format", "pylock.toml", "-o", str(output), "--only-binary", ":all:", "--no-header"]
            if platform := self._target.for_uv():
                arguments += ["--python-platform", platform]
            if self._as_of is not None:
                arguments += ["--exclude-newer", self._as_of.isoformat()]
            answer = self._uv.run(arguments, cwd=Path(folder))
            text = output.read_text(encoding="utf-8") if output.exists() else ""
        message = answer.stderr.strip().replace(folder, "")
        if answer.status == 0:
            try:
                return Resolution(lock=read_lock(text, python, self._target))
            except ValueError as error:
                return Resolution(proof=str(error))
        if "No solution found" in message and not answer.transient:
            return Resolution(proof=message)
        return Resolution(fault=message or f"uv ended with status {answer.status}")

    def _project(self, requirements: list[str], python: str, backend: str) -> str:
        """A project file: only there can a single package be bound to an index of its own."""
        # Every string goes through json.dumps, whose output is valid TOML for these values.
        lines = [
            "[project]",
            'name = "request"',
            'version = "0"',
            f"requires-python = {json.dumps('>=' + python)}",
            f"dependencies = {json.dumps(requirements)}",
        ]
        index = self._index(backend)
        if index is not None:
            lines += ["", "[[tool.uv.index]]", 'name = "torch-builds"', f"url = {json.dumps(index)}", "explicit = true"]
            lines += ["", "[tool.uv.sources]"]
            lines += [f'{name} = {{ index = "torch-builds" }}' for name in _TORCH_FAMILY]
        return "\n".join(lines) + "\n"

    def _index(self, backend: str) -> str | None:
        """The torch index of a backend where it answers, asked once; None with a warning where it does not."""
        if backend not in self._indexes:
            url = self._torch_index.format(backend=backend)
            self._indexes[backend] = url if self._answers(url) else None
        return self._indexes[backend]

    def _answers(self, url: str) -> bool:
        if url.startswith("file:"):
            return True
        try:
            with urllib.request.urlopen(url.rstrip("/") + "/torch/", timeout=10) as response:  # noqa: S310
                return bool(response.status == 200)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            self.warnings.append(
                f"the torch index {url} does not answer ({reason}); torch comes from the default index instead"
            )
            return False
