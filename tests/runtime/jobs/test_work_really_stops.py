"""A timeout, a cancel and a closing engine stop real processes, with all they started."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch import Engine, RunResult, Settings, Toolbox
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.runtime.nets import Nets
from anabranch.store.sqlite.store import SqliteStore
from hangs import PATIENCE

from ..support import file_of, playbook, run, step, until

FOREVER = "while true; do date +%s%N > {beat}; sleep 0.02; done"
CHILDREN = f"({FOREVER}) & ({FOREVER}) & {FOREVER}"
CODE = """
import subprocess, time
subprocess.Popen(["/bin/sh", "-c", {command!r}])
while True:
    time.sleep(0.02)
    open({beat!r}, "w").write("x")
"""


class Heart:
    """A file that work keeps writing to for as long as it lives."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def beats(self) -> bool:
        try:
            self.file.unlink()
        except FileNotFoundError:
            return False
        time.sleep(0.15)
        return self.file.exists()

    async def begin(self) -> None:
        await until(self.file.exists)


@pytest.fixture
def heart(tmp_path: Path) -> Iterator[Heart]:
    made = Heart(tmp_path / "beat")
    yield made
    assert not made.beats(), "something survived"


def tool(kind: str, heart: Heart) -> dict[str, str]:
    command = CHILDREN.format(beat=heart.file)
    if kind == "shell":
        return {"kind": "shell", "command": command}
    return {"kind": "python", "code": CODE.format(command=command, beat=str(heart.file))}


@pytest.mark.parametrize("kind", ["shell", "python"])
@pytest.mark.parametrize("where", ["task", "step"])
def test_a_timeout_stops_the_work(kind: str, where: str, heart: Heart) -> None:
    async def scenario(limit: float) -> RunResult:
        async with Engine(":memory:", toolbox=Toolbox()) as engine:
            one = {"step": "s", "tool": tool(kind, heart)}
            holder = one["tool"] if where == "task" else one.setdefault("spec", {})
            holder["timeout"] = f"{limit}s"  # type: ignore[index]
            result = await engine.wait(await engine.start(playbook(one)))
            began.append(heart.file.exists())
            await until(lambda: not heart.beats())
            return result

    began: list[bool] = []
    for limit in PATIENCE:
        result = run(scenario(limit))
        assert result.status == "failed"
        assert result.problem is not None
        assert result.problem["code"] == ("timeout" if where == "task" else "step_timeout")
        if began[-1]:
            break
    assert began[-1], "it never came to work"


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_cancel_stops_the_work_before_the_run_has_ended(kind: str, heart: Heart) -> None:
    async def scenario() -> RunResult:
        async with Engine(":memory:", toolbox=Toolbox()) as engine:
            name = await engine.start(playbook({"step": "s", "tool": tool(kind, heart)}))
            await heart.begin()
            await engine.cancel(name, reason="enough")
            result = await engine.wait(name)
            assert not heart.beats()
            return result

    assert run(scenario()).status == "cancelled"


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_closing_engine_stops_the_work_and_hands_it_back(
    kind: str, heart: Heart, tmp_path: Path
) -> None:
    async def scenario() -> None:
        settings = Settings(store=file_of(tmp_path), grace_seconds=0.1)
        async with Engine(settings=settings, toolbox=Toolbox()) as engine:
            name = await engine.start(playbook({"step": "s", "tool": tool(kind, heart)}))
            await heart.begin()
        assert not heart.beats()
        store = SqliteStore(Path(file_of(tmp_path)), read_only=True)
        try:
            kinds = [event.kind for event in Reader(store, Nets(store, compiler())).events(name)]
        finally:
            store.close()
        assert kinds[-2:] == ["job.lost", "job.scheduled"]

    run(scenario())


def test_a_timed_out_attempt_is_gone_before_long_and_the_next_one_counts(heart: Heart) -> None:
    async def scenario() -> RunResult:
        command = f'if [ -e {heart.file}.once ]; then echo "$ANABRANCH_KEY"; else '
        command += f"touch {heart.file}.once; {FOREVER.format(beat=heart.file)}; fi"
        retrying = step(
            "s",
            "shell",
            command=command,
            timeout="700ms",  # a busy machine may need more than that, and so several attempts
            spec={"retry": {"attempts": 1000, "delay": "1ms"}},
        )
        async with Engine(":memory:", toolbox=Toolbox()) as engine:
            return await engine.wait(await engine.start(playbook(retrying)))

    result = run(scenario())
    assert result.status == "completed"
    assert result.result["stdout"].strip() == f"{result.run}/1.0"


def test_a_tool_in_the_loop_is_cancelled_and_may_clean_up() -> None:
    box, began, cleaned = Toolbox(), asyncio.Event(), asyncio.Event()

    @box.tool("linger")
    async def linger() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned.set()

    async def scenario() -> RunResult:
        async with Engine(":memory:", toolbox=box) as engine:
            name = await engine.start(playbook(step("s", "linger")))
            await began.wait()
            await engine.cancel(name)
            result = await engine.wait(name)
            assert cleaned.is_set()
            return result

    assert run(scenario()).status == "cancelled"


def test_a_thread_that_cannot_be_stopped_keeps_nobody_waiting() -> None:
    box = Toolbox()
    begun, released = threading.Event(), threading.Event()

    @box.tool("stubborn")
    def stubborn() -> None:
        begun.set()
        released.wait(600)

    async def scenario() -> RunResult:
        async with Engine(":memory:", toolbox=box) as engine:
            name = await engine.start(playbook(step("s", "stubborn")))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            await engine.cancel(name)
            return await engine.wait(name)

    try:
        assert run(scenario()).status == "cancelled"  # and the engine is closed
        assert not released.is_set(), "the thread is still at it"
    finally:
        released.set()


def test_no_process_is_left_when_the_engine_is_closed() -> None:
    text = playbook(
        step("py", "python", "sh", code="import os; result = os.getpid()"),
        step("sh", "shell", command="echo $$"),
    )

    async def scenario() -> list[int]:
        async with Engine(":memory:", toolbox=Toolbox()) as engine:
            result = await engine.wait(await engine.start(text))
            return [result.steps["py"]["result"], int(result.steps["sh"]["result"]["stdout"])]

    for pid in run(scenario()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
