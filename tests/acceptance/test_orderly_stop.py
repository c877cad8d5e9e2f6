"""SIGTERM and SIGINT stop in order: jobs finish or are handed back, nothing is lost or left."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.kernel.events import JobLost, JobReported
from hangs import HANG_SECONDS
from surfaces.cli.support import HEAD, Process, Terminal, alive, beginning, sleeper, until

from .log import read_story

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 120  # for a stop; the work itself would take ten minutes

#: Work of every kind that takes its time, each with a process or thread of its own.
ALL_KINDS = f"""{HEAD}metadata: {{name: kinds}}
workflow:
  - step: fork
    tool: {{kind: noop}}
    next:
      spec: {{mode: inclusive}}
      arcs: [{{step: by_shell}}, {{step: by_code}}, {{step: by_thread}}, {{step: by_loop}}]
  - step: by_shell
    tool:
      kind: shell
      command: "echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 600' & sleep 600"
  - step: by_code
    tool:
      kind: python
      code: |
        import os, subprocess, time
        child = subprocess.Popen(["sleep", "600"])
        open("pids", "a").write(f"{{os.getpid()}}\\n{{child.pid}}\\n")
        time.sleep(600)
  - step: by_thread
    tool: {{kind: thread}}
  - step: by_loop
    tool: {{kind: loop}}
"""

TOOLS = """
import asyncio, time
import anabranch

@anabranch.tool("thread")
def thread():
    open("pids", "a").write("")
    time.sleep(600)

@anabranch.tool("loop")
async def loop():
    await asyncio.sleep(600)
"""


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def until_asleep(terminal: Terminal, count: int = 1) -> None:
    until(lambda: len(pids(terminal.folder)) >= count)


@contextmanager
def all_kinds(terminal: Terminal, *more: str) -> Iterator[Process]:
    """An engine with work of all kinds out."""
    terminal.write("kinds.yaml", ALL_KINDS)
    terminal.write("slow_tools.py", TOOLS)
    words = ("run", "kinds.yaml", "--run-id", "k", "--tools", "slow_tools", *more)
    with beginning(terminal, *words) as process:
        until_asleep(terminal, 4)
        yield process


def stop(process: Process, number: int) -> None:
    process.interrupt(number)
    process.wait(LIMIT_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_ends_within_the_grace_is_finished(terminal: Terminal, number: int) -> None:
    terminal.write("sleeper.yaml", sleeper(1))
    with beginning(terminal, "run", "sleeper.yaml", "--run-id", "s", "--json") as process:
        until_asleep(terminal)
        stop(process, number)
        done = process.end()
    assert done.code == 130
    assert done.json["steps"]["sleep"]["status"] == "done"
    assert done.json["status"] == "running"
    assert "go on with: anabranch resume s" in done.err
    assert not any(isinstance(e, JobLost) for e in read_story(terminal.store, "s").events)
    resumed = terminal.ok("resume", "--json").json
    assert (resumed["status"], resumed["result"]) == ("completed", "slept\n")
    assert len(pids(terminal.folder)) == 1  # it ran once


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_job_that_takes_longer_is_handed_back(terminal: Terminal, number: int) -> None:
    terminal.write("sleeper.yaml", sleeper(600))
    words = ("run", "sleeper.yaml", "--run-id", "s", "--grace", "0.2")
    with beginning(terminal, *words) as process:
        until_asleep(terminal)
        stop(process, number)
        done = process.end()
    assert done.code == 130
    assert "stopping: running jobs finish or are released" in done.err
    (pid,) = pids(terminal.folder)
    assert not alive(pid)
    story = read_story(terminal.store, "s")
    (lost,) = [event for event in story.events if isinstance(event, JobLost)]
    assert lost.reason == "the engine stopped"
    terminal.write("pids", "")
    with beginning(terminal, "resume", "s", "--grace", "0") as process:
        until_asleep(terminal)  # it goes on with the same step
        process.interrupt()
        assert process.end().code == 130


def test_every_kind_of_work_is_gone_afterwards(terminal: Terminal) -> None:
    with all_kinds(terminal, "--grace", "0.1") as process:
        stop(process, signal.SIGTERM)
        assert process.end().code == 130
    until(lambda: not any(alive(pid) for pid in pids(terminal.folder)))
    story = read_story(terminal.store, "k")
    assert sum(isinstance(event, JobLost) for event in story.events) == 4
    assert terminal.ok("cancel", "k", "--json").json["status"] == "cancelled"


def test_a_second_interrupt_stops_at_once(terminal: Terminal) -> None:
    with all_kinds(terminal, "--grace", "600") as first:
        first.interrupt()
        assert first.stderr is not None
        assert any("stopping" in line for line in first.stderr)  # it waits for its jobs
        stop(first, signal.SIGINT)
        done = first.end()
    assert done.code == 130
    assert "stopped at once" in done.err
    assert "Traceback" not in done.err
    until(lambda: not any(alive(pid) for pid in pids(terminal.folder)))
    assert terminal.ok("cancel", "k", "--json").json["status"] == "cancelled"


def test_a_killed_engine_leaves_no_process_behind(terminal: Terminal) -> None:
    with all_kinds(terminal) as first:
        first.kill()
        first.wait()
    until(lambda: not any(alive(pid) for pid in pids(terminal.folder)))


def test_what_ended_in_the_grace_may_be_the_whole_run(terminal: Terminal) -> None:
    text = f"""{HEAD}metadata: {{name: one}}
workflow:
  - step: only
    tool: {{kind: shell, command: "echo $$ >> pids; sleep 0.7; echo done"}}
"""
    terminal.write("one.yaml", text)
    with beginning(terminal, "run", "one.yaml", "--run-id", "o", "--json") as process:
        until_asleep(terminal)
        process.interrupt()
        done = process.end()
    assert done.code == 130
    assert done.json["status"] == "completed"
    assert done.err.splitlines()[-1] == "interrupted; the run has ended"
    assert terminal.run("resume", "o").code == 2


def test_an_interrupt_during_a_gate_or_a_retry_loses_nothing(terminal: Terminal) -> None:
    text = f"""{HEAD}metadata: {{name: retry}}
workflow:
  - step: only
    spec: {{retry: {{attempts: 3, delay: 5s}}}}
    tool: {{kind: shell, command: "echo $ANABRANCH_KEY >> keys; test $(wc -l < keys) -ge 2"}}
"""
    terminal.write("retry.yaml", text)
    with beginning(terminal, "run", "retry.yaml", "--run-id", "r") as process:
        until(lambda: (terminal.folder / "keys").exists())
        until(
            lambda: any(isinstance(e, JobReported) for e in read_story(terminal.store, "r").events)
        )
        stop(process, signal.SIGTERM)  # nothing runs, nothing to wait for
        assert process.end().code == 130
    assert terminal.ok("resume", "r", "--json").json["status"] == "completed"
    story = read_story(terminal.store, "r")
    assert sum(isinstance(event, JobReported) for event in story.events) == 2
    assert (terminal.folder / "keys").read_text() == "r/1.0\nr/1.0\n"


def test_an_interrupt_while_many_steps_fly_by_loses_none(terminal: Terminal) -> None:
    """Stopped and resumed again and again, every step of the loop runs exactly once."""
    text = f"""{HEAD}metadata: {{name: loop}}
workload: {{rounds: 400}}
workflow:
  - step: once
    tool: {{kind: noop, result: "{{{{ (ctx.n or 0) + 1 }}}}"}}
    set_ctx: {{n: "{{{{ outcome.result }}}}"}}
    next: {{arcs: [{{step: pause, when: "{{{{ ctx.n < workload.rounds }}}}"}}]}}
  - step: pause
    tool: {{kind: python, code: "import time; time.sleep(0.001); result = 1"}}
    next: {{arcs: [{{step: once}}]}}
"""
    terminal.write("loop.yaml", text)
    words: tuple[str, ...] = ("run", "loop.yaml", "--run-id", "l")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        with beginning(terminal, *words) as process:
            until(lambda: _owned_by(terminal, process.pid))
            time.sleep(0.25)
            process.interrupt(number)
            assert process.end().code == 130
        words = ("resume", "l")
    resumed = terminal.ok(*words, "--json").json
    assert resumed["steps"]["once"]["runs"] == 400
    story = read_story(terminal.store, "l")
    assert story.endings == {"once": 400, "pause": 399}
    assert sum(isinstance(event, JobReported) for event in story.events) == 799


def _owned_by(terminal: Terminal, pid: int) -> bool:
    lock = Path(f"{terminal.store}.lock")
    return lock.exists() and f"pid {pid} " in lock.read_text()


def test_whoever_only_looks_on_leaves_with_130_as_well(terminal: Terminal) -> None:
    terminal.write("sleeper.yaml", sleeper(600))
    with beginning(terminal, "run", "sleeper.yaml", "--run-id", "s"):
        until_asleep(terminal)
        with beginning(terminal, "events", "s", "--follow") as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.interrupt()
            assert process.wait(HANG_SECONDS) == 130
