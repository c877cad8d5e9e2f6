"""`kill -9` at any instant, `resume`, and no transition is lost or applied twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.events import JobLost
from surfaces.support import HEAD, Terminal, beginning

from .log import Story, read_story

ROUNDS = 50
BRANCHES = ("by_shell", "by_tool", "by_code", "by_nothing", "by_trying")
KILLS = 18  # fewer than the losses a job may have: on a slow machine one may be hit every time

#: A round of a loop: fan out to five kinds of work, meet again, go round until the counter is full.
PLAYBOOK = f"""{HEAD}metadata: {{name: rounds}}
workload: {{rounds: {ROUNDS}}}
executor: {{spec: {{final_step: sum_up}}}}
workflow:
  - step: round
    tool: {{kind: noop, result: "{{{{ (ctx.n or 0) + 1 }}}}"}}
    set_ctx: {{n: "{{{{ outcome.result }}}}"}}
    next:
      spec: {{mode: inclusive}}
      arcs:
        - {{step: by_shell, args: {{n: "{{{{ outcome.result }}}}"}}}}
        - {{step: by_tool, args: {{n: "{{{{ outcome.result }}}}"}}}}
        - {{step: by_code, args: {{n: "{{{{ outcome.result }}}}"}}}}
        - {{step: by_nothing, args: {{n: "{{{{ outcome.result }}}}"}}}}
        - {{step: by_trying, args: {{n: "{{{{ outcome.result }}}}"}}}}
  - step: by_shell
    tool:
      kind: shell
      command: "echo $ANABRANCH_KEY >> shell.keys; sleep 0.01; echo {{{{ args.n }}}}"
    set_ctx: {{shell: {{reduce: sum, value: "{{{{ outcome.result.stdout | int }}}}"}}}}
    next: {{arcs: [{{step: meet}}]}}
  - step: by_tool
    tool: {{kind: note, n: "{{{{ args.n }}}}"}}
    set_ctx: {{tool: {{reduce: sum, value: "{{{{ outcome.result }}}}"}}}}
    next: {{arcs: [{{step: meet}}]}}
  - step: by_code
    tool: {{kind: python, code: "result = n * n", args: {{n: "{{{{ args.n }}}}"}}}}
    set_ctx: {{code: {{reduce: sum, value: "{{{{ outcome.result }}}}"}}}}
    next: {{arcs: [{{step: meet}}]}}
  - step: by_nothing
    tool: {{kind: noop}}
    set_ctx: {{seen: {{reduce: append, value: "{{{{ args.n }}}}"}}}}
    next: {{arcs: [{{step: meet}}]}}
  - step: by_trying
    spec: {{retry: {{attempts: 5, delay: 2ms}}}}
    tool: {{kind: try_twice, n: "{{{{ args.n }}}}"}}
    set_ctx: {{tried: {{reduce: sum, value: "{{{{ outcome.result }}}}"}}}}
    next: {{arcs: [{{step: meet}}]}}
  - step: meet
    spec: {{join: all}}
    tool: {{kind: noop}}
    next: {{arcs: [{{step: round, when: "{{{{ ctx.n < workload.rounds }}}}"}}]}}
  - step: sum_up
    tool:
      kind: noop
      result:
        n: "{{{{ ctx.n }}}}"
        shell: "{{{{ ctx.shell }}}}"
        tool: "{{{{ ctx.tool }}}}"
        code: "{{{{ ctx.code }}}}"
        tried: "{{{{ ctx.tried }}}}"
        seen: "{{{{ ctx.seen }}}}"
        step_runs: "{{{{ args.counts.step_runs }}}}"
        failed: "{{{{ args.counts.failed }}}}"
"""

TOOLS = """
import time
from pathlib import Path
import anabranch

@anabranch.tool("note")
def note(n, task):
    with open("tool.keys", "a") as file:
        file.write(task.key + "\\n")
    time.sleep(0.004)
    return n

@anabranch.tool("try_twice")
async def try_twice(n, task):
    with open("tool.keys", "a") as file:
        file.write(task.key + "\\n")
    if task.attempt < 2:
        raise ConnectionError("not the first time")
    return n
"""


def keys(folder: Path, name: str) -> Counter[str]:
    return Counter((folder / name).read_text().split())


def set_up(terminal: Terminal) -> None:
    terminal.write("rounds.yaml", PLAYBOOK)
    terminal.write("rounds_tools.py", TOOLS)


def resume(terminal: Terminal) -> dict[str, Any]:
    done = terminal.run("resume", "last", "--tools", "rounds_tools", "--json", seconds=60)
    assert done.code == 0, done
    result: dict[str, Any] = done.json
    return result


def kill_again_and_again(terminal: Terminal, dice: random.Random) -> int:
    """Start, kill somewhere, resume, kill somewhere else …; how often it was killed in the run."""
    kills = 0
    words: tuple[str, ...] = ("run", "rounds.yaml", "--run-id", "rounds")
    while kills < KILLS:
        with beginning(terminal, *words, "--tools", "rounds_tools") as process:
            _wait_for_engine(terminal, process.pid, dice)
            time.sleep(dice.uniform(0, 0.07))
            if process.poll() is not None:
                raise AssertionError(f"ended after {kills} kills: {process.end()}")
            process.kill()
            process.wait()
        if _exists(terminal):
            kills, words = kills + 1, ("resume", "rounds")
    return kills


def _wait_for_engine(terminal: Terminal, pid: int, dice: random.Random) -> None:
    """Mostly until it owns the store; now and then it is killed before that."""
    if dice.random() < 0.1:
        time.sleep(dice.uniform(0, 0.6))
        return
    lock = terminal.folder / "anabranch.db.lock"
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if lock.exists() and f"pid {pid} " in lock.read_text():
            return
        time.sleep(0.002)


def _exists(terminal: Terminal) -> bool:
    return (terminal.folder / "shell.keys").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_killed_at_many_instants_ends_like_one_that_was_not(
    tmp_path: Path, seed: int
) -> None:
    calm, wild = Terminal(tmp_path / "calm"), Terminal(tmp_path / "wild")
    for terminal in (calm, wild):
        terminal.folder.mkdir()
        set_up(terminal)
    undisturbed = calm.ok(
        "run", "rounds.yaml", "--run-id", "rounds", "--tools", "rounds_tools", "--json"
    ).json

    kills = kill_again_and_again(wild, random.Random(seed))
    result = resume(wild)

    assert kills == KILLS
    assert result == undisturbed
    assert result["result"]["seen"] == list(range(1, ROUNDS + 1))
    assert result["result"]["step_runs"] == ROUNDS * (2 + len(BRANCHES))
    story = read_story(wild.store, "rounds")
    assert story.endings == read_story(calm.store, "rounds").endings
    assert story.endings["meet"] == ROUNDS
    the_work_was_done_under_its_own_keys(story, wild.folder)


def the_work_was_done_under_its_own_keys(story: Story, folder: Path) -> None:
    done = keys(folder, "shell.keys") + keys(folder, "tool.keys")
    assert set(done) <= story.scheduled, "work that nobody scheduled"
    assert story.reported("by_shell", "by_tool", "by_trying") <= set(done), "work left undone"
    handed_out = story.started()
    assert all(count <= handed_out[key] for key, count in done.items()), "more often than allowed"
    lost = sum(isinstance(event, JobLost) for event in story.events)
    assert lost >= 8, "hardly a kill hit any work: not much of a test"
