"""`kill -9` at any instant, `resume`, and no transition is lost or applied twice.

The kills follow the progress of the run, not the clock: in every life the run is held up at a round
that it has not finished before, so it can neither run away from its killer nor be killed twenty
times at the same place, however fast or slow the machine is.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.events import JobLost
from hangs import HANG_SECONDS
from seeds import seeds
from surfaces.cli.support import HEAD, Process, Terminal, beginning

from .log import Story, read_story

BRANCHES = ("by_shell", "by_tool", "by_code", "by_nothing", "by_trying")
KILLS = len(seeds(24, least=6))
ROUNDS = 2 * KILLS + 2  # a run never comes to its end before its last kill

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
      command: |
        echo $ANABRANCH_KEY >> shell.keys
        echo {{{{ args.n }}}} >> shell.rounds
        while [ -e hold ] && [ {{{{ args.n }}}} -ge $(cat hold) ]; do sleep 0.01; done
        sleep 0.01
        echo {{{{ args.n }}}}
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
    done = terminal.run("resume", "last", "--tools", "rounds_tools", "--json")
    assert done.code == 0, done
    result: dict[str, Any] = done.json
    return result


class Killer:
    """Starts it, kills it somewhere, resumes it, kills it somewhere else …

    Every second kill hits it while it is held up, in the middle of its work for certain; the others
    come at any instant from its start on.
    """

    def __init__(self, terminal: Terminal, dice: random.Random) -> None:
        self._terminal, self._dice = terminal, dice
        self._hold = terminal.folder / "hold"
        self._round = 1
        self.kills = 0
        self.held = 0  # of them, in the middle of work for certain

    def go(self) -> None:
        words: tuple[str, ...] = ("run", "rounds.yaml", "--run-id", "rounds")
        while self.kills < KILLS:
            self._hold.write_text(f"{self._round}\n")
            with beginning(self._terminal, *words, "--tools", "rounds_tools") as process:
                self._wait(process)
                assert process.poll() is None, f"ended after {self.kills} kills: {process.end()}"
                process.kill()
                process.wait()
            if self._rounds():
                self.kills, words = self.kills + 1, ("resume", "rounds")
        self._hold.unlink()

    def _wait(self, process: Process) -> None:
        """Until it is time to kill it."""
        begun = len(self._rounds())
        if self.kills % 2 == 0:
            wanted = str(self._round)
            self._until(process, lambda: wanted in self._rounds()[begun:])
            self.held += 1
            self._round += self._dice.randint(1, 2)
        elif self._dice.random() < 0.8:
            self._until(process, lambda: len(self._rounds()) > begun)
            time.sleep(self._dice.uniform(0, 0.07))
        else:  # perhaps before it owns the store
            time.sleep(self._dice.uniform(0, 0.6))

    def _until(self, process: Process, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + HANG_SECONDS
        while not happened():
            assert process.poll() is None, f"ended after {self.kills} kills: {process.end()}"
            assert time.monotonic() < end, f"no progress after {self.kills} kills"
            time.sleep(0.002)

    def _rounds(self) -> list[str]:
        """The rounds whose work was begun, in every life."""
        path = self._terminal.folder / "shell.rounds"
        return path.read_text().split() if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, least=1))
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

    killer = Killer(wild, random.Random(seed))
    killer.go()
    result = resume(wild)

    assert (killer.kills, killer.held) == (KILLS, KILLS // 2)
    assert result == undisturbed
    assert result["result"]["seen"] == list(range(1, ROUNDS + 1))
    assert result["result"]["step_runs"] == ROUNDS * (2 + len(BRANCHES))
    story = read_story(wild.store, "rounds")
    assert story.endings == read_story(calm.store, "rounds").endings
    assert story.endings["meet"] == ROUNDS
    the_work_was_done_under_its_own_keys(story, wild.folder)
    lost = sum(isinstance(event, JobLost) for event in story.events)
    again = sum(keys(wild.folder, "shell.keys").values()) - ROUNDS
    assert lost >= killer.held, "kills that hit no work: not much of a test"
    assert again >= killer.held, "hardly anything was done again"


def the_work_was_done_under_its_own_keys(story: Story, folder: Path) -> None:
    done = keys(folder, "shell.keys") + keys(folder, "tool.keys")
    assert set(done) <= story.scheduled, "work that nobody scheduled"
    assert story.reported("by_shell", "by_tool", "by_trying") <= set(done), "work left undone"
    handed_out = story.started()
    assert all(count <= handed_out[key] for key, count in done.items()), "more often than allowed"
