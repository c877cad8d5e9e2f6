"""Items done by one call each come to exactly what the longer ways would have made of them."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from anabranch.expressions.jinja.jinja import all_plain
from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer, ContextPatch, failed, succeeded
from anabranch.net.program import Iteration, Program, TaskSpec
from anabranch.work.kinds import callables
from anabranch.work.kinds.callables import CallOfItem, Tool, Toolbox
from anabranch.work.kinds.threads import Threads
from anabranch.work.loops import shards
from anabranch.work.loops.collections.port import NumberedItems
from anabranch.work.loops.shards import Shards
from anabranch.work.pipeline.item_calls import call_plan
from anabranch.work.pipeline.pipeline import Services
from hangs import HANG_SECONDS

from ..support import run
from .pipelines import rule, shard_task, spec

PATH = ("local", "iter", "n")
ITEM = "{{ local.iter.n }}"
RESULT_PATH = ("local", "outcome", "result")
RESULT = "{{ local.outcome.result }}"


class Items:
    def __init__(self, *values: Any) -> None:
        self._items = [(index, f"k{index}", value) for index, value in enumerate(values)]

    async def items(self, _source: Any, shard: Shard, **_more: Any) -> list[tuple[int, str, Any]]:
        wanted = frozenset(shard.only)
        return [item for item in self._items if not wanted or item[0] in wanted]


def iteration_of(made: TaskSpec, **more: Any) -> Iteration:
    return Iteration(Program((made,)), "n", **{"item": PATH, "result": RESULT_PATH, **more})


async def cross(
    threads: Threads,
    call: Callable[..., Any],
    iteration: Iteration,
    shard: Shard,
    items: Any,
    *,
    blocking: bool,
    progress: Any = None,
) -> Answer:
    toolbox = Toolbox()
    toolbox.add("t", call, blocking=blocking)
    services = Services(performers=toolbox.performers(threads))
    task = shard_task(iteration, shard)
    if progress is not None:
        task = msgspec.structs.replace(task, progress=progress)
    answer = await Shards(services, items).perform(task)
    assert isinstance(answer, Answer)
    assert answer.shard is not None
    return answer


def crossed(*given: Any, **more: Any) -> Answer:
    """One crossing, in a loop and with threads of its own."""

    async def scenario() -> Answer:
        threads = Threads(2)
        answer = await cross(threads, *given, **more)
        await threads.close()
        return answer

    return run(scenario())


@contextmanager
def only_pipelines() -> Iterator[None]:
    """Nothing is done by one call for an item."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "call_plan", lambda *_given: None)
        yield


def plain(answer: Answer) -> Any:
    """All but the time it took."""
    report = answer.shard
    assert report is not None
    told = (report.succeeded, report.failed, report.shared, report.unbegun, report.ways)
    return answer.status, answer.result, answer.patches, told, report.keys, report.tasks


class Odd(Exception):
    pass


def raising(error: BaseException) -> Callable[[Any], Any]:
    def call(n: Any) -> Any:
        if n == 2:
            raise error.with_traceback(None)  # or it grows with every raise
        return n

    return call


def answering(answer: Any) -> Callable[[Any], Any]:
    return lambda n: answer if n == 2 else n


CALLS: dict[str, Callable[..., Any]] = {
    "echo": lambda n: n,
    "null": lambda n: None,  # noqa: ARG005
    "text": lambda n: f"{n} zażółć",
    "surrogate": lambda n: "\ud800" if n == 1 else "x",
    "list": lambda n: [n, (n,), {"a": n}],
    "float": lambda n: 0.5,  # noqa: ARG005
    "nan": lambda n: math.nan if n == 1 else 1.0,
    "object": lambda n: object() if n == 2 else n,
    "large": lambda n: 2**200,  # noqa: ARG005
    "true": lambda n: n == 1,
    "raises": raising(ValueError("broken")),
    "times out": raising(TimeoutError("slow")),
    "loses contact": raising(ConnectionError("gone")),
    "raises one of ours": raising(Odd("odd")),
    "exits": raising(SystemExit(3)),
    "answers": answering(succeeded({"a": 1})),
    "fails": answering(failed("boom", "it failed")),
    "fails for good": answering(failed("boom", "it failed", retryable=False)),
    "writes": answering(succeeded(1, patches=(ContextPatch("seen", 5),))),
    "aborts": answering(Answer(status="aborted")),
    "answers with what is not JSON": answering(Answer(status="ok", result=object())),
}
VALUES: dict[str, list[Any]] = {
    "numbers": [0, 1, 2, 3, 4],
    "texts": ["", "a", "2", "zażółć", "x" * 1000],
    "mixed": [None, True, 1.5, 2, {"a": [1]}, [2, [3]], -(2**63), 2**63],
    "too large": [1, 2**64, 2, math.inf],
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_and_pipelines_come_to_the_same(call: str) -> None:
    async def scenario() -> list[Any]:
        threads = Threads(2)
        different = []
        for values, stops, blocking in itertools.product(VALUES, (False, True), (False, True)):
            iteration = iteration_of(spec("t", inputs={"n": ITEM}), stops=stops)
            shard = Shard(0, 0, len(VALUES[values]))
            given = (threads, CALLS[call], iteration, shard, Items(*VALUES[values]))
            short = await cross(*given, blocking=blocking)
            with only_pipelines():
                long = await cross(*given, blocking=blocking)
            if plain(short) != plain(long):
                different.append((values, stops, blocking, plain(short), plain(long)))
        await threads.close()
        return different

    assert run(scenario()) == []


REDUCERS = ("set", "sum", "min", "max", "append", "merge")
SHARED: dict[str, TaskSpec] = {
    **{
        reducer: spec("t", rule(None, "continue", set_shared={"a": (RESULT, reducer)}), value=ITEM)
        for reducer in REDUCERS
    },
    "by the task": spec("t", set_shared={"a": (RESULT, "sum")}, value=ITEM),
    "a constant": spec("t", set_shared={"a": ("1", "append"), "b": (RESULT, "max")}, value=ITEM),
    "task and rule": spec(
        "t", rule(None, "break", set_shared={"a": (RESULT, "sum")}), set_shared={"a": 5}, value=ITEM
    ),
    "nothing": spec("t", rule(None, "continue"), value=ITEM),
}


def noting(call: str, seen: list[Any]) -> Callable[[Any], Any]:
    """The call, which writes down what it is called with."""

    def noted(value: Any) -> Any:
        seen.append(value)
        return CALLS[call](value)

    return noted


async def share(
    threads: Threads, call: str, iteration: Iteration, *, blocking: bool
) -> tuple[list[Any], list[Any]]:
    """What it comes to for each of the values, and what was called."""
    seen: list[Any] = []
    tool = noting(call, seen)
    assert calls_of(iteration, tool, blocking=blocking) is not None
    answers = []
    for values in VALUES.values():
        shard = Shard(0, 0, len(values))
        answer = await cross(threads, tool, iteration, shard, Items(*values), blocking=blocking)
        answers.append(plain(answer))
    return answers, seen


@pytest.mark.parametrize("call", CALLS)
def test_what_calls_share_is_what_pipelines_share(call: str) -> None:
    """And no item is called that would not have been called by itself."""

    async def scenario() -> list[Any]:
        threads = Threads(2)
        different = []
        for shares, stops, blocking in itertools.product(SHARED, (False, True), (False, True)):
            iteration = iteration_of(SHARED[shares], stops=stops)
            short = await share(threads, call, iteration, blocking=blocking)
            with only_pipelines():
                long = await share(threads, call, iteration, blocking=blocking)
            if short != long:
                different.append((shares, stops, blocking, short, long))
        await threads.close()
        return different

    assert run(scenario()) == []


class AtHand(Items):
    def at_hand(self, _source: Any, shard: Shard) -> list[tuple[int, str, Any]]:
        return [item for item in self._items if item[0] in (shard.only or (shard.first,))]

    async def items(self, _source: Any, shard: Shard, **_more: Any) -> list[tuple[int, str, Any]]:
        return self.at_hand(_source, shard)


#: One of each kind of value.
ALONE = (0, 1, 2, "", "2", "zażółć", None, True, 1.5, {"a": [1]}, [2, [3]], 2**63, 2**64, math.inf)


async def compare_one_at_a_time(call: str, shares: str) -> list[Any]:
    """The items of which a call at once makes something else than a pipeline does."""
    calls: list[Any] = []
    toolbox = Toolbox()
    toolbox.add("t", noting(call, calls), blocking=False)
    services = Services(performers=toolbox.performers(Threads(1)))
    calling, walking = (Shards(services, AtHand(*ALONE)) for _ in range(2))
    different: list[Any] = []
    for keeps, index in itertools.product((True, False), range(len(ALONE))):
        iteration = iteration_of(SHARED[shares], keep_results=keeps, retries=1)
        for shard in (Shard(0, index, 1), Shard(0, 0, len(ALONE), only=(index,), tries=1)):
            task = shard_task(iteration, shard)
            short = calling.perform_at_once(task)
            with only_pipelines():
                assert walking.perform_at_once(task) is None
                long = await walking.perform(task)
            assert isinstance(short, Answer)
            assert isinstance(long, Answer)
            if plain(short) != plain(long):
                different.append((shares, keeps, shard, plain(short), plain(long)))
    if calls[::2] != calls[1::2]:
        different.append((shares, "each item is called once by both ways", calls))
    return different


@pytest.mark.parametrize("call", CALLS)
def test_an_item_that_is_called_at_once_comes_to_the_same(call: str) -> None:
    """Alone in its shard, or the only one of its shard that is tried again."""

    async def scenario() -> list[Any]:
        return [one for shares in SHARED for one in await compare_one_at_a_time(call, shares)]

    assert run(scenario()) == []


def test_what_is_shared_belongs_to_items_that_are_over_at_every_checkpoint() -> None:
    """A worker that is lost between two trips has not shared what it does not count."""
    seen: list[tuple[int, int]] = []
    underway: list[Any] = []

    def look(value: int) -> int:
        point = underway[0].checkpoint()
        seen.append((sum(stop - start for start, stop in point.over), point.shared.get("a", 0)))
        return 1

    toolbox = Toolbox()
    toolbox.add("t", look, blocking=False)
    iteration = iteration_of(spec("t", set_shared={"a": (RESULT, "sum")}, value=ITEM))

    async def scenario() -> Answer:
        services = Services(performers=toolbox.performers(Threads(1)))
        heed = lambda _task, crossing: underway.append(crossing)  # noqa: E731
        given = Items(*range(300))
        done = await Shards(services, given, heed).perform(shard_task(iteration, Shard(0, 0, 300)))
        assert isinstance(done, Answer)
        return done

    answer = run(scenario())
    assert answer.shard is not None
    assert answer.shard.shared == {"a": 300}
    assert len(seen) == 300
    assert all(over == shared for over, shared in seen)


SHAPES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "under args": ({"args": {"n": ITEM}}, lambda n: n),
    "second parameter": ({"n": ITEM}, lambda a=1, n=2: [a, n]),
    "by name only": ({"n": ITEM}, lambda *, n: n),
    "with constants": ({"n": ITEM, "a": 7, "b": "x", "c": None}, lambda n, a, b, c: [n, a, b, c]),
    "twice": ({"n": ITEM, "m": ITEM}, lambda n, m: [n, m]),
    "the rest": ({"n": ITEM, "m": 5}, lambda **rest: rest),
}
#: Where the values decide, or more than the item is read: the longer ways.
LONGER: dict[str, tuple[Any, Callable[..., Any]]] = {
    "the item as arguments": ({"args": ITEM}, lambda **rest: rest),
    "computed": ({"n": "{{ local.iter.n * 2 }}"}, lambda n: n),
    "in a list": ({"n": [ITEM]}, lambda n: n),
    "in a mapping": ({"n": {"a": ITEM}}, lambda n: n),
    "text around it": ({"n": "<{{ local.iter.n }}>"}, lambda n: n),
    "the index": ({"n": "{{ local.iter.index }}"}, lambda n: n),
    "the context": ({"n": "{{ ctx.name }}"}, lambda n: n),
    "deeper": ({"n": "{{ local.iter.n.a | default(1) }}"}, lambda n: n),
    "told of its task": ({"n": ITEM}, lambda n, task: [n, task.key]),
    "a parameter is missing": ({"n": ITEM}, lambda n, m: [n, m]),
    "one too many": ({"n": ITEM, "m": 1}, lambda n: n),
}


@pytest.mark.parametrize("shape", [*SHAPES, *LONGER])
def test_every_shape_of_arguments_comes_to_the_same(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, call = {**SHAPES, **LONGER}[shape]
    iteration = iteration_of(spec("t", inputs=inputs))
    items = Items(1, 2, 3)
    found = [crossed(call, iteration, Shard(0, 0, 3), items, blocking=one) for one in (True, False)]
    monkeypatch.setattr(shards, "call_plan", lambda *_given: None)
    long = crossed(call, iteration, Shard(0, 0, 3), items, blocking=True)
    assert [plain(one) for one in found] == [plain(long)] * 2


def calls_of(iteration: Iteration, call: Callable[..., Any] = lambda n: n, **more: Any) -> Any:
    toolbox = Toolbox()
    toolbox.add("t", call, **more)
    services = Services(performers=toolbox.performers(Threads(1)))
    return call_plan(iteration, services)


@pytest.mark.parametrize("shape", SHAPES)
def test_arguments_that_are_made_of_the_item_take_the_short_way(shape: str) -> None:
    inputs, call = SHAPES[shape]
    assert calls_of(iteration_of(spec("t", inputs=inputs)), call) is not None


@pytest.mark.parametrize("shape", LONGER)
def test_other_arguments_take_the_longer_way(shape: str) -> None:
    inputs, call = LONGER[shape]
    assert calls_of(iteration_of(spec("t", inputs=inputs)), call) is None


@pytest.mark.parametrize(
    "made",
    [
        spec("t", rule("true", "continue"), inputs={"n": ITEM}),
        spec("t", rule(None, "fail"), inputs={"n": ITEM}),
        spec("t", rule(None, "retry"), inputs={"n": ITEM}),
        spec("t", rule(None, "continue"), rule(None, "fail"), inputs={"n": ITEM}),
        spec("t", rule(None, "continue", set_ctx={"a": "1"}), inputs={"n": ITEM}),
        spec("t", inputs={"n": ITEM}, set_shared={"a": "{{ local.outcome.result + 1 }}"}),
        spec("t", inputs={"n": ITEM}, set_shared={"a": ITEM}),
        spec("t", inputs={"n": ITEM}, set_shared={"a": [1]}),
        spec("t", inputs={"n": ITEM}, timeout_ms=5),
        spec("t", inputs={"n": ITEM}, set_ctx={"a": "1"}),
        spec("t", inputs={"n": ITEM}, output={"scope": "step"}),
        spec("t"),
    ],
)
def test_whatever_follows_the_call_takes_the_longer_way(made: TaskSpec) -> None:
    assert calls_of(iteration_of(made)) is None


def test_items_that_need_not_wait_for_each_other_are_not_put_in_a_row() -> None:
    made = spec("t", inputs={"n": ITEM})
    assert calls_of(iteration_of(made, parallel=True)) is None
    assert calls_of(iteration_of(made, parallel=True), blocking=False) is not None
    assert calls_of(iteration_of(made, item=())) is None, "nobody told where the item is"


def test_a_list_as_the_item_is_a_copy_for_every_call() -> None:
    seen: list[Any] = []

    def change(n: list[int]) -> int:
        seen.append(n)
        n.append(0)
        return len(n)

    shared = [1, 2]
    iteration = iteration_of(spec("t", inputs={"n": ITEM}))
    answer = crossed(change, iteration, Shard(0, 0, 2), Items(shared, shared), blocking=False)
    assert answer.result == [3, 3]
    assert shared == [1, 2]


def test_some_items_of_a_shard_give_results_by_index() -> None:
    iteration = iteration_of(spec("t", inputs={"n": ITEM}), stops=True)
    shard = Shard(0, 0, 5, only=(1, 2, 4))
    answer = crossed(
        raising(ValueError("no")), iteration, shard, Items(0, 1, 2, 3, 4), blocking=True
    )
    assert answer.result == {"1": 1}
    assert answer.shard is not None
    assert answer.shard.unbegun == (4,)


def test_items_of_a_checkpoint_are_not_called_again() -> None:
    seen: list[int] = []

    def noted(n: int) -> int:
        seen.append(n)
        return n

    iteration = iteration_of(spec("t", inputs={"n": ITEM}))
    before = {"checkpoint": {"over": [[0, 2]], "succeeded": 2, "results": ["a", "b"]}}
    answer = crossed(
        noted,
        iteration,
        Shard(0, 0, 4),
        Items(0, 1, 2, 3),
        blocking=True,
        progress=before,
    )
    assert seen == [2, 3]
    assert answer.result == ["a", "b", 2, 3]


def test_slow_calls_let_others_turn_and_are_seen_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if every call took longer than a trip: each comes back by itself."""
    monkeypatch.setattr("anabranch.work.kinds.callables.TRIP_SECONDS", -1.0)
    trips: list[int] = []
    real = Threads.run

    async def counted(threads: Threads, call: Callable[[], Any]) -> Any:
        found = await real(threads, call)
        trips.append(len(found))
        return found

    monkeypatch.setattr(Threads, "run", counted)
    iteration = iteration_of(spec("t", inputs={"n": ITEM}))
    crossed(lambda n: n, iteration, Shard(0, 0, 3), Items(1, 2, 3), blocking=True)
    assert trips == [1, 1, 1]


def test_a_cancel_begins_no_further_call_in_the_thread() -> None:
    toolbox = Toolbox()
    reached, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def hold(n: int) -> int:
        seen.append(n)
        reached.set()
        go_on.wait(HANG_SECONDS)
        return n

    toolbox.add("t", hold)
    iteration = iteration_of(spec("t", inputs={"n": ITEM}))

    async def scenario() -> None:
        threads = Threads(1)
        services = Services(performers=toolbox.performers(threads))
        task = shard_task(iteration, Shard(0, 0, 3))
        crossing = asyncio.ensure_future(Shards(services, Items(1, 2, 3)).perform(task))
        await asyncio.to_thread(reached.wait, HANG_SECONDS)
        crossing.cancel()
        await asyncio.wait([crossing])
        assert crossing.cancelled()
        go_on.set()
        await threads.run(lambda: None)  # behind the call that was on its way
        assert seen == [1]
        await threads.close()

    run(scenario())


def test_the_items_of_a_range_are_those_of_a_list() -> None:
    items = NumberedItems(5, range(100, 130, 10))
    assert list(items) == [(5, "5", 100), (6, "6", 110), (7, "7", 120)]
    assert len(items) == 3
    assert items[1] == (6, "6", 110)
    assert items[-1] == (7, "7", 120)
    assert items[1:] == [(6, "6", 110), (7, "7", 120)]
    with pytest.raises(IndexError):
        items[3]


def test_a_range_takes_the_short_way_with_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Numbered:
        async def items(self, _source: Any, shard: Shard, **_more: Any) -> NumberedItems:
            return NumberedItems(shard.first, range(shard.first, shard.first + shard.count))

    iteration = iteration_of(spec("t", inputs={"n": ITEM}), stops=True)
    call = lambda n: 10 // (13 - n)  # noqa: E731
    short = crossed(call, iteration, Shard(0, 10, 5), Numbered(), blocking=True)
    monkeypatch.setattr(shards, "call_plan", lambda *_given: None)
    long = crossed(call, iteration, Shard(0, 10, 5), Numbered(), blocking=True)
    assert plain(short) == plain(long)
    assert short.shard is not None
    assert short.shard.keys == ()
    assert short.shard.unbegun == (14,)


@pytest.mark.parametrize(
    ("values", "plain"),
    [
        (range(0), True),
        (range(3), True),
        (range(2**63 - 2, 2**63 + 2), False),
        ([], True),
        (["a", 1, True, None], True),
        ([2**63], False),
        ([-(2**63)], False),
        ([1, 1.5], False),
        ([{"a": 1}], False),
        ([[1]], False),
    ],
    ids=repr,
)
def test_plain_items_are_those_that_a_template_gives_as_they_are(
    values: Sequence[Any], plain: bool
) -> None:
    template = spec("t", inputs={"n": ITEM}).inputs.structure["n"]  # type: ignore[union-attr]
    assert all_plain(values) == plain
    assert not plain or all(template.given(value) is value for value in values)


@pytest.mark.parametrize("milliseconds", [0.01, 1.0, 10.0])
def test_calls_in_place_let_the_loop_turn_after_a_few_milliseconds(
    monkeypatch: pytest.MonkeyPatch, milliseconds: float
) -> None:
    now = 0.0

    def call(n: int) -> int:
        nonlocal now
        now += milliseconds / 1000
        return n

    monkeypatch.setattr("anabranch.work.kinds.callables.time.perf_counter", lambda: now)
    tool = Tool("t", call, "here")
    how = CallOfItem(None, call)
    found = tool.call_each(how, iter(range(10_000)), 0.005, Exception, (), callables.UNSEEN)
    assert found == list(range(len(found)))
    assert now <= max(0.008, milliseconds / 1000)
    assert len(found) >= 0.005 / (milliseconds / 1000) / 2
