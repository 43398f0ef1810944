"""`metamatrix serve`: the pages of a folder in a browser, made anew while its matrix runs."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from metamatrix.answers_cache import state_of
from metamatrix.live import Live
from metamatrix.serving import is_loopback, make_server
from metamatrix.sources import is_run, read_source
from reports.publication import publish
from reports.wording import harmless
from runner.errors import InfrastructureError

__all__ = ["run_serve"]

_PAUSE = 5.0
"""Seconds between two looks at the folder, and ten times what the last build took: a run has the machine first."""


def run_serve(folder: Path, host: str, port: int) -> int:
    """Serve until Ctrl-C. Exit code 0.

    Raises:
        MetamatrixError: there is nothing to show.
        InfrastructureError: the address cannot be had.
    """
    with _site(folder) as (site, live):
        try:
            server = make_server(site, host, port, live.as_json if live is not None else None)
        except (OSError, UnicodeError) as error:
            raise InfrastructureError(
                f"{host}:{port} cannot be had: {error}", "Give another --port; 0 takes any that is free."
            ) from error
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{server.server_address[1]}/"
        print(f"pages: {address}index.html", flush=True)
        if live is not None:
            print(f"progress: {address}live.html", flush=True)
        if not is_loopback(host):
            print("everybody who reaches this machine can read them; Ctrl-C ends it", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            # A shell may have had SIGINT ignored, and SIGTERM would leave behind what was made aside.
            signal.signal(number, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")
        finally:
            server.server_close()
    return 0


@contextmanager
def _site(folder: Path) -> Iterator[tuple[Path, Live | None]]:
    """The folder with the pages; those of a run or a data set are made aside and go when this ends."""
    if not is_run(folder) and (folder / "index.html").exists():
        yield folder, None
        return
    live = Live(folder) if is_run(folder) else None
    with tempfile.TemporaryDirectory(prefix="metamatrix-serve-") as place:
        site = Path(place) / "site"
        with Console(stderr=True).status("making the pages"):
            _build(folder, site, live)
        if live is None:
            yield site, None
            return
        ended = threading.Event()
        keeper = threading.Thread(target=_keep_current, args=(folder, site, live, ended), daemon=True)
        keeper.start()
        try:
            yield site, live
        finally:
            ended.set()
            keeper.join()


def _build(folder: Path, site: Path, live: Live | None) -> None:
    _, kept, details = read_source(folder)
    publish([kept], site, details, live=live is not None)


def _keep_current(folder: Path, site: Path, live: Live, ended: threading.Event) -> None:
    """Make the pages anew when the folder has more, until it is over. A folder that cannot be read keeps its pages."""
    pause, told = _PAUSE, state_of(folder)
    while not ended.wait(pause):
        now = state_of(folder)
        if now == told:
            continue
        started = time.monotonic()
        try:
            _build(folder, site, live)
            told = now
        except Exception as error:  # whatever it is, it must not end the watching: it is told, and tried again
            print(harmless(f"the pages stay as they were: {error}"), flush=True)
        pause = max(_PAUSE, 10 * (time.monotonic() - started))
