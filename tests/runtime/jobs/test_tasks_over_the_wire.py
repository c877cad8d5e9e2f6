"""A worker is given the same task as the engine would do, in every field.

Both are built from the same run: one by the engine for itself, the other from the JSON that a claim
is answered with. What the worker may have otherwise is named here, and nothing else is.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from anabranch.errors import ExpressionError
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import Job
from anabranch.kernel.values import postponed, succeeded
from anabranch.net.net import Loop, Retry, Work
from anabranch.runtime.jobs import tasks
from anabranch.runtime.jobs.tasks import build_task, task_of
from anabranch.runtime.jobs.wire import (
    ClaimedJob,
    SentItems,
    from_wire,
    refs_of,
    shared_names,
    to_wire,
)
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.payloads import lighten
from anabranch.runtime.values.sealing import Sealed
from anabranch.work.port import Task
from anabranch.work.values.payloads import encoded, hash_of
from kernel.driver import Run
from kernel.loop_reports import report
from kernel.nets import Fn, const, fan_net, net, step

NAMES = Fn(lambda names: {name: plain(value) for name, value in names.items()})
WORK = Work(
    kind="test",
    inputs=NAMES,
    program={"does": "something"},
    timeout_ms=7_000,
    pool="gpu",
    retry=Retry(attempts=3),
)
LARGE = {"text": "x" * 1000, "number": 7}


class Pair:
    """The two tasks of a job, and the payloads that both may read."""

    def __init__(self, run: Run, **live: Any) -> None:
        self.run = run
        self.payloads: dict[str, bytes] = {}
        self._live = live

    def put(self, value: Any) -> str:
        content = encoded(value)
        self.payloads[hash_of(content)] = content
        return hash_of(content)

    def stand_in(self, value: Any) -> Any:
        light = lighten(value, 100)
        self.payloads[light.sha256] = light.content
        return light.result

    def lease(self, step_name: str, nth: int = 0) -> Job:
        return self.run.begin(step_name, nth, worker="w1", lease_until=self.run.at + 60_000)

    def tasks(self, job: str, keyring: Any = None, items: Any = None) -> tuple[Task, Task]:
        live = LiveRun(self.run.net, self.run.state, holds_refs=True, **self._live)
        here = task_of(live, job, self.payloads.get, keyring, traces=True)
        sent = to_wire(live, job, self.payloads.get, traces=True)
        if items is not None:
            sent = msgspec.structs.replace(sent, items=items)
        claimed = msgspec.json.decode(msgspec.json.encode(sent), type=ClaimedJob)
        shared = msgspec.json.decode(msgspec.json.encode(shared_names(live)))
        fetched = {sha256: self.payloads[sha256] for sha256 in refs_of(claimed, shared)}
        there = from_wire(claimed, shared, self.run.net, fetched.get, keyring)
        return here, there

    def same(self, job: str, **how: Any) -> Task:
        """Compares every field, and gives the task."""
        here, there = self.tasks(job, **how)
        for name in Task.__struct_fields__:
            assert plain(getattr(there, name)) == plain(getattr(here, name)), name
        assert here.trace
        return there


def plain(value: Any) -> Any:
    """With lazy mappings read to their end."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def pooled(**start: Any) -> Pair:
    return Pair(Run(net(step("first", "far"), step("far", work=WORK)), **start))


def test_a_plain_step() -> None:
    pair = pooled(input={"n": 1}, labels={"tenant": "north"})
    pair.run.patch(seen=[1, 2])
    pair.run.done("first", {"answer": 42})
    task = pair.same(pair.lease("far").id)
    assert (task.tries, task.timeout_seconds, task.program) == (1, 7.0, WORK.program)
    assert task.inputs["results"] == {"first": {"answer": 42}}
    assert task.inputs["workload"] == {"n": 1}
    assert task.inputs["labels"] == {"tenant": "north"}


def test_a_plain_step_whose_values_are_too_large_to_travel() -> None:
    pair = pooled()
    pair.run.done("first", pair.stand_in(LARGE))
    task = pair.same(pair.lease("far").id)
    assert plain(task.names["results"])["first"]["text"] == LARGE["text"]


def test_a_step_that_failed_and_was_put_off_before() -> None:
    pair = pooled()
    pair.run.done("first")
    pair.run.fails("far")
    pair.run.tick(pair.run.at + 1)
    pair.run.answer("far", postponed("away", "the node is away", 50))
    pair.run.tick(pair.run.at + 50)
    task = pair.same(pair.lease("far").id)
    assert (task.attempt, task.tries, task.again) == (3, 2, ".r1")
    assert (task.postponed, task.postponed_ms) == (1, 50)


@pytest.mark.parametrize("slots", [["a", "b"], [{"who": "a"}, {"who": "b"}]])
def test_the_slots_of_a_fan(slots: list[Any]) -> None:
    pair = Pair(Run(fan_net(slots, "all", work=WORK)))
    for at, value in enumerate(slots):
        assert pair.same(pair.lease("ask", at).id).names["slot"] == value


def test_a_slot_that_is_too_large_to_travel() -> None:
    pair = Pair(Run(net(step("a"))))
    pair.run = Run(fan_net([pair.stand_in(LARGE)], "all", work=WORK))
    slot = pair.same(pair.lease("ask").id).names["slot"]
    assert slot["text"] == LARGE["text"]


def test_who_answered_a_fan_before() -> None:
    pair = pooled()
    pair.run.done("first")
    job = pair.lease("far").id
    pair.run.state.answered_by = {"first": "ada"}
    assert pair.same(job).names["answered_by"] == {"first": "ada"}


def looped(source: Any) -> Pair:
    loop = Loop(const(source), mode="fanout", window=const(3), shard_size=2, item_retries=1)
    return Pair(Run(net(step("each", work=WORK, loop=loop))))


def test_the_shards_of_a_loop() -> None:
    pair = looped(["a", "b", "c"])
    for at in (0, 1):
        task = pair.same(pair.lease("each", at).id)
        assert task.shard.first == 2 * at
        assert (task.inputs, task.timeout_seconds) == ({"at_once": 3}, 7.0)
        assert task.loop


def test_the_items_of_a_shard_that_go_out_once_more() -> None:
    pair = looped(["a", "b"])
    job = pair.lease("each")
    shard = pair.run.state.loops["l1"].in_flight[job.id]
    pair.run.send(s.JobReport(job.id, 1, report(shard, {1})))
    task = pair.same(pair.lease("each").id)
    assert (task.shard.only, task.again) == ((1,), ".r1")


def test_a_shard_differs_only_in_its_source_where_its_items_came_along() -> None:
    pair = looped(["a", "b"])
    items = [(0, "0", "a"), (1, "1", "b")]
    here, there = pair.tasks(pair.lease("each").id, items=items)
    assert there.source == SentItems(items)
    assert msgspec.structs.replace(there, source=here.source) == here


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_pipeline_that_was_parked(large: bool) -> None:
    pair = pooled()
    memory, heard = {"task": 2, **LARGE}, {"said": "yes", **LARGE}
    fit = pair.stand_in if large else plain
    pair.run.done("first")
    job = pair.lease("far")
    pair.run.send(s.JobPark(job.id, 1, "child-7", memory=fit(memory)))
    pair.run.send(s.JobReport(job.id, 1, succeeded(fit(heard))))
    task = pair.same(pair.lease("far").id)
    assert task.attempt == 2
    assert plain(task.memory) == memory
    assert task.heard is not None
    assert plain(task.heard.result)["text"] == LARGE["text"]


@pytest.mark.parametrize("large", [False, True], ids=["told", "as a payload"])
def test_an_attempt_that_was_lost_with_its_checkpoint(large: bool) -> None:
    pair = looped(["a", "b"])
    checkpoint = {"over": [[0, 1]], "succeeded": 1}
    said = {"payload": pair.put(checkpoint)} if large else {"checkpoint": checkpoint}
    job = pair.lease("each")
    pair.run.send(s.JobProgress(job.id, 1, said))
    pair.run.send(s.JobLose(job.id, 1, "its lease ran out"))
    task = pair.same(pair.lease("each").id)
    assert (task.attempt, task.tries, task.again) == (2, 1, "")
    assert task.progress == {"checkpoint": checkpoint}


def test_a_checkpoint_that_is_gone_is_not_there_for_either() -> None:
    pair = looped(["a", "b"])
    job = pair.lease("each")
    pair.run.send(s.JobProgress(job.id, 1, {"payload": pair.put({"over": []})}))
    pair.run.send(s.JobLose(job.id, 1, "its lease ran out"))
    pair.payloads = dict.fromkeys(pair.payloads, b"damaged")
    assert pair.same(pair.lease("each").id).progress is None


MARK = "***1.0123456789abcdef***"


def sealed(**live: Any) -> Pair:
    work = msgspec.structs.replace(WORK, inputs=Fn(lambda names: {"pw": names["workload"]["pw"]}))
    run = Run(net(step("far", work=work)), input={"pw": MARK, "n": 1}, sealed=("pw",))
    return Pair(run, **live)


def test_secrets_that_a_parent_put_into_the_input() -> None:
    pair = sealed(sealed=Sealed({MARK: "sesame"}))
    task = pair.same(pair.lease("far").id, keyring={"other": "mellon"})
    assert task.inputs == {"pw": "sesame"}
    assert task.names["keychain"] == {"other": "mellon"}


def test_a_secret_that_is_not_kept_is_an_error_on_both_sides() -> None:
    pair = sealed()
    job = pair.lease("far").id
    live = LiveRun(pair.run.net, pair.run.state)
    with pytest.raises(ExpressionError, match="secrets are not stored") as here:
        task_of(live, job, pair.payloads.get)
    claimed = msgspec.json.decode(
        msgspec.json.encode(to_wire(live, job, pair.payloads.get)), type=ClaimedJob
    )
    with pytest.raises(ExpressionError) as there:
        from_wire(claimed, shared_names(live), pair.run.net, pair.payloads.get)
    assert str(there.value) == str(here.value)


def test_secrets_of_a_server_that_does_not_say_in_which_keys_they_are() -> None:
    pair = sealed(sealed=Sealed({MARK: "sesame"}))
    job = pair.lease("far").id
    live = LiveRun(pair.run.net, pair.run.state, sealed=Sealed({MARK: "sesame"}))
    claimed = msgspec.structs.replace(to_wire(live, job, pair.payloads.get), sealed_keys=())
    older = {name: shared_names(live)[name] for name in ("workload", "ctx", "results", "labels")}
    task = from_wire(claimed, older, pair.run.net, pair.payloads.get)
    assert task.inputs == {"pw": "sesame"}
    assert task.names["answered_by"] == {}


def test_a_task_is_built_in_one_place_and_has_nothing_that_cannot_travel() -> None:
    worked_out = {"inputs", "names", "program"}  # from the definition, on either side
    fields = set(Task.__struct_fields__) - {"led_by"}  # of a call that no job is given
    assert fields - worked_out <= set(ClaimedJob.__struct_fields__)
    source = inspect.getsource(build_task) + inspect.getsource(tasks._after_earlier_executions)
    assert {name for name in fields if f"{name}=" not in source} == set()


def test_a_job_of_an_older_server_can_still_be_read() -> None:
    """Fields are only added, with a default: these are those that every server has sent."""
    older = (
        b'{"run":"run","step":"far","job":"2.0","attempt":2,"pool":"gpu","definition":"f",'
        b'"key":"run/2.0","kind":"test","lease_until":9,"lease_seconds":60.0,'
        b'"timeout_seconds":7.0,"inputs":{"n":1},"args":{},"payload":{},"again":".r1"}'
    )
    claimed = msgspec.json.decode(older, type=ClaimedJob)
    pair = pooled()
    task = from_wire(claimed, {"workload": {"n": 1}}, pair.run.net, pair.payloads.get)
    assert (task.inputs, task.tries, task.again) == ({"n": 1}, 1, ".r1")
    assert task.names["workload"] == {"n": 1}
    assert msgspec.json.decode(msgspec.json.encode(claimed)) == msgspec.json.decode(older)
