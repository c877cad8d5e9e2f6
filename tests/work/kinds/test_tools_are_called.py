"""A decorated callable is a kind of work: how it is called, and what its outcome means."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, ContextPatch, failed, succeeded
from anabranch.work.kinds.callables import ImmediateTool, Toolbox
from anabranch.work.kinds.threads import Threads
from anabranch.work.port import Task

from ..support import fault_of, perform, run, task


def call(function: Callable[..., Any], blocking: bool | None = None, /, **inputs: Any) -> Answer:
    """The answer of a tool that consists of this function."""
    box = Toolbox()
    box.tool("price", blocking=blocking)(function)

    async def scenario() -> Answer:
        threads = Threads(2)
        try:
            return await perform(box.performers(threads)["price"], task("price", **inputs))
        finally:
            await threads.close()

    return run(scenario())


def price(sku: str, quantity: int = 1) -> dict[str, Any]:
    return {"sku": sku, "total": quantity * 2}


async def price_async(sku: str, quantity: int = 1) -> dict[str, Any]:
    await asyncio.sleep(0)
    return price(sku, quantity)


@pytest.mark.parametrize(
    ("function", "blocking"), [(price, None), (price, True), (price, False), (price_async, None)]
)
def test_inputs_are_matched_by_name(function: Any, blocking: bool | None) -> None:
    answer = call(function, blocking, sku="a", quantity=3)
    assert answer.status == "ok"
    assert answer.result == {"sku": "a", "total": 6}
    assert call(function, blocking, sku="a").result == {"sku": "a", "total": 2}
    assert call(function, blocking, args={"sku": "b"}).result == {"sku": "b", "total": 2}
    assert fault_of(call(function, blocking)).kind == "config"


def test_each_sort_runs_in_its_place() -> None:
    async def in_loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    def anywhere() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert call(in_loop).result is True
    assert call(anywhere).result is False
    assert call(anywhere, False).result is True


def test_a_tool_that_does_not_block_answers_in_place() -> None:
    box = Toolbox()
    box.tool("price", blocking=False)(price)
    performer = box.performers(Threads())["price"]
    assert isinstance(performer, ImmediateTool)
    assert performer.perform_now(task(sku="a")).result == {"sku": "a", "total": 2}


def test_the_rest_goes_to_double_star() -> None:
    def gather(first: int, **rest: Any) -> Any:
        return [first, rest]

    assert call(gather, first=1, b=2, args=3).result == [1, {"b": 2, "args": 3}]


def test_a_parameter_can_receive_the_task() -> None:
    def annotated(job: Task, sku: str) -> str:
        return f"{sku} {job.key}"

    def by_name(task) -> str:  # type: ignore[no-untyped-def]
        return str(task.step if isinstance(task, Task) else task)

    assert call(annotated, sku="a").result == "a run-1/job-1"
    assert call(by_name).result == "ship"
    assert call(by_name, task="an input of that name").result == "an input of that name"


def test_missing_and_unexpected_inputs_are_named() -> None:
    missing = fault_of(call(price, quantity=3))
    assert missing.kind == "config"
    assert not missing.retryable
    assert missing.message == "tool 'price' needs the input 'sku'; it was given 'quantity'"
    unexpected = fault_of(call(price, sku="a", quantiti=3))
    assert unexpected.message == (
        "tool 'price' has no parameter 'quantiti'; did you mean 'quantity'?"
    )
    assert "it takes 'quantity', 'sku'" in fault_of(call(price, sku="a", z=3)).message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no such sku"), "python"),
        (TimeoutError("too slow"), "timeout"),
        (ConnectionResetError("gone"), "connection"),
        (SystemExit(3), "python"),
        (StopIteration("end"), "python"),
    ],
)
@pytest.mark.parametrize("blocking", [True, False])
def test_exceptions_are_failures(error: BaseException, kind: str, blocking: bool) -> None:
    def fail() -> None:
        raise error

    fault = fault_of(call(fail, blocking))
    assert fault.kind == kind
    assert fault.message == f"{type(error).__name__}: {error}"
    assert fault.details["exception_type"] == type(error).__name__
    assert "in fail" in fault.details["traceback"]
    assert "callables.py" not in fault.details["traceback"]


def test_a_cancel_the_tool_met_inside_is_a_failure() -> None:
    async def fail() -> None:
        raise asyncio.CancelledError

    assert fault_of(call(fail)).message == "CancelledError"


def test_cancelling_an_async_tool_reaches_it() -> None:
    stopped: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append("yes")

    async def scenario() -> None:
        box = Toolbox()
        box.add("wait", wait)
        work = asyncio.ensure_future(perform(box.performers(Threads())["wait"], task()))
        await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    run(scenario())
    assert stopped == ["yes"]


def test_an_answer_passes_through() -> None:
    assert call(lambda: succeeded([1], outcome="valid"), False).outcome == "valid"
    refusal = fault_of(call(lambda: failed("stock", "sold out", retryable=False), False))
    assert (refusal.kind, refusal.retryable) == ("stock", False)
    assert fault_of(call(lambda: succeeded({1, 2}), False)).kind == "result"
    strange = fault_of(call(lambda: failed("stock", "sold out", details={"at": {1}}), False))
    assert "details.at is a set" in strange.message
    patched = succeeded(1, patches=(ContextPatch("total", {1}),))
    assert "the patch of 'total'" in fault_of(call(lambda: patched, False)).message


@pytest.mark.parametrize("blocking", [True, False])
def test_a_result_that_is_not_json_is_refused(blocking: bool) -> None:
    fault = fault_of(call(lambda: {"items": [{1}]}, blocking))
    assert fault.kind == "result"
    assert not fault.retryable
    assert fault.message.startswith("the result of tool 'price' is not JSON: result.items[0] is a")


def test_names_are_guarded() -> None:
    box = Toolbox()
    box.add("price", price)
    box.add("price", price)  # a module that is loaded again
    with pytest.raises(InputError, match=r"already .*:price; choose another"):
        box.add("price", price_async)
    with pytest.raises(InputError, match="cannot name a tool"):
        box.add("two words", price)
    assert "price" in box
    assert box.find("cost") is None
    assert len(box) == 1


def test_callables_that_cannot_be_matched_are_refused_at_once() -> None:
    def by_position(sku: str, /) -> None: ...

    with pytest.raises(TypeError, match="parameter 'sku' has no name"):
        Toolbox().add("price", by_position)
    with pytest.raises(TypeError, match="is async"):
        Toolbox().add("price", price_async, blocking=True)


def test_the_decorator_leaves_the_callable_alone() -> None:
    assert Toolbox().tool("price")(price) is price
