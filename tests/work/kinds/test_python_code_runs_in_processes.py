"""Inline code cannot hurt the engine: whatever it does, there is an answer and a healthy pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.python.performer import Python
from hangs import PATIENCE

from ..support import fault_of, gone, open_descriptors, run, task

T = TypeVar("T")


def with_python(scenario: Callable[[Python], Awaitable[T]], **options: Any) -> T:
    """Runs a scenario and sees to it that nothing is left of it."""

    async def guarded() -> T:
        python = Python(ProcessOptions(**{"limit": 1, "grace_seconds": 0.3, **options}))
        try:
            return await scenario(python)
        finally:
            pids = python.pids
            await python.close()
            assert python.pids == ()
            assert gone(*pids)

    return run(guarded())


async def code(python: Python, text: str, **inputs: Any) -> Answer:
    return await python.perform(task("python", code=text, **inputs))


def test_arguments_context_and_libraries_reach_the_process() -> None:
    async def scenario(python: Python) -> None:
        job = task(
            "python",
            code="def main(a, region, workload):\n    return [a, region, workload, m.floor(1.5)]",
            args={"a": 1},
            libs={"m": "math"},
            names={"region": "eu", "workload": {"n": [1, None, "é"]}},
        )
        assert (await python.perform(job)).result == [1, "eu", {"n": [1, None, "é"]}, 1]
        assert (await code(python, "return context['workload']")).result == {}

    with_python(scenario)


def test_a_process_is_used_again_with_fresh_globals() -> None:
    async def scenario(python: Python) -> None:
        soil = """
import os, sys
leftover = 1
os.environ["SOILED"] = "yes"
os.chdir("/")
sys.path.insert(0, "/nowhere")
sys.stdout = None
result = os.getpid()
"""
        look = """
import os, sys
result = [os.getpid(), "leftover" in globals(), "SOILED" in os.environ, os.getcwd() == "/",
          "/nowhere" in sys.path, sys.stdout is None]
"""
        pid = (await code(python, soil)).result
        assert (await code(python, look)).result == [pid, False, False, False, False, False]

    with_python(scenario)


def test_a_process_is_replaced_after_its_share_of_jobs() -> None:
    async def scenario(python: Python) -> list[int]:
        return [(await code(python, "import os\nreturn os.getpid()")).result for _ in range(5)]

    pids = with_python(scenario, recycle_after=2)
    assert [pids[0] == pids[1], pids[2] == pids[3]] == [True, True]
    assert len(set(pids)) == 3
    assert gone(*pids)


BROKEN = {
    "sys.exit": ("import sys\nsys.exit(3)", "the code called sys.exit(3)"),
    "os._exit": ("import os\nos._exit(4)", "ended its process with exit status 4"),
    "segfault": ("import ctypes\nctypes.string_at(0)", "ended by SIGSEGV"),
    "kill": ("import os\nos.kill(os.getpid(), 9)", "ended by SIGKILL (out of memory, perhaps)"),
    "descriptors": ("import os\nos.closerange(3, 9999)", "closed the channel"),
    "slow end": (
        "import os, time\nos.closerange(3, 9999)\ntime.sleep(0.7)\nos._exit(5)",
        "ended its process with exit status 5",
    ),
    "garbage": (
        "import os\nfor n in range(3, 9999):\n try: os.write(n, b'x' * 99)\n except OSError: pass",
        "closed the channel",
    ),
    "memory": ("x = bytearray(10**12)", "MemoryError"),
    "object": ("result = object()", "is not JSON"),
    "nan": ("result = [float('nan')]", "result[0] is nan"),
    "circle": ("result = []\nresult.append(result)", "contains itself"),
    "deep": ("result = []\nfor _ in range(10**5): result = [result]", "levels deep"),
    "large": (
        "result = 'x' * 2_000_000",
        "the limit is 1,000,000 (setting ANABRANCH_RESULT_BYTES_MAX)",
    ),
    "recursion": ("def f(): f()\nf()", "RecursionError"),
    "error": ("return {'status': 'error', 'message': 'sold out'}", "sold out"),
}


def test_nothing_the_code_does_breaks_the_pool() -> None:
    async def scenario(python: Python) -> dict[str, Fault]:
        faults = {}
        for name, (text, _) in BROKEN.items():
            faults[name] = fault_of(await code(python, text))
            assert (await code(python, "return a", args={"a": name})).result == name
        return faults

    faults = with_python(scenario, result_bytes=1_000_000)
    for name, (_, words) in BROKEN.items():
        assert words in faults[name].message, name
    assert faults["os._exit"].details["exit_code"] == 4
    assert 'File "ship", line 2' in faults["segfault"].details["output"]
    kinds = {name: faults[name].kind for name in ("memory", "object", "large", "error")}
    assert kinds == {
        "memory": "resource",
        "object": "result",
        "large": "result",
        "error": "tool_error",
    }


def test_memory_can_be_limited() -> None:
    async def scenario(python: Python) -> Fault:
        return fault_of(await code(python, "x = []\nwhile True: x.append(bytearray(10**7))"))

    fault = with_python(scenario, memory_bytes=400 * 1024 * 1024)
    assert fault.message == "MemoryError"
    assert fault.details["line"] == 2


def test_a_fork_answers_once_and_leaves_no_process() -> None:
    async def scenario(python: Python) -> None:
        text = """
import os, time
child = os.fork()
if child == 0:
    if linger:
        time.sleep(60)
    result = "from the child"
else:
    result = child
"""
        for linger in (False, True):
            answer = await code(python, text, args={"linger": linger})
            assert isinstance(answer.result, int), answer
            assert await asyncio.to_thread(gone, answer.result)
        assert (await code(python, "return 1")).result == 1

    with_python(scenario)


def test_threads_and_processes_left_behind_retire_the_process() -> None:
    async def scenario(python: Python) -> None:
        thread = (
            "import os, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()"
        )
        child = "import os, subprocess\nchild = subprocess.Popen(['sleep', '60']).pid"
        first = (await code(python, f"{thread}\nresult = os.getpid()")).result
        second = (await code(python, f"{child}\nresult = [os.getpid(), child]")).result
        third = (await code(python, "import os\nreturn os.getpid()")).result
        assert len({first, second[0], third}) == 3
        assert await asyncio.to_thread(gone, first, *second)

    with_python(scenario)


def test_closed_streams_do_not_reach_the_next_job() -> None:
    async def scenario(python: Python) -> None:
        for text in ("import sys\nsys.stdout.close()", "import sys\nsys.stderr = 5\nreturn 1"):
            assert (await code(python, text)).status == "ok"
            later = await code(python, "import sys\nprint(1)\nprint(2, file=sys.stderr)\n1/0")
            assert sorted(fault_of(later).details["output"].split()) == ["1", "2"]

    with_python(scenario)


def test_waiting_for_a_free_process_is_not_running_time() -> None:
    async def ended(python: Python, limit: float) -> bool:
        long = asyncio.ensure_future(code(python, f"import time\ntime.sleep({limit + 0.1})"))
        await asyncio.sleep(0)
        answer = await code(python, "return 1", timeout=limit)
        await long
        return bool(answer.result == 1)

    assert any(with_python(partial(ended, limit=limit)) for limit in PATIENCE)


def test_an_alarm_does_not_reach_the_next_job() -> None:
    async def scenario(python: Python) -> None:
        pid = (await code(python, "import os, signal\nsignal.alarm(1)\nreturn os.getpid()")).result
        later = await code(python, "import os, time\ntime.sleep(1.1)\nreturn os.getpid()")
        assert later.result == pid

    with_python(scenario)


def test_output_is_kept_with_a_failure_and_logged_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(python: Python) -> Fault:
        talk = (
            "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.system('echo sub')\n"
        )
        with caplog.at_level(logging.DEBUG, "anabranch.work.python"):
            assert (await code(python, f"{talk}result = 1")).result == 1
        return fault_of(await code(python, f"{talk}1/0"))

    fault = with_python(scenario)
    assert sorted(fault.details["output"].split()) == ["err", "out", "sub"]
    assert fault.details["output_bytes"] == 12
    assert "step ship printed" in caplog.text


def test_a_flood_of_output_neither_blocks_nor_stays() -> None:
    async def scenario(python: Python) -> Fault:
        flood = "for _ in range(10_000): print('x' * 1023)\nprint('the end')\n1/0"
        return fault_of(await code(python, flood))

    fault = with_python(scenario)
    assert fault.details["output_bytes"] == 10_240_008
    assert len(fault.details["output"]) == 64 * 1024
    assert fault.details["output"].endswith("the end\n")


def test_large_values_travel_both_ways() -> None:
    async def scenario(python: Python) -> None:
        text = "x" * 3_000_000
        answer = await code(python, "return text + '!'", args={"text": text})
        assert answer.result == text + "!"

    with_python(scenario)


def test_jobs_wait_for_a_free_process_in_order() -> None:
    async def scenario(python: Python) -> None:
        text = "import os, time\ntime.sleep(0.02)\nreturn [n, os.getpid()]"
        answers = await asyncio.gather(*(code(python, text, args={"n": n}) for n in range(10)))
        assert [answer.result[0] for answer in answers] == list(range(10))
        assert len({answer.result[1] for answer in answers}) == 2
        assert len(python.pids) == 2

    with_python(scenario, limit=2)


def test_bad_inputs_start_nothing() -> None:
    async def scenario(python: Python) -> None:
        for inputs in ({}, {"code": 1}, {"code": "1", "args": 3}, {"code": "1", "timeout": "x"}):
            assert fault_of(await python.perform(task("python", **inputs))).kind == "config"
        strange = task("python", code="return context", names={"x": object()})
        assert "not JSON" in fault_of(await python.perform(strange)).message
        assert python.pids == ()

    with_python(scenario)


def test_no_descriptor_is_left_open() -> None:
    async def scenario(python: Python) -> None:
        for text in ("return 1", "import os\nos._exit(1)", "while True: pass"):
            await code(python, text, timeout=0.2)

    with_python(scenario)
    before = open_descriptors()
    with_python(scenario)
    assert open_descriptors() == before
