"""Work that misbehaves on purpose: every time a clear answer, in time, and with bounded memory."""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import Any

import pytest

from anabranch.kernel.values import Answer
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.commands.shell import Shell
from anabranch.work.kinds.http.performer import Http
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.threads import Threads
from anabranch.work.port import Performer

from ..support import fault_of, gone, perform, run, task

FLOOD_BYTES = 256 << 20
FLOOD = "import sys\nfor _ in range(256): sys.stdout.write('x' * (1 << 20))\nprint('the end')\n1/0"


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("part", ["status line", "headers", "body"])
def test_a_server_that_drips_is_left_after_the_time_of_the_task(part: str) -> None:
    """However slowly the bytes come, and wherever in the answer, the total time holds."""
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 999\r\n\r\n" + b"x" * 999
    )
    begin = {"status line": 0, "headers": 20, "body": answer.index(b"\r\n\r\n") + 4}[part]
    hung_up = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer[:begin])
        try:
            for byte in answer[begin:]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass
        finally:
            hung_up.set()
            writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        http = Http()
        job = task("http", url=f"http://127.0.0.1:{port}/", timeout="400ms")
        fault = fault_of(await http.perform(job))
        assert (fault.kind, fault.code, fault.retryable) == ("timeout", "TIMEOUT", True)
        await hung_up.wait()
        await http.close()
        server.close()

    run(scenario())


def python_does(code: str, **inputs: Any) -> tuple[Answer, tuple[int, ...]]:
    async def scenario() -> tuple[Answer, tuple[int, ...]]:
        python = Python(ProcessOptions(limit=1, grace_seconds=0.2))
        try:
            answer = await python.perform(task("python", code=code, **inputs))
            return answer, python.pids
        finally:
            await python.close()

    answer, pids = run(scenario())
    assert gone(*pids)
    return answer, pids


@pytest.mark.parametrize(
    "code",
    [
        "while True: print('x' * 4096)",
        "import time\nwhile True: time.sleep(1)",
        "import os, time\nwhile True:\n  os.fork()\n  time.sleep(0.2)",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
        "def main():\n  return main.__code__ and __import__('threading').Event().wait()",
    ],
    ids=[
        "prints for ever",
        "sleeps for ever",
        "forks for ever",
        "ignores signals",
        "waits for ever",
    ],
)
def test_code_that_never_returns_is_ended(code: str) -> None:
    answer, _ = python_does(code, timeout="500ms")
    fault = fault_of(answer)
    assert (fault.kind, fault.code) == ("timeout", "TIMEOUT")


@pytest.mark.slow
def test_a_flood_of_output_is_neither_kept_nor_waited_for() -> None:
    before = peak_megabytes()
    answer, _ = python_does(FLOOD)
    details = fault_of(answer).details
    assert details["output_bytes"] > FLOOD_BYTES
    assert details["output"].rstrip().endswith("the end")
    command = f"head -c {FLOOD_BYTES} /dev/zero; echo end"
    shell = run(perform(Shell(), task("shell", command=command)))
    assert shell.result["stdout"].endswith("end\n")
    assert peak_megabytes() - before < 60


@pytest.mark.parametrize("kind", ["thread", "loop", "here"])
def test_a_tool_that_ends_the_process_does_not(kind: str) -> None:
    box = Toolbox()
    if kind == "loop":

        @box.tool("leave")
        async def leave_later() -> None:
            sys.exit(3)

    else:

        @box.tool("leave", blocking=kind == "thread")
        def leave() -> None:
            sys.exit(3)

    async def scenario() -> Answer:
        threads = Threads(1)
        try:
            performer: Performer = box.performers(threads)["leave"]
            return await perform(performer, task("leave"))
        finally:
            await threads.close()

    assert fault_of(run(scenario())).message == "SystemExit: 3"
