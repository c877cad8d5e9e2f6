"""An entry for the tests of backends: what `anabranch.pools.worker_entry` is to an engine, with
deeds that are small, and some that no entry should do.

A blob is a line of JSON that says what to do, and then any bytes.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

from anabranch.version import __version__

_stops: dict[str, threading.Event] = {}

PAUSE_SECONDS = 0.02


def blob(do: str, ticket: str, payload: bytes = b"", **words: Any) -> bytes:
    return json.dumps({"do": do, "ticket": ticket, **words}).encode() + b"\n" + payload


def perform(given: bytes, tell: Any) -> Any:
    head, _, payload = given.partition(b"\n")
    said = json.loads(head)
    stop = _stops.setdefault(said["ticket"], threading.Event())
    try:
        return _DEEDS[said["do"]](said, payload, tell, stop)
    finally:
        del _stops[said["ticket"]]


def stop(tickets: list[str]) -> None:
    for ticket in tickets:
        _stops.setdefault(ticket, threading.Event()).set()


def probe() -> dict[str, str]:
    """As the environment wants it: a test makes a worker look like another one."""
    return {
        "python": os.environ.get("DEEDS_PYTHON") or platform.python_version(),
        "anabranch": os.environ.get("DEEDS_ANABRANCH") or __version__,
        "platform": platform.platform(),
        "name": platform.node(),
        "process": str(os.getpid()),
    }


def _echo(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """Give back what came, and leave a line in `file`."""
    tell("started", b"")
    _note(said)
    return payload


def _count(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    tell("started", b"")
    for number in range(said["to"]):
        tell("progress", b"%d" % number)
    return b"counted"


def _wait(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """Until it is told to stop, or `gate` exists. Tells the id of its process."""
    tell("started", b"")
    _note(said)
    tell("progress", b"%d" % os.getpid())
    while not stop.is_set():
        if Path(said["gate"]).exists():
            return b"went on"
        time.sleep(PAUSE_SECONDS)
    _note(said, " stopped")
    return b"stopped"


def _deaf(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """Until `gate` exists, whatever it is told."""
    return _wait(said, payload, tell, threading.Event())


def _die(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    tell("started", b"")
    _note(said)
    os._exit(9)


def _die_unseen(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """Before it has told that it started."""
    _note(said)
    os._exit(9)


def _large(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    tell("started", b"")
    return bytes(said["size"])


def _unsendable(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> Any:
    tell("started", b"")
    return lambda: payload


def _break(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    tell("started", b"")
    raise LookupError("this entry is broken")


def _note(said: Any, more: str = "") -> None:
    """A line in a file is a thing done that can be counted."""
    if "file" in said:
        with Path(said["file"]).open("a") as file:
            file.write(f"{said['ticket']}{more}\n")


_DEEDS = {
    "echo": _echo,
    "count": _count,
    "wait": _wait,
    "deaf": _deaf,
    "die": _die,
    "die unseen": _die_unseen,
    "large": _large,
    "unsendable": _unsendable,
    "break": _break,
}
