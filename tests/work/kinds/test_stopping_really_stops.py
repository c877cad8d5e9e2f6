"""Timeouts, cancels and the death of the engine end every process a task has started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from anabranch.work.kind_options import ProcessOptions, ShellOptions
from anabranch.work.kinds.commands.shell import Shell
from anabranch.work.kinds.python.performer import Python
from anabranch.work.port import Performer
from hangs import PATIENCE
from seeds import seeds

from ..support import alive, fault_of, gone, perform, run, task, written

STUBBORN_PYTHON = """
import os, signal, subprocess
if ignore:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "300"])
with open(path, "w") as file:
    file.write(f"{os.getpid()} {child.pid} ")
while True:
    pass
"""
STUBBORN_SHELL = """
if [ -n "$IGNORE" ]; then trap '' TERM; fi
sleep 300 & echo "$$ $! " > "$PATH_OF_PIDS"; sleep 301; sleep 302
"""


def python() -> Python:
    return Python(ProcessOptions(limit=1, grace_seconds=0.2))


def shell() -> Shell:
    return Shell(ShellOptions(grace_seconds=0.2))


def inputs_for(performer: Performer, path: Path, ignore: bool) -> dict[str, Any]:
    if isinstance(performer, Python):
        return {"code": STUBBORN_PYTHON, "args": {"path": str(path), "ignore": ignore}}
    env = {"PATH_OF_PIDS": str(path), "IGNORE": "yes" if ignore else ""}
    return {"command": STUBBORN_SHELL, "env": env}


KINDS = pytest.mark.parametrize("make", [python, shell])
IGNORING = pytest.mark.parametrize("ignore", [False, True], ids=["obeys", "ignores SIGTERM"])


@KINDS
@IGNORING
def test_a_cancel_returns_when_everything_is_gone(make: Any, ignore: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        performer = make()
        path = tmp_path / "pids"
        job = task(**inputs_for(performer, path, ignore))
        work = asyncio.ensure_future(perform(performer, job))
        pids = await written(path, 2)
        assert all(alive(pid) for pid in pids)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not any(alive(pid) for pid in pids)
        if isinstance(performer, Python):
            again = await performer.perform(task(code="return 'healthy'"))
            assert again.result == "healthy"
            await performer.close()

    run(scenario())


@KINDS
def test_a_second_cancel_does_not_hurry_it_past_the_cleaning(make: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        performer = make()
        path = tmp_path / "pids"
        job = task(**inputs_for(performer, path, True))
        work = asyncio.ensure_future(perform(performer, job))
        pids = await written(path, 2)
        for _ in range(3):
            work.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not any(alive(pid) for pid in pids)
        if isinstance(performer, Python):
            await performer.close()

    run(scenario())


@KINDS
def test_its_own_timeout_stops_a_task(make: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        performer = make()
        path = tmp_path / "pids"
        for seconds in (0.4, 2, 10, 50):  # a busy machine may not come to the second process
            job = task(timeout=f"{seconds}s", **inputs_for(performer, path, False))
            fault = fault_of(await perform(performer, job))
            assert (fault.kind, fault.code, fault.retryable) == ("timeout", "TIMEOUT", True)
            assert f"longer than {seconds:g} s" in fault.message
            if path.exists() and len(path.read_text().split()) == 2:
                break
        assert not any(alive(pid) for pid in await written(path, 2))
        if isinstance(performer, Python):
            await performer.close()

    run(scenario())


def test_closing_ends_a_job_that_still_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        performer = python()
        path = tmp_path / "pids"
        work = asyncio.ensure_future(performer.perform(task(**inputs_for(performer, path, False))))
        pids = await written(path, 2)
        await performer.close()
        assert "ended by SIGTERM" in fault_of(await work).message
        assert not any(alive(pid) for pid in pids)
        with pytest.raises(RuntimeError, match="closed"):
            await performer.perform(task(code="return 1"))

    run(scenario())


ENGINE = """
import asyncio, sys
from anabranch.work.port import Task
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.commands.shell import Shell

def job(**inputs):
    return Task(run="r", step="s", job="j", attempt=1, key="k", kind="x", inputs=inputs)

async def main(folder):
    python_code, shell_code = (open(f"{folder}/{name}").read() for name in ("python", "shell"))
    idle = Python()
    await idle.perform(job(code="open(path, 'w').write(str(__import__('os').getpid()))",
                           args={"path": f"{folder}/idle.pid"}))
    await asyncio.gather(
        Python().perform(job(code=python_code,
                             args={"path": f"{folder}/python.pid", "ignore": True})),
        Shell().perform(job(command=shell_code,
                            env={"PATH_OF_PIDS": f"{folder}/shell.pid", "IGNORE": "yes"})))

asyncio.run(main(sys.argv[1]))
"""


def test_kill_9_of_the_engine_takes_its_processes_along(tmp_path: Path) -> None:
    (tmp_path / "python").write_text(STUBBORN_PYTHON)
    (tmp_path / "shell").write_text(STUBBORN_SHELL)
    engine = subprocess.Popen([sys.executable, "-c", textwrap.dedent(ENGINE), str(tmp_path)])

    async def pids() -> list[int]:
        found = await written(tmp_path / "idle.pid")
        return (
            found
            + await written(tmp_path / "python.pid", 2)
            + await written(tmp_path / "shell.pid", 2)
        )

    try:
        everyone = run(pids())
        assert all(alive(pid) for pid in everyone)
    finally:
        engine.kill()
        engine.wait()
    assert len(everyone) == 5
    assert gone(*everyone)


@pytest.mark.slow
def test_many_cancels_at_random_instants_leave_nothing() -> None:
    async def scenario() -> None:
        performer = Python(ProcessOptions(limit=4, grace_seconds=0.2))
        pids: set[int] = set()
        for round_number in seeds(200, least=20):
            jobs = [
                asyncio.ensure_future(performer.perform(task(code="return 1"))) for _ in range(8)
            ]
            await asyncio.sleep((round_number % 20) * 0.003)
            pids.update(performer.pids)
            for job in jobs[::2]:
                job.cancel()
            answers = await asyncio.gather(*jobs, return_exceptions=True)
            for answer in answers[1::2]:
                assert not isinstance(answer, BaseException)
                assert answer.result == 1
            assert len(performer.pids) <= 4
        await performer.close()
        assert gone(*pids)

    run(scenario())


MOVED_AWAY = {
    "shell, setsid": ("shell", "setsid sh -c 'echo $$ >> $PIDS; exec sleep 300' & wait; sleep 300"),
    "shell, a daemon": (
        "shell",
        "(setsid sh -c 'sh -c \"echo \\$\\$ >> $PIDS; exec sleep 300\" &' &); sleep 300",
    ),
    "shell, without its environment": (
        "shell",
        'env -i setsid sh -c "echo \\$\\$ >> $PIDS; exec sleep 300" & sleep 300',
    ),
    "python, a daemon": (
        "python",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(path, "a") as file:
            file.write(f"{os.getpid()} ")
        time.sleep(300)
    os._exit(0)
time.sleep(300)
""",
    ),
}


async def run_out_of_time(performer: Performer, given: dict[str, Any], path: Path) -> list[int]:
    """The processes that moved away, some time before the task was out of time."""
    for seconds in PATIENCE[:-1]:  # a busy machine may not come to the process that moves away
        fault = fault_of(await perform(performer, task(timeout=f"{seconds}s", **given)))
        assert fault.kind == "timeout"
        if path.exists() and path.read_text().split():
            break
    return await written(path, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="found by what /proc tells")
@pytest.mark.parametrize("how", ["cancelled", "out of time"])
@pytest.mark.parametrize(("kind", "code"), MOVED_AWAY.values(), ids=list(MOVED_AWAY))
def test_a_process_that_left_its_session_is_ended_with_its_task(
    kind: str, code: str, how: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        performer: Any = python() if kind == "python" else shell()
        path = tmp_path / "pids"
        given: dict[str, Any] = {"code": code, "args": {"path": str(path)}}
        if kind == "shell":
            given = {"command": code, "env": {"PIDS": str(path)}}
        if how == "out of time":
            pids = await run_out_of_time(performer, given, path)
        else:
            work = asyncio.ensure_future(perform(performer, task(**given)))
            pids = await written(path, 1)
            assert alive(pids[0])
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert gone(*pids)
        if isinstance(performer, Python):
            await performer.close()

    run(scenario())


def test_a_process_that_left_its_session_outlives_a_task_that_ends_well(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "pids"
        command = "setsid sh -c 'echo $$ > $PIDS; exec sleep 300' & until [ -s $PIDS ]; do :; done"
        answer = await perform(shell(), task(command=command, env={"PIDS": str(path)}))
        assert answer.status == "ok", answer
        (pid,) = await written(path, 1)
        try:
            assert alive(pid)
        finally:
            os.kill(pid, signal.SIGKILL)

    run(scenario())
