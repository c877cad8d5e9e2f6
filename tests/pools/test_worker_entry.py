"""The function that a cluster runs: it tells, it stops when told, and it never raises for work."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch import app
from anabranch.operations.workers.leases import LeaseClaim
from anabranch.pools import worker_entry
from anabranch.pools.assignment import (
    Missing,
    Outcome,
    Progress,
    Tools,
    decode_assignment,
    decode_said,
    encode_assignment,
)
from anabranch.version import __version__
from anabranch.work.kinds.callables import default_toolbox
from anabranch.work.values.payloads import hash_of
from hangs import HANG_SECONDS
from surfaces.worker.support import LOOP, ONE, playbook, until
from surfaces.worker.test_kinds import tasks

from . import cluster_tools
from .entry_support import (
    WORKER,
    ChildEntry,
    Entry,
    HereEntry,
    dispatching,
    done,
    ended,
    engine,
    run,
)


async def blob_of(text: str, **more: Any) -> bytes:
    """The first job of a run, as a dispatcher would send it."""
    async with engine(default_toolbox) as parts:
        async with dispatching(parts, HereEntry()) as dispatch:
            pass
        await parts.verbs.start(text, {})
        claimed = await parts.pools.claim("gpu", WORKER, wait_seconds=10.0)
        (leased,) = claimed.tasks[:1]
        names = dispatch.packer.names(claimed.runs[leased.run])
        out = LeaseClaim(*leased.id, WORKER)
        blob = await dispatch.packer.pack(f"{leased.step}-1", out, leased, names)
    if not more:
        return blob
    return encode_assignment(msgspec.structs.replace(decode_assignment(blob), **more))


def performed(blob: bytes, tell: Callable[[str, bytes], None] | None = None) -> Outcome:
    said = decode_said(worker_entry.perform(blob, tell or (lambda _verb, _words: None)))
    assert isinstance(said, Outcome), said
    return said


def failure(outcome: Outcome) -> dict[str, Any]:
    assert outcome.verb == "fail", (outcome.verb, outcome.body)
    return outcome.body


# -- what it is ------------------------------------------------------------------------------


def test_a_probe_says_what_the_process_is(here: HereEntry) -> None:
    found = worker_entry.probe()
    assert found["anabranch"] == __version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert str(os.getpid()) in found["name"]
    assert found["process"].startswith(found["name"])
    assert worker_entry.probe() == found


def test_importing_the_entry_brings_no_server_and_no_pages(child: ChildEntry) -> None:
    asyncio.run(until(lambda: bool(child.modules)))
    ours = [name for name in child.modules if name.startswith("anabranch.")]
    assert "anabranch.pools.entry.process" in ours
    heavy = ("anabranch.surfaces", "anabranch.app", "anabranch.market", "anabranch.modules")
    assert not [name for name in ours if name.startswith(heavy)]
    assert not {"aiohttp", "duckdb", "psycopg", "fsspec", "distributed", "ray"} & {*child.modules}


# -- what it tells ---------------------------------------------------------------------------


def test_it_tells_that_it_has_begun_before_anything_else(entry: Entry) -> None:
    found, dispatch = run(done(entry, ONE))
    assert found["result"] == 21
    assert [verb for verb, _ in dispatch.told] == ["started"]
    (outcome,) = dispatch.answers
    assert isinstance(outcome, Outcome)
    assert outcome.process == dispatch.told[0][1].decode()
    assert outcome.seconds > 0


SLOW = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 6, max_concurrent: 1}}
    loop: {in: {range: 6}, iterator: n}
    tool: {kind: held_at, args: {n: "{{ iter.n }}", at: 3}}
""")


class Held:
    """A tool that waits at one of its items until it is let go, here and now."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.seen: list[int] = []

    async def hold(self, n: int, at: int) -> int:
        self.seen.append(n)
        if n == at:
            self.reached.set()
            while not self.go_on.is_set():
                await asyncio.sleep(0.005)
        return n


@pytest.fixture
def held(here: HereEntry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held()
    monkeypatch.setattr(default_toolbox, "_tools", dict(default_toolbox._tools))
    default_toolbox.add("held_at", made.hold)
    try:
        yield made
    finally:
        made.go_on.set()


def test_it_tells_how_far_it_is_at_a_third_of_the_lease_and_only_when_that_changed(
    here: HereEntry, held: Held
) -> None:
    blob = run(blob_of(SLOW))
    given = decode_assignment(blob)
    short = msgspec.structs.replace(given.job, lease_seconds=0.3)
    told: list[Progress] = []

    def tell(verb: str, words: bytes) -> None:
        if verb == "progress":
            said = decode_said(words)
            assert isinstance(said, Progress)
            told.append(said)
            if said.progress["done"] == 3:
                held.go_on.set()

    outcome = performed(encode_assignment(msgspec.structs.replace(given, job=short)), tell)
    assert outcome.verb == "report"
    counts = [one.progress["done"] for one in told]
    assert len(set(counts)) == len(counts), "nothing is said twice"
    half = told[counts.index(3)].progress  # a busy machine may say something before
    assert half["of"] == 6
    assert half["checkpoint"]["over"] == [[0, 3]]


def test_a_large_checkpoint_travels_with_the_words(here: HereEntry, held: Held) -> None:

    async def large(n: int, at: int) -> str:
        await held.hold(n, at)
        return "x" * 2000

    default_toolbox.add("held_large", large)
    text = SLOW.replace("held_at", "held_large")

    async def scenario() -> None:
        async with engine(default_toolbox) as parts, dispatching(parts, here) as dispatch:
            name = await parts.verbs.start(text, {})
            await until(held.reached.is_set)
            here.stop(dispatch.tickets)
            await until(lambda: len(dispatch.answers) == 1)
            (progress,) = dispatch.progress
            sha256 = progress.progress["payload"]
            assert hash_of(progress.parts[sha256]) == sha256
            held.go_on.set()
            await parts.verbs.wait(name)
            assert parts.verbs.read.show(name)["status"] == "completed"
            last = dispatch.answers[-1]
            assert isinstance(last, Outcome)
            assert sha256 not in last.parts, "a checkpoint is no part of the result"

    run(scenario())


# -- stopping --------------------------------------------------------------------------------


def test_told_to_stop_it_says_how_far_it_is_and_hands_the_job_back(
    here: HereEntry, held: Held
) -> None:
    told: list[tuple[str, bytes]] = []
    blob = run(blob_of(SLOW))
    found: list[Outcome] = []
    call = threading.Thread(
        target=lambda: found.append(performed(blob, lambda *said: told.append(said)))
    )
    call.start()
    assert held.reached.wait(HANG_SECONDS)
    worker_entry.stop(["another", "each-1"])
    call.join(HANG_SECONDS)
    assert found[0].verb == "release"
    assert held.seen == [0, 1, 2, 3], "nothing more was begun"
    (progress,) = [decode_said(words) for verb, words in told if verb == "progress"]
    assert isinstance(progress, Progress)
    assert progress.progress["checkpoint"]["over"] == [[0, 3]]


def test_another_process_goes_on_from_where_one_was_stopped(here: HereEntry, held: Held) -> None:

    async def scenario() -> None:
        async with engine(default_toolbox) as parts, dispatching(parts, here) as dispatch:
            name = await parts.verbs.start(SLOW, {})
            await until(held.reached.is_set)
            here.stop(dispatch.tickets)
            await until(lambda: len(dispatch.answers) == 1)
            held.go_on.set()
            await parts.verbs.wait(name)
            assert held.seen[:4] == [0, 1, 2, 3]
            assert held.seen.count(0) == 1, "items that were over are not done again"

    run(scenario())


def test_a_ticket_that_is_stopped_before_it_begins_does_nothing(here: HereEntry) -> None:
    blob = run(blob_of(ONE))
    worker_entry.stop(["far-1"])
    told: list[str] = []
    assert performed(blob, lambda verb, _words: told.append(verb)).verb == "release"
    assert told == []
    assert performed(blob).verb == "report", "told once, it is stopped once"


def test_the_same_ticket_is_not_done_twice_at_once(here: HereEntry, held: Held) -> None:
    blob = run(blob_of(SLOW))
    found: list[Outcome] = []
    call = threading.Thread(target=lambda: found.append(performed(blob)))
    call.start()
    assert held.reached.wait(HANG_SECONDS)
    second = performed(blob)
    assert second.verb == "release"
    assert "at work" in second.body["reason"]
    held.go_on.set()
    call.join(HANG_SECONDS)
    assert found[0].verb == "report"


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from anabranch.pools import worker_entry
from anabranch.pools.assignment import decode_said
folder, when = Path(sys.argv[1]), sys.argv[2]

def interrupt_when_at_work():
    while not (folder / "at work").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

def tell(verb, words):
    if verb == "started" and when == "at once":
        os.kill(os.getpid(), signal.SIGINT)
    elif verb == "started":
        threading.Thread(target=interrupt_when_at_work, daemon=True).start()

outcome = decode_said(worker_entry.perform((folder / "blob").read_bytes(), tell))
print(outcome.verb, outcome.body["reason"])
"""


@pytest.mark.parametrize("when", ["at once", "at work"])
def test_an_interrupt_of_the_calling_thread_stops_the_work_in_order(
    when: str, tmp_path: Path
) -> None:
    """How Ray tells a task to stop."""
    slow = tasks(f"{{kind: shell, command: \"touch '{tmp_path}/at work'; sleep 900\"}}")
    (tmp_path / "blob").write_bytes(run(blob_of(slow)))
    (tmp_path / "program.py").write_text(INTERRUPTED)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path), when]
    path = {"PYTHONPATH": str(Path(app.__file__).parent.parent), "PATH": os.environ["PATH"]}
    ended = subprocess.run(
        command, env=path, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert ended.stdout == "release stopped as it was told\n", ended.stderr
    assert ended.returncode == 0


# -- what goes wrong -------------------------------------------------------------------------


def test_another_version_of_the_engine_is_refused_with_both_versions(here: HereEntry) -> None:
    found = failure(performed(run(blob_of(ONE, version="9.9"))))
    assert __version__ in found["message"]
    assert "9.9" in found["message"]
    assert found["kind"] == "config"
    assert not found["retryable"]


@pytest.mark.parametrize("blob", [b"", b"nonsense" * 10])
def test_bytes_that_are_no_job_are_refused(here: HereEntry, blob: bytes) -> None:
    found = failure(performed(blob))
    assert found["kind"] == "config"
    assert not found["retryable"]


def test_a_part_that_was_damaged_on_its_way_is_refused(here: HereEntry) -> None:
    given = decode_assignment(run(blob_of(ONE)))
    parts = {**given.parts, given.names: b'{"workload": {}}'}
    found = failure(performed(encode_assignment(msgspec.structs.replace(given, parts=parts))))
    assert "damaged" in found["message"]


def test_a_job_whose_parts_are_missing_is_not_begun(here: HereEntry) -> None:
    blob = run(blob_of(ONE))
    given = decode_assignment(blob)
    bare = encode_assignment(msgspec.structs.replace(given, parts={}, needs=["0" * 64]))
    told: list[str] = []
    said = decode_said(worker_entry.perform(bare, lambda verb, _words: told.append(verb)))
    assert isinstance(said, Missing)
    assert set(said.parts) == {given.definition, given.names, "0" * 64}
    assert said.process == worker_entry.probe()["process"]
    assert told == []
    assert performed(blob).had == [given.definition, given.names]
    bare = encode_assignment(msgspec.structs.replace(given, parts={}))
    assert performed(bare).verb == "report", "it keeps what it has seen"


def test_a_module_that_is_missing_fails_the_job_for_good(here: HereEntry) -> None:
    found = failure(performed(run(blob_of(ONE, tools=[Tools(module="no_such_shop")]))))
    assert "has no module no_such_shop: install it there" in found["message"]
    assert (found["kind"], found["retryable"]) == ("config", False)


def test_another_version_of_a_module_fails_the_job_for_good(here: HereEntry) -> None:
    other = Tools(module=cluster_tools.__name__, sha256="0" * 64)
    found = failure(performed(run(blob_of(ONE, tools=[other]))))
    assert "another version" in found["message"]
    assert "000000000000" in found["message"]
    assert not found["retryable"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{kind: python, code: "raise ValueError(42)"}'], "ValueError: 42"),
        (['{kind: python, code: "result = object()"}'], "not JSON"),
        (["{kind: cluster_echo, args: {wrong: 1}}"], "wrong"),
        (["{kind: noop}", '{kind: noop, result: "{{ 1 // 0 }}"}'], "division by zero"),
    ],
)
def test_what_the_work_does_wrong_is_its_outcome(
    here: HereEntry, lines: list[str], said: str
) -> None:
    found = failure(performed(run(blob_of(tasks(*lines)))))
    assert said in found["message"]


def test_an_answer_that_cannot_be_sent_is_a_failure_for_good(
    here: HereEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.kernel.values import ContextPatch, succeeded

    blob = run(blob_of(ONE))

    async def odd(*_given: Any) -> Any:
        from anabranch.pools.answers import JobAnswer

        return JobAnswer(succeeded(1, patches=(ContextPatch("a", object()),)))

    monkeypatch.setattr("anabranch.pools.task_environment.TaskEnvironment.perform", odd)
    found = failure(performed(blob))
    assert (found["kind"], found["retryable"]) == ("result", False)
    assert "not JSON" in found["message"]


def test_a_bug_of_ours_is_an_outcome_as_well(
    here: HereEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = run(blob_of(ONE))

    async def broken(*_given: Any) -> Any:
        raise KeyError("oops")

    monkeypatch.setattr("anabranch.pools.task_environment.TaskEnvironment.perform", broken)
    found = failure(performed(blob))
    assert (found["kind"], found["retryable"]) == ("defect", False)


def test_a_cluster_that_does_not_hear_what_is_told_does_not_stop_the_work(here: HereEntry) -> None:
    def deaf(_verb: str, _words: bytes) -> None:
        raise OSError("the connection is gone")

    assert performed(run(blob_of(ONE)), deaf).verb == "report"


# -- what it keeps ---------------------------------------------------------------------------


def test_jobs_find_the_environment_of_the_first_one(
    here: HereEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.pools.entry import environments

    made: list[Any] = []
    real = environments._make

    def counted(given: Any) -> Any:
        made.append(given)
        return real(given)

    monkeypatch.setattr(environments, "_make", counted)
    found, dispatch = run(done(here, LOOP, items=list(range(95))))
    assert found["status"] == "completed"
    assert len(dispatch.tickets) == 10
    assert len(made) == 1


def test_environments_that_nobody_uses_are_closed(
    here: HereEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.pools.entry.environments import KEPT, Environment

    closed = []
    real = Environment.close

    async def close(environment: Environment) -> None:
        closed.append(environment)
        await real(environment)

    monkeypatch.setattr(Environment, "close", close)
    blob = run(blob_of(ONE))
    given = decode_assignment(blob)
    for n in range(KEPT + 3):
        other = msgspec.structs.replace(given, settings={"sql_rows_max": n + 1})
        assert performed(encode_assignment(other)).verb == "report"
    asyncio.run(until(lambda: len(closed) == 3))


def test_several_jobs_of_one_process_run_side_by_side(
    here: HereEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3)
    monkeypatch.setattr(default_toolbox, "_tools", dict(default_toolbox._tools))
    default_toolbox.add("meets", lambda n: together.wait(HANG_SECONDS) * 0 + n)
    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 1, max_concurrent: 3}}
    loop: {in: {range: 3}, iterator: n}
    tool: {kind: meets, args: {n: "{{ iter.n }}"}}
""")

    async def scenario() -> None:
        async with engine(default_toolbox) as parts, dispatching(parts, here):
            assert (await ended(parts, text))["status"] == "completed"

    run(scenario())
