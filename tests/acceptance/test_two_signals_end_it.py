"""Two signals always end the process: with a blocked event loop, a stuck thread, a held lock."""

from __future__ import annotations

import json
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS
from surfaces.cli.commands.test_serve import serving
from surfaces.cli.support import HEAD, HELLO, Process, Terminal, beginning, until

pytestmark = pytest.mark.slow

#: Each says that it has begun, and never ends by itself.
TOOLS = """
import ctypes, itertools, time
import anabranch

def begun():
    open("begun", "w").close()

@anabranch.tool("loop")
async def loop():
    begun()
    while True:
        pass

@anabranch.tool("lock")
async def lock():
    # C code that keeps the interpreter lock and asks for no signals; the file is made under that
    # lock, too: a signal that is heard between the two would need a third one (docs/server.md).
    made = map(ctypes.PyDLL(None).creat, [b"begun"], [0o600])
    sum(itertools.chain(made, itertools.repeat(1)))

@anabranch.tool("thread")
def thread():
    begun()
    time.sleep(600)

@anabranch.tool("joined")
async def joined():
    import asyncio
    begun()
    await asyncio.to_thread(time.sleep, 600)  # which the interpreter waits for when it ends
"""
STUCK = ("loop", "lock", "thread", "joined")


def stuck(kind: str, pool: str = "") -> str:
    where = f"spec: {{pool: {pool}}}, " if pool else ""
    return (
        f"{HEAD}metadata: {{name: stuck}}\nworkflow: [{{step: s, {where}tool: {{kind: {kind}}}}}]\n"
    )


def ends_with_two(process: Process, number: int) -> None:
    process.interrupt(number)
    until(lambda: not pending(process, number))  # two of them that wait are one to the kernel
    process.interrupt(number)
    done = process.end()
    assert done.code in (130, -number), done  # `-number`: the kernel did it


def pending(process: Process, number: int) -> bool:
    """Whether the signal has not reached the process yet."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in status if line.startswith("ShdPnd:")]
    return bool(int(mask, 16) >> (number - 1) & 1)


def until_stuck(terminal: Terminal) -> None:
    until((terminal.folder / "begun").exists)


def post(url: str, body: Any) -> Any:
    asked = urllib.request.Request(
        f"{url}/api/v1/runs",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=HANG_SECONDS) as answer:
        return json.load(answer)


def begin(url: str, definition: str) -> None:
    """Ask for the run `s`; a server that is stuck in it may have no answer to that."""

    def ask() -> None:
        with suppress(OSError, HTTPException):
            post(url, {"definition": definition, "run": "s"})

    threading.Thread(target=ask, daemon=True).start()


@contextmanager
def stuck_server(terminal: Terminal, kind: str, verb: str = "serve") -> Iterator[Process]:
    terminal.write("stuck_tools.py", TOOLS)
    more = ("--no-browser", "--grace", 0.2) if verb == "dev" else ("--grace", 0.2)
    with serving(terminal, "--tools", "stuck_tools", *more, verb=verb) as server:
        for number in range(3):
            post(server.url, {"definition": HELLO, "run": f"h{number}"})
        begin(server.url, stuck(kind))
        until_stuck(terminal)
        yield server.process


@pytest.mark.parametrize(
    ("kind", "number"), [*((kind, signal.SIGTERM) for kind in STUCK), ("loop", signal.SIGINT)]
)
def test_a_server(kind: str, number: int, terminal: Terminal) -> None:
    with stuck_server(terminal, kind) as process:
        ends_with_two(process, number)
    for run in ("h0", "h1", "h2", "s"):  # nothing that was acknowledged is lost
        assert terminal.show(run)["name"] in ("hello", "stuck")


def test_dev(terminal: Terminal) -> None:
    with stuck_server(terminal, "loop", "dev") as process:
        ends_with_two(process, signal.SIGTERM)


@pytest.mark.parametrize("kind", ["loop", "lock", "joined"])
def test_run(kind: str, terminal: Terminal) -> None:
    terminal.write("stuck_tools.py", TOOLS)
    terminal.write("stuck.yaml", stuck(kind))
    words = ("run", "stuck.yaml", "--run-id", "s", "--tools", "stuck_tools")
    with beginning(terminal, *words) as process:
        until_stuck(terminal)
        ends_with_two(process, signal.SIGTERM)
    assert terminal.show("s")["status"] == "running"


@pytest.mark.parametrize("kind", ["loop", "joined"])
def test_a_worker(kind: str, terminal: Terminal) -> None:
    terminal.write("stuck_tools.py", TOOLS)
    with serving(terminal) as server:
        post(server.url, {"definition": stuck(kind, "gpu"), "run": "s"})
        words = ("worker", "--server", server.url, "--pool", "gpu", "--tools", "stuck_tools")
        with beginning(terminal, *words) as process:
            until_stuck(terminal)
            ends_with_two(process, signal.SIGTERM)
        server.process.interrupt()
        assert server.process.end().code == 0


def test_one_signal_is_enough_where_only_a_thread_is_stuck(terminal: Terminal) -> None:
    """The job is handed back; the thread does not keep the process."""
    with stuck_server(terminal, "thread") as process:
        process.interrupt(signal.SIGTERM)
        assert process.end().code == 0
    assert terminal.show("s")["status"] == "running"
