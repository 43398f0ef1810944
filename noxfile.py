#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]", "packaging>=26.2", "pydantic>=2.10", "pyyaml>=6.0"]
# ///
"""The user's door: `nox -l` lists what can be done. Sessions call the command line, never one session per cell."""

from __future__ import annotations

import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from runner.matrix.expand import asked_environments, excluded_whatever_resolves  # noqa: E402
from runner.matrix.load import Matrix, load_matrix  # noqa: E402

nox.options.default_venv_backend = "uv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "tests"]
OUT = Path("out")


def install(session: nox.Session) -> None:
    """The locked development environment, hardlinked from uv's cache."""
    session.run_install(
        "uv",
        "sync",
        "--frozen",
        "--quiet",
        "--compile-bytecode",
        "--python",
        session.virtualenv.location,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location},
    )


def run_and_report(session: nox.Session, folder: Path, arguments: list[str]) -> None:
    """Run into a folder, then write its pages."""
    session.run("metamatrix", "run", "--output", str(folder), *arguments)
    session.run("metamatrix", "report", str(folder))


@nox.session
def tests(session: nox.Session) -> None:
    """Fast and slow tests; arguments go to pytest (`-- -m "not slow"` for the fast ones)."""
    install(session)
    session.run("pytest", "-m", "not nightly", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """Tests on old stacks: several GB to download."""
    install(session)
    session.run("pytest", "-m", "nightly", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, imports, spelling, workflows, and generated files."""
    install(session)
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")
    session.run("lint-imports")
    session.run("codespell", "runner", "reports", "metamatrix", "tests", "docs", "README.md", "CONTRIBUTING.md")
    session.run("zizmor", "--offline", "--persona", "pedantic", "--quiet", ".")
    session.run("metamatrix", "schema", "--check")


@nox.session
def matrix(session: nox.Session) -> None:
    """Run the quick selection and write its pages to out/quick; arguments replace `--select quick`."""
    install(session)
    run_and_report(session, OUT / "quick", session.posargs or ["--select", "quick"])


@nox.session
def image(session: nox.Session) -> None:
    """Make an image of one environment of out/quick that checks itself: `-- ID [--push NAME]`."""
    install(session)
    session.run("metamatrix", "image", "--output", str(OUT / "quick"), *session.posargs)


@nox.session
def clean(session: nox.Session) -> None:
    """Say what metamatrix holds that may go; `-- --disk-gb 20` removes it."""
    install(session)
    session.run("metamatrix", "clean", *(session.posargs or ["--dry-run"]))


@nox.session
def site(session: nox.Session) -> None:
    """Write the pages of out/quick again, or of the folder that is given."""
    install(session)
    session.run("metamatrix", "report", *(session.posargs or [str(OUT / "quick")]))


@nox.session
def serve(session: nox.Session) -> None:
    """Show the pages of out/quick in a browser, or of the folder that is given."""
    install(session)
    session.run("metamatrix", "serve", *(session.posargs or [str(OUT / "quick")]))


@nox.session
def bench(session: nox.Session) -> None:
    """What a cell costs (forked, warm, fresh), and what publishing and asking cost; `-- publish` only the latter."""
    install(session)
    if session.posargs != ["publish"]:
        session.run("python", "bench/bench.py", *session.posargs)
    session.run("python", "bench/publish.py")


def environment_names(matrix: Matrix) -> dict[str, dict[str, str]]:
    """Name -> what was asked: torch and diffusers, and as many further axes as make the names differ."""
    asked = [row for row in asked_environments(matrix) if not excluded_whatever_resolves(matrix, row)]
    axes = [axis for axis in ("torch", "diffusers") if any(axis in row for row in asked)]
    for axis in matrix.packages:
        names = ["-".join(f"{name}-{row[name]}" for name in axes if name in row) for row in asked]
        if len(set(names)) == len(names):
            break
        if axis not in axes and len({row.get(axis) for row in asked}) > 1:
            axes.append(axis)
    return {"-".join(f"{name}-{row[name]}" for name in axes if name in row): row for row in asked}


ENVIRONMENTS = environment_names(load_matrix(ROOT / "matrix.yaml"))


@nox.session
@nox.parametrize("name", [nox.param(name, id=name) for name in ENVIRONMENTS])
def env(session: nox.Session, name: str) -> None:
    """Run only this environment, as the nightly selection does."""
    install(session)
    select = "nightly and " + " and ".join(f"{axis} == {value}" for axis, value in ENVIRONMENTS[name].items())
    run_and_report(session, OUT / name, ["--select", select, *session.posargs])


if __name__ == "__main__":
    nox.main()
