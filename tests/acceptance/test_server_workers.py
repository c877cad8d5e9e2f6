"""A server and workers as real processes, killed in the middle: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel import events as e
from free_ports import free_port
from hangs import HANG_SECONDS
from surfaces.cli.support import HEAD, Process, Terminal, beginning, until

from .log import read_story

pytestmark = pytest.mark.slow
ITEMS = 3_000
LEASES = (1.0, 4.0, 16.0)  # seconds, tried in this order: see `PATIENCE`

#: Every item is noted in a file, so that one can see who did what how often.
LOOP = f"""{HEAD}metadata: {{name: far}}
workflow:
  - step: each
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {{shard_size: 50, max_concurrent: 12, lease_s: 2, reducers: {{total: sum}}}}
    loop: {{in: {{range: {ITEMS}}}, iterator: n}}
    tool:
      kind: note
      n: "{{{{ iter.n }}}}"
      spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_shared: {{total: "{{{{ outcome.result }}}}"}}}}}}}}]}}}}
    next: {{arcs: [{{step: sum}}]}}
  - step: sum
    tool: {{kind: noop, result: "{{{{ steps.each.shared.total }}}}"}}
"""  # noqa: E501

ONE = f"""{HEAD}metadata: {{name: one}}
workflow:
  - step: far
    spec: {{pool: gpu}}
    tool:
      kind: shell
      command: "echo $ANABRANCH_KEY >> done.keys; sleep {{{{ workload.pause }}}}"
"""

LONG = f"""{HEAD}metadata: {{name: long}}
workflow:
  - step: far
    spec: {{pool: gpu}}
    tool:
      kind: shell
      command: "echo $ANABRANCH_KEY >> done.keys; test -e go || sleep 3600"
"""

SLOW = f"""{HEAD}metadata: {{name: slow}}
workflow:
  - step: each
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {{shard_size: 100, max_concurrent: 6, lease_s: 1.5, reducers: {{total: sum}}}}
    loop: {{in: {{range: 1200}}, iterator: n}}
    tool: {{kind: slowly, n: "{{{{ iter.n }}}}", set_shared: {{total: "{{{{ outcome.result }}}}"}}}}
"""

POISON = f"""{HEAD}metadata: {{name: poison}}
workflow:
  - {{step: far, spec: {{pool: gpu}}, tool: {{kind: crash}}}}
"""

TOOLS = """
import os, time
import anabranch

if os.environ.get("SKEW"):
    real = time.time
    time.time = lambda: real() + float(os.environ["SKEW"])

@anabranch.tool("slowly")
async def slowly(n):
    import asyncio
    with open("items.txt", "a") as file:
        file.write(f"{n}\\n")
    await asyncio.sleep(0.02)
    return n

@anabranch.tool("crash", blocking=False)
def crash():
    with open("crashes.txt", "a") as file:
        file.write("crash\\n")
    os._exit(9)

@anabranch.tool("note", blocking=False)
def note(n, task):
    with open("items.txt", "a") as file:
        file.write(f"{n}\\n")
    if n % 50 == 0:
        time.sleep(0.02)
    return n
"""


class Site:
    """A server on a port of its own, and its workers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.terminal = Terminal(folder)
        self.stack = stack
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.terminal.write("far.yaml", LOOP)
        self.terminal.write("one.yaml", ONE)
        self.terminal.write("long.yaml", LONG)
        self.terminal.write("slow.yaml", SLOW)
        self.terminal.write("poison.yaml", POISON)
        self.terminal.write("far_tools.py", TOOLS)
        self.server = self.serve()

    def _begin(self, log: str, *words: object, **env: str) -> Process:
        out = self.stack.enter_context((self.terminal.folder / log).open("a"))
        return self.stack.enter_context(
            beginning(self.terminal, *words, stdout=out, stderr=out, env=env)
        )

    def serve(self, *more: object) -> Process:
        words = ("serve", "--port", self.port, "--tools", "far_tools", *more)
        process = self._begin("server.log", *words)
        until(lambda: self._answers() or process.poll() is not None)
        assert process.poll() is None, (self.terminal.folder / "server.log").read_text()
        return process

    def serve_with_tokens(self) -> Process:
        process = self._begin("server.log", "serve", "--port", self.port, "--tokens-required")
        until(lambda: self._listens() or process.poll() is not None)
        return process

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def token(self, scope: str) -> str:
        return self.terminal.ok("token", "create", "--scope", scope, "--name", scope).out.strip()

    def _answers(self) -> bool:
        try:
            self.ask("/pools")
        except OSError:
            return False
        return True

    def worker(self, name: str, *more: object, **env: str) -> Process:
        words = ("worker", "--server", self.url, "--pool", "gpu", "--name", name)
        return self._begin(f"{name}.log", *words, "--tools", "far_tools", *more, **env)

    def log(self, name: str) -> str:
        return (self.terminal.folder / f"{name}.log").read_text()

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as response:
            return json.load(response)

    def start(self, file: str, run: str, **given: Any) -> None:
        text = (self.terminal.folder / file).read_text()
        self.ask("/runs", {"definition": text, "run": run, "input": given})

    def wait(self, run: str, seconds: float = HANG_SECONDS) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                found: dict[str, Any] = self.ask(f"/runs/{run}")
            except (urllib.error.HTTPError, OSError):
                found = {"status": "away"}
            if found["status"] in ("completed", "failed", "cancelled", "partial"):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never ended: {self.ask(f'/runs/{run}/explain')}")

    def lines(self, name: str) -> list[str]:
        path = self.terminal.folder / name
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def lost_in(site: Site, run: str) -> list[e.JobLost]:
    story = read_story(site.terminal.store, run)
    return [event for event in story.events if isinstance(event, e.JobLost)]


def test_the_job_of_a_worker_that_was_killed_is_done_once_more_by_another(site: Site) -> None:
    first = site.worker("first", "--lease", "1.5")
    site.start("long.yaml", "killed")
    until(lambda: bool(site.lines("done.keys")))
    (site.terminal.folder / "go").touch()  # from now on the work ends at once
    first.kill()
    first.wait()
    site.worker("second")
    assert site.wait("killed")["status"] == "completed"
    lost = lost_in(site, "killed")  # a busy machine may make the first one late, too
    assert {one.reason for one in lost} == {"its lease ran out"}
    done = site.lines("done.keys")
    assert set(done) == {"killed/1.0"}
    assert 2 <= len(done) <= 1 + len(lost)


def test_a_server_and_a_worker_killed_in_the_middle_of_a_large_loop_lose_and_double_nothing(
    site: Site,
) -> None:
    workers = [site.worker(f"w{n}", "--concurrency", "4") for n in range(2)]
    site.start("far.yaml", "large")
    until(lambda: len(site.lines("items.txt")) > ITEMS // 5)
    site.server.kill()
    site.server.wait()
    time.sleep(0.3)  # the workers meet a closed door for a while
    site.server = site.serve()
    until(lambda: len(site.lines("items.txt")) > ITEMS // 2)
    workers[0].kill()
    site.worker("w2", "--concurrency", "4")
    ended = site.wait("large")
    assert ended["status"] == "completed", ended["problem"]
    assert ended["result"] == sum(range(ITEMS))
    loop = ended["steps"]["each"]["result"]
    assert (loop["total"], loop["succeeded"], loop["failed"]) == (ITEMS, ITEMS, 0)
    done = Counter(map(int, site.lines("items.txt")))
    assert set(done) == set(range(ITEMS))
    again = sum(count - 1 for count in done.values())
    assert again <= 50 * (4 + 12), "only what was out at a kill is done again"
    story = read_story(site.terminal.store, "large")
    closed = [event for event in story.events if isinstance(event, e.ShardClosed)]
    assert len(closed) == ITEMS // 50
    assert all(event.fault is None for event in closed)


def test_a_worker_told_to_stop_finishes_what_it_has_and_hands_back_the_rest(site: Site) -> None:
    short = site.worker("short", "--grace", "20")
    site.start("one.yaml", "brief", pause=0.5)
    until(lambda: len(site.lines("done.keys")) == 1)
    short.terminate()
    assert short.wait(HANG_SECONDS) == 0
    assert site.wait("brief")["status"] == "completed"
    assert "1 done, 0 failed" in (site.terminal.folder / "short.log").read_text()

    hasty = site.worker("hasty", "--grace", "0.2")
    site.start("one.yaml", "long", pause=60)
    until(lambda: len(site.lines("done.keys")) == 2)
    hasty.terminate()
    assert hasty.wait(HANG_SECONDS) == 0
    (lost,) = lost_in(site, "long")
    assert (lost.reason, lost.counted) == ("its worker stops", False)
    (waits,) = site.ask("/runs/long/explain")["waiting"]
    assert waits["waits_for"].startswith("a worker of pool gpu (attempt 2); one last asked")
    assert site.ask("/pools")["items"][0]["waiting"] == 1


def test_a_worker_with_nothing_to_do_ends_with_once_and_one_without_a_server_waits_for_it(
    site: Site,
) -> None:
    assert site.worker("idle", "--once").wait(HANG_SECONDS) == 0
    site.server.kill()
    site.server.wait()
    early = site.worker("early", "--once")
    until(lambda: "cannot be reached" in (site.terminal.folder / "early.log").read_text())
    site.server = site.serve()
    assert early.wait(HANG_SECONDS) == 0


def test_run_refuses_what_only_workers_may_do_unless_it_is_told_to_do_it_here(
    tmp_path: Path,
) -> None:
    terminal = Terminal(tmp_path)
    terminal.write("one.yaml", ONE)
    refused = terminal.run("run", "one.yaml", "--input", "pause=0", "--json")
    assert (refused.code, refused.json["problem"]["code"]) == (2, "no_workers")
    assert "ANABRANCH_POOLS_HERE=gpu" in refused.err
    assert not os.path.exists(tmp_path / "done.keys")
    done = terminal.ok("run", "one.yaml", "--input", "pause=0", env={"ANABRANCH_POOLS_HERE": "gpu"})
    assert "completed" in done.out


def test_of_three_workers_two_are_killed_and_the_sums_are_exact(site: Site) -> None:
    workers = [site.worker(f"w{n}", "--concurrency", "2") for n in range(3)]
    site.start("slow.yaml", "slow")
    until(lambda: bool(progressed(site, "slow")))
    workers[0].kill()
    until(lambda: len(site.lines("items.txt")) > 500)
    workers[1].kill()
    ended = site.wait("slow")
    assert ended["status"] == "completed", ended["problem"]
    each = ended["steps"]["each"]["result"]
    assert (each["total"], each["succeeded"], each["failed"]) == (1200, 1200, 0)
    assert each["shared"]["total"] == sum(range(1200))
    lost = lost_in(site, "slow")
    assert {one.reason for one in lost} == {"its lease ran out"}
    done = Counter(map(int, site.lines("items.txt")))
    assert set(done) == set(range(1200))
    # Shards take two seconds and checkpoints are half a second apart: the lost ones went on.
    assert sum(done.values()) - 1200 < len(lost) * 90


def progressed(site: Site, run: str) -> list[e.JobProgressed]:
    story = read_story(site.terminal.store, run)
    told = [event for event in story.events if isinstance(event, e.JobProgressed)]
    return [event for event in told if event.progress["done"] >= 30]


def test_work_that_crashes_its_worker_is_a_loss_each_time_and_never_counts_as_done(
    site: Site,
) -> None:
    site.start("poison.yaml", "poison")
    for times in range(1, 4):
        assert site.worker("victim", "--lease", "1").wait(HANG_SECONDS) == 9
        # On a busy machine a lease may also run out before the work begins.
        until(lambda times=times: waits_again(site, "poison") > times)  # type: ignore[misc]
    lost = lost_in(site, "poison")
    assert all(one.counted for one in lost)
    assert waits_again(site, "poison") == len(lost) + 1


def waits_again(site: Site, run: str) -> int:
    """The attempt for which its one job waits until a worker comes; 0 while one has it."""
    (waits,) = site.ask(f"/runs/{run}/explain")["waiting"]
    found = re.match(r"a worker of pool gpu \(attempt (\d+)\)", waits["waits_for"])
    return int(found[1]) if found else 0


def test_a_worker_whose_clock_is_a_day_off_works_like_any_other(site: Site) -> None:
    def keeps_its_job(word: str, skew: str, lease: float) -> bool:
        worker = site.worker("skewed", "--lease", str(lease), SKEW=skew)
        run = f"{word}-{lease:g}"
        site.start("one.yaml", run, pause=2 * lease)  # two heartbeats at least
        assert site.wait(run)["status"] == "completed"
        worker.kill()
        lost = lost_in(site, run)
        done = site.lines("done.keys").count(f"{run}/1.0")
        assert 1 <= done <= 1 + len(lost), "a lost job may not have come to its first line"
        return not lost

    for word, skew in (("late", "-86400"), ("early", "86400")):
        assert any(keeps_its_job(word, skew, lease) for lease in LEASES), word


def test_a_worker_tells_programs_in_lines_of_json(site: Site) -> None:
    site.start("one.yaml", "brief", pause=0)
    made = site.worker("told", "--json")
    assert site.wait("brief")["status"] == "completed"
    until(lambda: '"started"' in site.log("told"))
    made.send_signal(signal.SIGUSR1)
    until(lambda: '"health"' in site.log("told"))
    made.terminate()
    assert made.wait(HANG_SECONDS) == 0
    told = [json.loads(line) for line in site.log("told").splitlines() if line.startswith("{")]
    assert [line["event"] for line in told] == ["started", "health", "stopping", "ended"]
    last = told[-1]
    assert (last["worker"], last["pool"], last["concurrency"]) == ("told", "gpu", 1)
    assert (last["done"], last["failed"], last["at_work"]) == (1, 0, 0)


def test_a_token_that_is_wrong_or_for_something_else_ends_the_worker_with_code_2(
    site: Site,
) -> None:
    site.server.terminate()
    site.server.wait()
    site.server = site.serve_with_tokens()
    for name, token in (("none", ""), ("wrong", "anb_0123456789ab_nothing"), ("reader", "read")):
        known = site.token(token) if token == "read" else token
        assert site.worker(name, "--json", ANABRANCH_TOKEN=known).wait(HANG_SECONDS) == 2
        (line,) = (one for one in site.log(name).splitlines() if '"problem"' in one)
        problem = json.loads(line)["problem"]
        assert problem["code"] == "token"
        assert "scope `work`" in problem["message"]
        assert "trying again" not in site.log(name)
    assert (
        site.worker("right", "--once", ANABRANCH_TOKEN=site.token("work")).wait(HANG_SECONDS) == 0
    )
