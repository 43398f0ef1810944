"""How does a runner play a workflow? Enough of it to run our scripts: jobs by their needs, steps, variables, artifacts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.conftest import ROOT, variables

_NAME = re.compile(r"\b[a-z]+(?:\.[\w-]+)+")
_WHOLE = re.compile(r"\$\{\{(.*?)\}\}")
_OURS = ("VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "GITHUB_STEP_SUMMARY")
"""Variables of this test's own environment, which a runner does not have."""
Context = dict[str, Any]


def expression(text: str, context: Context, failed: bool = False) -> Any:
    """The value of an expression, without its braces. Only what our workflows use is known."""

    def look_up(found: re.Match[str]) -> str:
        value: Any = context
        for key in found[0].split("."):
            value = value.get(key, "") if isinstance(value, dict) else ""
        return repr(value)

    parts = re.split(r"('[^']*')", text)
    for index in range(0, len(parts), 2):
        part = _NAME.sub(look_up, parts[index]).replace("&&", " and ").replace("||", " or ")
        parts[index] = re.sub(r"!(?!=)", " not ", part)
    functions = {"always": lambda: True, "cancelled": lambda: False, "success": lambda: not failed}
    return eval("".join(parts).strip(), {"__builtins__": {}}, functions)


def filled(value: Any, context: Context) -> str:
    """A value of the file as a runner hands it on: expressions replaced, everything text."""
    return _WHOLE.sub(lambda found: _text(expression(found[1], context)), _text(value))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def holds(condition: str, context: Context, failed: bool) -> bool:
    """Whether an `if` holds; without `always()` or `cancelled()` nothing may have failed."""
    text = condition.strip().removeprefix("${{").removesuffix("}}")
    implied = not re.search(r"(always|cancelled|success)\(\)", text)
    return bool(expression(text, context, failed)) and not (implied and failed)


@dataclass
class Runner:
    """Plays the jobs of a workflow; `artifacts` is where they leave what others download."""

    workflow: dict[str, Any]
    root: Path
    repository: str = "Somebody/metamatrix"
    inputs: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    def play(self) -> None:
        """All jobs that have no result yet, each after those that it needs."""
        left = [name for name in self.workflow["jobs"] if name not in self.results]
        while left:
            name = next(name for name in left if not set(self._needs(name)) & set(left))
            left.remove(name)
            self.job(name)

    def _needs(self, name: str) -> list[str]:
        needs = self.workflow["jobs"][name].get("needs", [])
        return [needs] if isinstance(needs, str) else list(needs)

    def _ancestors(self, name: str) -> set[str]:
        own = self._needs(name)
        return set(own).union(*(self._ancestors(other) for other in own))

    def job(self, name: str) -> None:
        """One job, once for each value of its matrix."""
        job = self.workflow["jobs"][name]
        failed = any(self.results[other] != "success" for other in self._ancestors(name))
        needs = {n: {"result": self.results[n], "outputs": self.outputs.get(n, {})} for n in self._needs(name)}
        context: Context = {"needs": needs, "inputs": self.inputs, "vars": self.variables, "steps": {}}
        if not holds(job.get("if", "success()"), context, failed):
            self.results[name] = "skipped"
            return
        values = job.get("strategy", {}).get("matrix", {"": [""]})
        ((axis, members),) = values.items()
        ends = []
        for member in members:
            own = {**context, "steps": {}, "matrix": {axis: member}, "strategy": {"job-total": len(members)}}
            ends.append(self._steps(f"{name}-{member}" if axis else name, job, own))
            self.outputs[name] = {key: filled(text, own) for key, text in job.get("outputs", {}).items()}
        self.results[name] = "success" if all(ends) else "failure"

    def _steps(self, name: str, job: dict[str, Any], context: Context) -> bool:
        workspace, temp = self.root / name / "workspace", self.root / name / "temp"
        for folder in (workspace, temp):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.said[name] = ""
        failed = False
        for number, step in enumerate(job["steps"]):
            if not holds(step.get("if", "success()"), context, failed):
                continue
            if "run" in step:
                good = self._script(name, number, step, context, workspace, temp)
            else:
                good = self._action(step, context, workspace)
            failed = failed or not good
        return not failed

    def _script(
        self, name: str, number: int, step: dict[str, Any], context: Context, workspace: Path, temp: Path
    ) -> bool:
        files = {key: temp / f"{key.lower()}-{number}" for key in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")}
        files["GITHUB_STEP_SUMMARY"] = temp / f"summary-{number}"
        for path in files.values():
            path.touch()
        own = {key: value for key, value in variables().items() if key not in _OURS and key != "METAMATRIX_ISOLATION"}
        environment = {
            **own,
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), own["PATH"]]
            ),  # uv, which an action would install
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": self.repository,
            "GITHUB_WORKSPACE": str(workspace),
            "RUNNER_TEMP": str(temp),
            "RUNNER_OS": "Linux",
            **{key: str(path) for key, path in files.items()},
        }
        for scope in (self.workflow, self.workflow["jobs"][name.partition("-")[0]], step):
            environment |= {key: filled(value, context) for key, value in scope.get("env", {}).items()}
        script = temp / f"step-{number}.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=workspace,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=900,
        )
        self.said[name] += done.stdout
        lines = files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines()
        if "id" in step:
            context["steps"][step["id"]] = {"outputs": dict(line.split("=", 1) for line in lines)}
        return done.returncode == 0

    def _action(self, step: dict[str, Any], context: Context, workspace: Path) -> bool:
        action = step["uses"].partition("@")[0]
        inputs = {key: filled(value, context) for key, value in step.get("with", {}).items()}
        match action:
            case "actions/checkout":
                _check_out(workspace)
            case "actions/upload-artifact":
                return self._upload(
                    inputs["name"], workspace / inputs["path"], inputs.get("if-no-files-found") == "error"
                )
            case "actions/upload-pages-artifact":
                return self._upload("github-pages", workspace / inputs["path"], True)
            case "actions/download-artifact" if "name" in inputs:
                if not (self.artifacts / inputs["name"]).is_dir():
                    return False
                shutil.copytree(self.artifacts / inputs["name"], workspace / inputs["path"], dirs_exist_ok=True)
            case "actions/download-artifact":
                for found in sorted(self.artifacts.glob(inputs["pattern"])):
                    shutil.copytree(found, workspace / inputs["path"] / found.name)
            case "astral-sh/setup-uv" | "actions/deploy-pages":
                pass
            case _:
                raise AssertionError(f"this runner does not know {action}")
        return True

    def _upload(self, name: str, path: Path, must: bool) -> bool:
        """As the action does: without hidden files, replacing what has that name."""
        if not path.exists():
            return not must
        shutil.rmtree(self.artifacts / name, ignore_errors=True)
        shutil.copytree(path, self.artifacts / name, ignore=shutil.ignore_patterns(".*"))
        return True


def _check_out(workspace: Path) -> None:
    """The files of this tree that git does not ignore, as they are now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, workspace / name)
