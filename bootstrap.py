#!/usr/bin/env python3
"""Set up everything and run a nox session, on a machine that has only Python 3.11 or later and git.

    python3 bootstrap.py matrix          run the quick selection and write its pages
    python3 bootstrap.py tests           run the tests
    python3 bootstrap.py SESSION [ARG …]  any session of `nox -l`, with arguments for it

uv is taken from PATH, or installed into `.bootstrap/`; the locked development environment goes to `.venv/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
TOOLS = ROOT / ".bootstrap"
ENVIRONMENT = ROOT / ".venv"


def fail(what: str, remedy: str) -> None:
    """Say what is wrong and what to do next, and end."""
    sys.exit(f"bootstrap: {what}\n{remedy}")


def run(*command: str | Path, quiet: bool = False) -> bool:
    """Run a command in the checkout; whether it went well."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=ROOT, check=False, stdout=output, stderr=output).returncode == 0


def install_venv_package() -> bool:
    """Debian and Ubuntu keep ensurepip in a package of its own."""
    if shutil.which("apt-get") is None:
        return False
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if sudo and shutil.which("sudo") is None:
        return False
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    print(f"bootstrap: installing {package}, which this system keeps apart from Python", flush=True)
    return run(*sudo, "apt-get", "update", "-qq") and run(*sudo, "apt-get", "install", "-y", "-qq", package)


def find_uv() -> str:
    """The path of uv, installed first where it is missing."""
    found = shutil.which("uv")
    if found:
        return found
    own = TOOLS / "bin" / "uv"
    if not own.exists():
        # Without ensurepip, venv fails only after it has made half of the folder.
        if not run(sys.executable, "-m", "venv", "--clear", TOOLS, quiet=True) and not (
            install_venv_package() and run(sys.executable, "-m", "venv", "--clear", TOOLS)
        ):
            fail(
                "Python cannot make a virtual environment", "Install your system's python3-venv package, or uv itself."
            )
        if not run(TOOLS / "bin" / "python", "-m", "pip", "install", "--quiet", "uv"):
            fail("uv could not be installed", "Check the network and pip's index settings, or put uv on PATH.")
    return str(own)


def main() -> None:
    """Bring the environment up to date, then become nox."""
    if sys.version_info < (3, 11):
        fail(f"Python {sys.version.split()[0]} is too old", "Use Python 3.11 or later.")
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["--help"], ["-h"]) else 2)
    uv = find_uv()
    os.environ["UV_PROJECT_ENVIRONMENT"] = str(ENVIRONMENT)
    if not run(uv, "sync", "--frozen", "--quiet", "--compile-bytecode", "--python", sys.executable):
        fail(
            "the locked environment could not be installed", "Check the network and the index settings, then try again."
        )
    session, *arguments = sys.argv[1:]
    os.environ["PATH"] = os.pathsep.join([str(ENVIRONMENT / "bin"), str(Path(uv).parent), os.environ["PATH"]])
    nox = str(ENVIRONMENT / "bin" / "nox")
    os.chdir(ROOT)
    os.execv(nox, [nox, "-s", session, *(["--", *arguments] if arguments else [])])


if __name__ == "__main__":
    main()
