"""The dispatcher of a pool, with a cluster that runs the real entry in threads of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.pools.assignment import Missing, decode_assignment, encode_outcome
from anabranch.pools.backend import (
    BackendAway,
    BackendUnfit,
    CameBack,
    Finished,
    Lost,
    Started,
    Unusable,
)
from anabranch.pools.dispatcher import QUEUE_LEAST
from anabranch.pools.worker_entry import perform
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.work.kinds.callables import Toolbox, default_toolbox
from hangs import HANG_SECONDS, PATIENCE
from in_loop import in_loop
from pools.local_cluster import LocalCluster, site


def step(tool: str = "{kind: noop, result: done}", spec: str = "") -> str:
    return f"""
apiVersion: noetl.io/v10
kind: Playbook
metadata: {{name: one}}
workflow:
  - step: start
    tool: {tool}
    spec: {{pool: gpu{spec}}}
"""


def loop(tool: str = '{kind: noop, result: "{{ iter.n * 2 }}"}', fanout: str = "") -> str:
    return f"""
apiVersion: noetl.io/v10
kind: Playbook
metadata: {{name: many}}
workload: {{count: 40}}
workflow:
  - step: start
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {{shard_size: 4, max_concurrent: 6{fanout}}}
    loop: {{in: {{range: "{{{{ workload.count }}}}"}}, iterator: n}}
    tool: {tool}
"""


class Gate:
    """Work that waits until a test lets it go, in a thread of the cluster."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = 0
        self.keys: list[str] = []


_gates: list[Gate] = []


@default_toolbox.tool("wait_at_gate")
async def wait_at_gate(task: object) -> str:
    gate = _gates[-1]
    gate.entered += 1
    gate.keys.append(task.key)  # type: ignore[attr-defined]
    while not gate.open.is_set():
        await asyncio.sleep(0.005)
    return "through"


@contextmanager
def gate() -> Iterator[Gate]:
    one = Gate()
    _gates.append(one)
    try:
        yield one
    finally:
        one.open.set()
        _gates.remove(one)


GATED = step("{kind: wait_at_gate}")


def tools() -> Toolbox:
    return default_toolbox


# -- work is done there ----------------------------------------------------------------------


@in_loop
async def test_a_step_is_done_by_the_cluster() -> None:
    async with site(LocalCluster()) as here:
        run = await here.start(step('{kind: python, code: "result = 20 + 22"}'))
        shown = await here.ended(run)
        assert shown["status"] == "completed"
        assert shown["result"] == 42
        (started,) = here.events(run, e.JobStarted)
        assert started.worker == here.dispatcher.worker
        assert started.worker.startswith("gpu@dask:")
        (ticket,) = here.cluster.submitted
        assert ticket.startswith("start-")


@in_loop
async def test_a_loop_is_done_by_the_cluster_and_never_more_is_out_than_slots_and_queue() -> None:
    async with site(LocalCluster(slots=2), "queue=1") as here:
        run = await here.start(loop())
        shown = await here.ended(run)
        assert shown["status"] == "completed"
        assert len(here.cluster.submitted) == 10
        assert here.cluster.most_out <= 3
        await here.until(lambda: not here.dispatcher.state().tickets)
        state = here.dispatcher.state()
        assert (state.submitted, state.finished, state.queued, state.running) == (10, 10, 0, 0)


@in_loop
async def test_jobs_go_out_together_when_little_is_left_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(LocalCluster(slots=1), "queue=4") as here:
        dispatcher, out_before = here.dispatcher, list[int]()
        claim = dispatcher._api.claim

        async def claim_seen(*given: Any, **more: Any) -> Any:
            out_before.append(len(dispatcher._book))
            return await claim(*given, **more)

        monkeypatch.setattr(dispatcher._api, "claim", claim_seen)
        run = await here.start(loop())
        assert (await here.ended(run))["status"] == "completed"
        assert len(here.cluster.submitted) == 10
        assert here.cluster.most_out == 5
        assert max(out_before) <= 2  # one that runs and one that follows it


@in_loop
async def test_a_cluster_of_few_slots_has_a_queue_nevertheless() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=1), f"queue={QUEUE_LEAST}", toolbox=tools()) as here:
            dispatcher = here.dispatcher
            dispatcher.pool = msgspec.structs.replace(dispatcher.pool, queue=None)
            many = loop("{kind: wait_at_gate}").replace("max_concurrent: 6", "max_concurrent: 20")
            run = await here.start(many)
            await here.until(lambda: len(here.cluster.submitted) == 1 + QUEUE_LEAST)
            held.open.set()
            assert (await here.ended(run))["status"] == "completed"
            assert here.cluster.most_out == 1 + QUEUE_LEAST


@in_loop
async def test_an_item_that_fails_fails_as_it_does_here() -> None:
    async with site(LocalCluster()) as here:
        run = await here.start(step('{kind: python, code: "raise ValueError(1)"}'))
        shown = await here.ended(run)
        assert shown["status"] == "failed"
        assert "ValueError" in shown["problem"]["message"]


@in_loop
async def test_large_inputs_and_results_travel_with_the_jobs() -> None:
    text = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: large}
workflow:
  - {step: start, tool: {kind: python, code: "result = 'x' * 300_000"}, next: {arcs: [{step: b}]}}
  - step: b
    tool: {kind: python, input: {text: "{{ start }}"}, code: "result = {'copy': text + 'y'}"}
    spec: {pool: gpu}
    next: {arcs: [{step: c}]}
  - {step: c, tool: {kind: python, input: {b: "{{ b.copy }}"}, code: "result = len(b)"}}
"""
    async with site(LocalCluster()) as here:
        shown = await here.ended(await here.start(text))
        assert shown["status"] == "completed", shown
        assert shown["result"] == 300_001


@in_loop
async def test_parts_that_a_process_lacks_are_sent_with_the_same_attempt() -> None:
    first = True

    def forgetful(blob: bytes, tell: Callable[[str, bytes], None]) -> bytes:
        nonlocal first
        given = decode_assignment(blob)
        if first:
            first = False
            return encode_outcome(Missing(parts=[given.names, given.definition], process="p"))
        assert {given.names, given.definition} <= given.parts.keys()
        return perform(blob, tell)

    async with site(LocalCluster(perform=forgetful)) as here:
        run = await here.start(step())
        assert (await here.ended(run))["status"] == "completed"
        one, two = here.cluster.submitted
        assert one != two
        assert here.cluster.job_of(one).attempt == here.cluster.job_of(two).attempt == 1
        assert here.losses(run) == []


@in_loop
async def test_a_process_that_never_has_its_parts_fails_the_job() -> None:
    def lacking(blob: bytes, _tell: object) -> bytes:
        return encode_outcome(Missing(parts=[decode_assignment(blob).names], process="p"))

    async with site(LocalCluster(perform=lacking)) as here:
        shown = await here.ended(await here.start(step()))
        assert shown["status"] == "failed"
        assert "20 times for parts" in shown["problem"]["message"]


@in_loop
async def test_words_that_are_no_outcome_fail_the_job_and_name_the_worker() -> None:
    async with site(LocalCluster(perform=lambda _blob, _tell: b"nonsense")) as here:
        shown = await here.ended(await here.start(step()))
        assert shown["status"] == "failed"
        assert "worker-1" in shown["problem"]["message"]
        assert "no message between engine and cluster" in shown["problem"]["message"]


@in_loop
async def test_a_bug_while_jobs_are_claimed_does_not_end_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site(LocalCluster()) as here:
        claims: list[object] = []
        claim = here.dispatcher._api.claim

        async def broken_once(*given: Any, **options: Any) -> Any:
            claims.append(given)
            if len(claims) == 1:
                raise RuntimeError("a bug")
            return await claim(*given, **options)

        monkeypatch.setattr(here.dispatcher._api, "claim", broken_once)
        assert (await here.ended(await here.start(step())))["status"] == "completed"
        assert len(claims) > 1


# -- losses ----------------------------------------------------------------------------------


@in_loop
async def test_a_worker_that_dies_is_a_loss_that_counts_and_the_job_goes_out_again() -> None:
    with gate() as held:
        async with site(LocalCluster(), toolbox=tools()) as here:
            run = await here.start(GATED)
            await here.until(lambda: held.entered)
            here.cluster.kill_worker(here.cluster.submitted[0])
            await here.until(lambda: held.entered == 2)
            held.open.set()
            assert (await here.ended(run))["status"] == "completed"
            assert here.losses(run) == [("the worker died", True, True)]
            assert len(set(held.keys)) == 1  # the same idempotency key
            assert here.dispatcher.state().losses == {"worker": 1}


@in_loop
async def test_a_worker_that_dies_with_two_jobs_is_named_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = LocalCluster()
    cluster.held = True
    async with site(cluster) as here:
        run = await here.start(loop().replace("count: 40", "count: 12"))
        await here.until(lambda: len(cluster.queue) == 3)
        for worker in ("w1", "w1", "w2"):
            ticket, _ = cluster.queue.popleft()
            cluster.tell(Started(ticket, worker, worker))
            cluster.tell(Lost(ticket, f"the worker {worker} died", worker=True))
        await here.until(lambda: len(here.losses(run)) == 3)
        cluster.held = False
        cluster.go_on()
        assert (await here.ended(run))["status"] == "completed"
    said = [one for one in caplog.messages if "was lost" in one]
    assert said == [
        f"pool gpu: step start was lost (attempt 1, run {run}): the worker {worker} died"
        for worker in ("w1", "w2")
    ]


@in_loop
async def test_a_function_that_kills_its_worker_each_time_fails_with_that_reason() -> None:
    cluster = LocalCluster()
    cluster.held = True
    async with site(cluster) as here:
        text = loop(fanout=", max_job_retries: 2").replace("count: 40", "count: 1")
        run = await here.start(text)
        for count in (1, 2, 3):
            await here.until(lambda: cluster.queue)
            ticket, _ = cluster.queue.popleft()
            cluster.tell(Started(ticket, f"w{count}", f"p{count}"))
            cluster.running[ticket] = asyncio.get_running_loop().create_task(asyncio.sleep(0))
            cluster.kill_worker(ticket)
        shown = await here.ended(run)
        assert shown["status"] == "failed"
        assert len(cluster.submitted) == 3
        closed = here.events(run, e.ShardClosed)[-1]
        assert "the last one by: the worker died" in str(closed.fault)


@in_loop
async def test_a_cluster_that_goes_away_costs_no_attempt_and_nothing_is_claimed_meanwhile() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=1), toolbox=tools()) as here:
            first, second = await here.start(GATED), await here.start(GATED)
            await here.until(lambda: held.entered)
            here.cluster.go_away()
            await here.until(lambda: here.dispatcher.state().state == "away")
            await here.until(lambda: not here.dispatcher.state().tickets)
            assert here.dispatcher.state().reason == "nobody answers"
            third = await here.start(GATED)
            held.open.set()
            here.cluster.come_back()
            for run in (first, second, third):
                assert (await here.ended(run))["status"] == "completed"
                assert {one[1:] for one in here.losses(run)} <= {(False, False)}
            assert here.losses(third) == []


@in_loop
async def test_a_cluster_that_refuses_a_job_is_away_before_it_says_so_itself() -> None:
    """Nothing more is claimed for it, or the log would fill with starts and losses."""
    cluster = LocalCluster(slots=2)
    async with site(cluster) as here:
        await here.until(lambda: here.dispatcher.state().state == "open")
        cluster.refuses = BackendAway("the connection broke")
        run = await here.start(loop())
        await here.until(
            lambda: here.dispatcher.state().state == "away" or len(here.losses(run)) > 10
        )
        await here.until(lambda: not here.dispatcher.state().tickets)
        assert here.dispatcher.state().reason == "the connection broke"
        assert here.losses(run) == [("the connection broke", False, False)] * 4
        cluster.refuses = None  # and no event says that it is there again
        assert (await here.ended(run))["status"] == "completed"
        assert len(here.losses(run)) == 4


@in_loop
async def test_a_cluster_that_comes_back_and_does_not_answer_yet_is_asked_again() -> None:
    cluster = LocalCluster(slots=2)
    async with site(cluster) as here:
        await here.until(lambda: here.dispatcher.state().state == "open")
        cluster.go_away()
        await here.until(lambda: here.dispatcher.state().state == "away")
        asked = cluster.asked
        cluster.tell(CameBack())
        await here.until(lambda: cluster.asked > asked)
        assert here.dispatcher.state().state == "away"
        cluster.refuses = None
        assert (await here.ended(await here.start(loop())))["status"] == "completed"


@in_loop
async def test_jobs_that_the_cluster_drops_are_not_given_to_it_again_at_once() -> None:
    cluster = LocalCluster()
    cluster.held = True
    async with site(cluster) as here:
        run = await here.start(loop())
        await here.until(lambda: len(cluster.queue) == 4)
        dropped = [ticket for ticket, _ in cluster.queue]
        cluster.queue.clear()
        cluster.tell(*(Lost(ticket, "the cluster dropped it", worker=False) for ticket in dropped))
        await here.until(lambda: len(here.losses(run)) == 4)
        await here.until(lambda: len(cluster.submitted) > 4)
        reason = here.dispatcher.state().reason
        assert reason == "the cluster dropped it; the next try is in 1 s"
        assert len(cluster.queue) == 1, "one job alone, to see"
        cluster.held = False
        cluster.go_on()
        assert (await here.ended(run))["status"] == "completed"
        assert here.dispatcher.state().reason == ""
        assert here.dispatcher.state().losses == {"cluster": 4}


@in_loop
async def test_a_job_that_was_dropped_does_not_wait_for_those_that_are_at_work() -> None:
    cluster = LocalCluster(slots=2)
    with gate() as held:
        async with site(cluster, "queue=0", toolbox=tools()) as here:
            long = await here.start(GATED)
            await here.until(lambda: held.entered)
            cluster.held = True
            short = await here.start(step())
            await here.until(lambda: cluster.queue)
            ticket, _ = cluster.queue.popleft()
            cluster.held = False
            cluster.tell(Lost(ticket, "the cluster dropped it", worker=False))
            assert (await here.ended(short))["status"] == "completed"
            held.open.set()
            assert (await here.ended(long))["status"] == "completed"


@in_loop
async def test_a_second_start_of_a_ticket_is_the_loss_of_the_first_worker() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=1), "queue=0", toolbox=tools()) as here:
            run = await here.start(GATED)
            await here.until(lambda: held.entered)
            ticket = here.cluster.submitted[0]
            here.cluster.tell(Started(ticket, "worker-9", "another"))
            await here.until(lambda: len(here.cluster.submitted) == 2)
            ((reason, counted, worker),) = here.losses(run)
            assert "worker-1 was lost; the cluster began it again on worker-9" in reason
            assert counted
            assert worker
            assert (ticket, False) in here.cluster.cancelled
            held.open.set()
            assert (await here.ended(run))["status"] == "completed"


@in_loop
async def test_a_result_of_a_lost_attempt_is_recorded_as_late_and_changes_nothing() -> None:
    said: list[bytes] = []

    def listening(blob: bytes, tell: Callable[[str, bytes], None]) -> bytes:
        said.append(perform(blob, tell))
        return said[-1]

    cluster = LocalCluster(slots=1, perform=listening)
    with gate() as held:
        async with site(cluster, toolbox=tools()) as here:
            one = await here.ended(await here.start(step()))
            assert one["status"] == "completed"
            run = await here.start(GATED)
            await here.until(lambda: held.entered)
            ticket = cluster.submitted[1]
            cluster.running.pop(ticket)
            cluster.tell(Started(ticket, "worker-9", "another"))
            await here.until(lambda: held.entered == 2)
            cluster.tell(Finished(ticket, "worker-2", said[0]))
            await here.until(lambda: here.events(run, e.JobLate))
            (late,) = here.events(run, e.JobLate)
            assert (late.attempt, late.worker, late.outcome) == (1, "worker-2", "ok")
            assert here.dispatcher.state().late == 1
            held.open.set()
            shown = await here.ended(run)
            assert shown["result"] == "through"


@in_loop
async def test_what_the_cluster_cannot_do_or_give_back_fails_the_job_with_its_reason() -> None:
    cluster = LocalCluster()
    cluster.held = True
    async with site(cluster) as here:
        run = await here.start(step())
        await here.until(lambda: cluster.submitted)
        cluster.tell(Unusable(cluster.submitted[0], "it cannot be pickled"))
        shown = await here.ended(run)
        assert shown["status"] == "failed"
        assert shown["problem"]["message"] == "it cannot be pickled"


@in_loop
async def test_a_cluster_that_is_unfit_says_why_and_gets_nothing() -> None:
    cluster = LocalCluster()
    cluster.refuses = BackendUnfit("the worker w1 has Python 3.9")
    async with site(cluster) as here:
        await here.start(step())
        await here.until(lambda: here.dispatcher.state().state == "unfit")
        assert here.dispatcher.state().reason == "the worker w1 has Python 3.9"
        assert cluster.submitted == []


@in_loop
async def test_what_the_cluster_has_is_said_in_numbers_that_agree_with_their_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "anabranch.pools"):
        for slots in (1, 2):
            async with site(LocalCluster(slots)) as here:
                assert (await here.ended(await here.start(step())))["status"] == "completed"
    one, two = [said for said in caplog.messages if "is there" in said]
    assert "1 worker, 1 job at once" in one
    assert "2 workers, 2 jobs at once" in two


@in_loop
async def test_a_cluster_without_workers_gets_nothing_until_one_comes() -> None:
    cluster = LocalCluster(slots=0)
    async with site(cluster) as here:
        run = await here.start(step())
        await here.until(lambda: here.dispatcher.state().state == "open")
        assert cluster.submitted == []
        cluster.slots = 1
        assert (await here.ended(run))["status"] == "completed"


@in_loop
async def test_a_cluster_that_accepts_and_never_begins_gives_the_jobs_back_and_is_said() -> None:
    cluster = LocalCluster()
    cluster.held = True
    async with site(cluster, "begin=0.1") as here:
        dispatcher, soon = here.dispatcher, here.dispatcher.pool
        await here.until(lambda: dispatcher.state().state == "open")
        patient = msgspec.structs.replace(soon, begin_seconds=HANG_SECONDS)
        dispatcher.pool = patient
        run = await here.start(loop())
        await here.until(lambda: len(cluster.queue) == 4)
        dispatcher.pool = soon
        await here.until(lambda: dispatcher.state().state == "unfit")
        dispatcher.pool = patient  # what goes out from now on has time
        state = dispatcher.state()
        assert "has begun none for 0.1 s" in state.reason
        assert "2 of its 2 slots are free" in state.reason
        await here.until(lambda: len(here.losses(run)) == 4)
        assert {one[1:] for one in here.losses(run)} == {(False, False)}
        await here.until(lambda: len(cluster.submitted) > 4 and cluster.queue)
        assert len(cluster.queue) == 1, "one job alone, to see"
        cluster.held = False
        cluster.go_on()
        assert (await here.ended(run))["status"] == "completed"
        assert here.dispatcher.state().state == "open"
        assert here.dispatcher.state().reason == ""


# -- stopping --------------------------------------------------------------------------------


@in_loop
async def test_cancelling_a_run_withdraws_what_is_queued_and_stops_what_runs() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=2), toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered == 2 and len(here.cluster.submitted) == 4)
            await here.parts.verbs.send(run, s.Cancel("ann"))
            assert (await here.ended(run))["status"] == "cancelled"
            assert not here.cluster.queue
            assert not here.cluster.running
            how = [event.how for event in here.events(run, e.JobDischarged)]
            assert how.count("stopped") == 4
            assert held.entered == 2
            assert here.dispatcher.state().withdrawn == 4


async def too_long(limit: str, seconds: float) -> bool:
    """Whether it came to work before it was stopped."""
    texts = {
        "task": step(f"{{kind: wait_at_gate, timeout: {seconds}s}}"),
        "step": step("{kind: wait_at_gate}", f", timeout: {seconds}s"),
    }
    with gate() as held:
        async with site(LocalCluster(slots=1), "queue=0", toolbox=tools()) as here:
            run = await here.start(texts[limit])
            shown = await here.ended(run)
            assert shown["status"] == "failed"
            await here.until(lambda: not here.cluster.running)
            await here.until(lambda: not here.dispatcher.state().tickets)
            how = e.JobTimedOut if limit == "task" else e.JobCancelling
            assert not held.entered or here.events(run, how)
            return held.entered > 0


@pytest.mark.parametrize("limit", ["task", "step"])
def test_a_job_that_takes_too_long_is_stopped_on_the_cluster(limit: str) -> None:
    assert any(asyncio.run(too_long(limit, seconds)) for seconds in PATIENCE)


@in_loop
async def test_the_time_of_a_job_begins_when_the_cluster_begins_it() -> None:
    cluster = LocalCluster(slots=1)
    cluster.held = True
    with gate() as held:
        async with site(cluster, toolbox=tools()) as here:
            run = await here.start(step("{kind: wait_at_gate, timeout: 300s}"))
            await here.until(lambda: cluster.queue)
            assert here.parts.engine.state(run).jobs["1.0"].until == 0
            cluster.held = False
            cluster.go_on()
            await here.until(lambda: here.events(run, e.JobExtended))
            assert here.parts.engine.state(run).jobs["1.0"].until > 0
            held.open.set()
            assert (await here.ended(run))["status"] == "completed"


@in_loop
async def test_work_that_does_not_stop_is_stopped_by_force_after_the_grace() -> None:
    cluster = LocalCluster(slots=1)
    cluster.deaf = True
    with gate() as held:
        async with site(cluster, "grace=0.1", toolbox=tools()) as here:
            run = await here.start(GATED)
            await here.until(lambda: held.entered)
            await here.parts.verbs.send(run, s.Cancel("ann"))
            await here.until(lambda: cluster.cancelled)
            here.dispatcher._stopper._grace = HANG_SECONDS  # for the word that it is lost
            assert (await here.ended(run))["status"] == "cancelled"
            assert cluster.cancelled == [
                (cluster.submitted[0], False),
                (cluster.submitted[0], True),
            ]
            (discharged,) = here.events(run, e.JobDischarged)
            assert discharged.how == "lost"


@in_loop
async def test_fail_fast_stops_the_other_shards_on_the_cluster() -> None:
    text = loop('{kind: python, code: "1 / (1 if n else 0)", args: {n: "{{ iter.n }}"}}')
    text = text.replace("max_concurrent: 6", "max_concurrent: 6, fail_fast: true")
    async with site(LocalCluster(slots=1)) as here:
        shown = await here.ended(await here.start(text))
        assert shown["status"] == "failed"
        assert not here.cluster.queue
        assert len(here.cluster.submitted) < 10


@in_loop
async def test_a_paused_run_sends_nothing_more_and_goes_on_when_it_is_resumed() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=1), "queue=0", toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered)
            await here.parts.verbs.send(run, s.Pause("ann"))
            held.open.set()
            await here.until(lambda: not here.dispatcher.state().tickets)
            sent = len(here.cluster.submitted)
            other = await here.start(step())
            assert (await here.ended(other))["status"] == "completed"
            assert len(here.cluster.submitted) == sent + 1
            await here.parts.verbs.send(run, s.Resume("ann"))
            assert (await here.ended(run))["status"] == "completed"


@in_loop
async def test_pausing_a_run_withdraws_what_the_cluster_has_not_begun() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=1), "queue=3", toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered and len(here.cluster.queue) == 3)
            await here.parts.verbs.send(run, s.Pause("ann"))
            await here.until(lambda: not here.cluster.queue)
            await here.until(lambda: len(here.losses(run)) == 3)
            assert here.losses(run) == [("its run was paused", False, False)] * 3
            assert here.cluster.running, "what has begun goes on"
            held.open.set()
            await here.until(lambda: not here.dispatcher.state().tickets)
            assert len(here.cluster.submitted) == 4
            await here.parts.verbs.send(run, s.Resume("ann"))
            assert (await here.ended(run))["status"] == "completed"
            assert here.dispatcher.state().withdrawn == 3


@in_loop
async def test_a_smaller_window_is_kept_on_the_cluster() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=6), toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered == 6)
            await here.parts.verbs.send(run, s.TuneLoop("start", 1))
            here.cluster.most_out = 0
            held.open.set()
            assert (await here.ended(run))["status"] == "completed"
            assert len(here.cluster.submitted) == 10
            assert here.cluster.most_out == 1, "of the four shards that came after"


@in_loop
async def test_a_smaller_window_withdraws_what_the_cluster_has_not_begun() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=2), "queue=3", toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered == 2 and len(here.cluster.queue) == 3)
            await here.parts.verbs.send(run, s.TuneLoop("start", 1))
            await here.until(lambda: len(here.dispatcher.state().tickets) == 2)
            assert not here.cluster.queue
            assert len(here.cluster.running) == 2, "what has begun goes on"
            assert not here.losses(run), "to be taken back from a queue is no loss"
            here.cluster.most_out = 0
            held.open.set()
            assert (await here.ended(run))["status"] == "completed"
            assert here.dispatcher.state().withdrawn == 3
            assert here.cluster.most_out == 1


@in_loop
async def test_a_window_that_was_narrowed_and_widened_again_loses_no_shard() -> None:
    with gate() as held:
        async with site(LocalCluster(slots=1), "queue=5", toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered and len(here.cluster.queue) == 5)
            for window in (3, 6, 1, 4):
                await here.parts.verbs.send(run, s.TuneLoop("start", window))
            await here.until(lambda: len(here.cluster.queue) == 3)
            held.open.set()
            shown = await here.ended(run)
            assert shown["status"] == "completed"
            assert shown["result"]["succeeded"] == 40


# -- the end of a server ---------------------------------------------------------------------


@in_loop
async def test_an_orderly_stop_takes_everything_back_and_costs_no_attempt() -> None:
    with gate() as held:
        cluster = LocalCluster(slots=2)
        store = open_store(Settings(store=":memory:"))
        async with site(cluster, store=store, toolbox=tools()) as here:
            run = await here.start(loop("{kind: wait_at_gate}"))
            await here.until(lambda: held.entered == 2 and len(cluster.submitted) == 4)
        assert cluster.closed
        held.open.set()
        async with site(LocalCluster(), store=store, toolbox=tools()) as here:
            assert (await here.ended(run))["status"] == "completed"
            assert here.losses(run) == [("its server stops", False, False)] * 4
        store.close()
