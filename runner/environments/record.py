"""What was really installed? Asked of the environment itself, after the installation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["inspect_environment"]

_SCRIPT = """
import json, os, platform, sys
from importlib import metadata
site = sys.argv[1]
found, urls = {}, {}
for dist in metadata.distributions(path=[site]):
    name = dist.metadata["Name"]
    found[name.lower().replace("_", "-").replace(".", "-")] = dist.version
    url = dist.read_text("direct_url.json")
    if url:
        urls[name] = json.loads(url)
build = ""
try:
    spec = next(d for d in metadata.distributions(path=[site]) if d.metadata["Name"] == "torch")
    build = [p for p in spec.files if p.name == "version.py"][0].read_text()
except Exception as error:
    build = "unknown: %r" % error
print(json.dumps({
    "installed": found, "direct_url": urls, "torch_build": build,
    "python": platform.python_version(), "platform": platform.platform(),
    "machine": platform.machine(), "libc": platform.libc_ver(),
    "interpreter": os.path.realpath(sys.executable),
}))
"""


def inspect_environment(python: Path, site: Path) -> dict[str, Any]:
    """Versions, `direct_url` of what did not come from an index, torch's own build facts, platform, Python patch.

    `-S`: what a wheel put into a `.pth` file must not run here, where the store can be written.

    Raises:
        subprocess.CalledProcessError: the interpreter does not run.
    """
    answer = subprocess.run([python, "-I", "-S", "-B", "-c", _SCRIPT, site], check=True, capture_output=True, text=True)
    record: dict[str, Any] = json.loads(answer.stdout)
    return record
