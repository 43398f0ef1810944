"""What was really installed? Asked of the environment itself, after the installation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["inspect_environment"]

_SCRIPT = """
import json, platform, sys, sysconfig
from importlib import metadata
found, urls = {}, {}
for dist in metadata.distributions():
    name = dist.metadata["Name"]
    found[name.lower().replace("_", "-").replace(".", "-")] = dist.version
    url = dist.read_text("direct_url.json")
    if url:
        urls[name] = json.loads(url)
build = ""
try:
    spec = next(d for d in metadata.distributions() if d.metadata["Name"] == "torch")
    build = [p for p in spec.files if p.name == "version.py"][0].read_text()
except Exception as error:
    build = "unknown: %r" % error
print(json.dumps({
    "installed": found, "direct_url": urls, "torch_build": build,
    "python": platform.python_version(), "platform": platform.platform(),
    "machine": platform.machine(), "libc": platform.libc_ver(), "site": sysconfig.get_path("purelib"),
}))
"""


def inspect_environment(python: Path) -> dict[str, Any]:
    """Versions, `direct_url` of what did not come from an index, torch's own build facts, platform, Python patch.

    Raises:
        subprocess.CalledProcessError: the interpreter does not run.
    """
    answer = subprocess.run([python, "-I", "-B", "-c", _SCRIPT], check=True, capture_output=True, text=True)
    record: dict[str, Any] = json.loads(answer.stdout)
    return record
