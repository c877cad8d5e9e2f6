"""Deferred operations: clamping, status, cancel, expiry, operations that nothing carries out."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.market.documents import check
from anabranch.market.node.deferred.clamp import (
    DeferredConfig,
    read_config,
    retry_seconds,
    ttl_ms,
)
from anabranch.market.node.deferred.laws import broken
from anabranch.market.node.deferred.part import FAMILIES, make
from anabranch.market.node.entities import Change
from anabranch.market.node.node import MakePart
from anabranch.market.node.ports import NodeContext
from anabranch.testing.market import NodeSpec, World
from in_loop import in_loop

KIND = "test.work"


class Owner:
    """A part that defers work of one kind, and is told of what was cancelled."""

    def __init__(self, context: NodeContext, cancelled: list[str], owns: bool) -> None:
        if owns:
            context.deferred.own(KIND, self._cancel)
        self._cancelled = cancelled

    async def _cancel(self, key: str) -> None:
        self._cancelled.append(key)

    def endpoints(self) -> Sequence[Any]:
        return ()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def wake(self, family: Any, thing: str) -> None: ...


class Deferring:
    """A world of one node whose operations a test opens and ends."""

    def __init__(self, config: Any = None) -> None:
        self.cancelled: list[str] = []
        self.owns = True
        spec = NodeSpec(name="a", config={"deferred": config} if config else {})
        self.world = World([spec], makers=self._makers)
        self.node = self.world["a"]

    def _makers(self) -> Sequence[MakePart]:
        owns = self.owns
        return [(make, FAMILIES), (lambda context: Owner(context, self.cancelled, owns), ())]

    def start(self, key: str = "k", **more: Any) -> str:
        return str(self._in_block("start", kind=KIND, key=key, owner="arca", **more))

    def run(self, operation_id: str) -> None:
        self._in_block("run", operation_id)

    def end(self, operation_id: str, status: str, **more: Any) -> bool:
        return bool(self._in_block("end", operation_id, status, **more))

    def _in_block(self, name: str, *args: Any, **more: Any) -> Any:
        assert self.node.node is not None
        context = self.node.node.context

        async def work() -> Any:
            with context.entities.change() as change:
                result = self._call(context, name, change, args, more)
            await context.entities.durable()
            return result

        return self.node.run(work())

    def _call(self, context: NodeContext, name: str, change: Change, args: Any, more: Any) -> Any:
        return getattr(context.deferred, name)(change, *args, **more)

    async def get(self, path: str, as_: str = "operator") -> Any:
        return await self.node.request("GET", f"/v1/deferred-operations{path}", as_=as_)

    async def cancel(self, operation_id: str, as_: str = "operator") -> Any:
        path = f"/v1/deferred-operations/{operation_id}/cancel"
        return await self.node.request("POST", path, as_=as_)

    def require_laws(self) -> None:
        assert self.node.run(broken(self.node.entities)) == []


# -- clamping --------------------------------------------------------------------------------

CONFIG = DeferredConfig(retry_seconds_min=2, retry_seconds_max=30, ttl_seconds_max=900.0)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [(None, 2), (0, 2), (-5, 2), (nan, 2), (2, 2), (7.2, 8), (30, 30), (31, 30), (1e30, 30)],
)
def test_the_time_to_ask_again_is_kept_between_the_hosts_limits(
    hint: float | None, expected: int
) -> None:
    assert retry_seconds(hint, CONFIG) == expected


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ([], 900_000),
        ([None, None, None], 900_000),
        ([10_000.0], 900_000),
        ([60.0, 30.0, None], 30_000),
        ([nan, 30.0], 30_000),
        ([0.0], 1),
        ([-3.0, 60.0], 1),
    ],
)
def test_a_promise_holds_for_the_shortest_hint_and_no_longer_than_the_host_allows(
    hints: list[float | None], expected: int
) -> None:
    assert ttl_ms(hints, CONFIG) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))))
def test_no_hint_moves_a_promise_out_of_its_limits(hints: list[float | None]) -> None:
    assert 1 <= ttl_ms(hints, CONFIG) <= 900_000
    for hint in hints:
        assert 2 <= retry_seconds(hint, CONFIG) <= 30


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"ttl_seconds_max": 0}, "deferred.ttl_seconds_max"),
        ({"retry_seconds_min": 0}, "deferred.retry_seconds_min"),
        ({"retry_seconds_min": 5, "retry_seconds_max": 4}, "deferred.retry_seconds_max"),
        ({"retry_seconds_max": 3601}, "deferred.retry_seconds_max"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_by_name(section: Any, named: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(section)
    assert named in caught.value.message


# -- the life of an operation ----------------------------------------------------------------


@in_loop
async def test_an_operation_is_promised_runs_and_is_completed() -> None:
    one = Deferring()
    operation_id = one.start(
        retry_seconds=5, ttl_seconds=[60.0], correlation_id="run:1", audit_ref="audit:1"
    )
    _, promise = await one.get(f"/{operation_id}")
    assert check(promise, kind="deferred-operation.v1", at=one.world.clock.now()) == []
    assert (promise["retry_after_seconds"], promise["correlation/id"]) == (5, "run:1")
    assert promise["expires_at"] == "2026-06-10T08:01:00.000Z"
    answer = await one.get(f"/{operation_id}/status")
    assert (answer.body["status"], answer.headers["Retry-After"]) == ("pending", "5")
    one.run(operation_id)
    assert (await one.get(f"/{operation_id}/status")).body["status"] == "running"
    assert one.end(operation_id, "completed", result={"x": 1})
    answer = await one.get(f"/{operation_id}/status")
    assert (answer.body["status"], answer.body["result"]) == ("completed", {"x": 1})
    assert "Retry-After" not in answer.headers
    assert check(answer.body, kind="deferred-operation-status.v1") == []
    one.require_laws()


@pytest.mark.parametrize(
    "status", ["completed", "failed", "timed-out", "cancelled", "expired", "unknown"]
)
@in_loop
async def test_the_first_end_of_an_operation_is_its_last(status: str) -> None:
    one = Deferring()
    operation_id = one.start()
    assert one.end(operation_id, status, result="first", diagnostics=["note"])
    for other in ("completed", "failed", "cancelled"):
        assert not one.end(operation_id, other, result="second")
    one.run(operation_id)
    body = (await one.get(f"/{operation_id}/status")).body
    assert (body["status"], body["diagnostics"]) == (status, ["note"])
    assert body.get("result") == ("first" if status == "completed" else None)
    await one.world.advance(2000)
    assert (await one.get(f"/{operation_id}/status")).body == body
    one.require_laws()


@in_loop
async def test_the_same_kind_and_key_is_the_same_operation() -> None:
    one = Deferring()
    operation_id = one.start()
    before = (await one.get(f"/{operation_id}")).body
    await one.world.advance(5)
    assert one.start(ttl_seconds=[1.0]) == operation_id
    assert (await one.get(f"/{operation_id}")).body == before
    assert one.start("another") != operation_id


@in_loop
async def test_an_operation_that_is_not_done_in_time_expires_also_across_a_crash() -> None:
    one = Deferring()
    first, second = one.start("1", ttl_seconds=[60.0]), one.start("2")
    await one.world.advance(59)
    assert (await one.get(f"/{first}/status")).body["status"] == "pending"
    one.world.crash("a", down_seconds=10)
    await one.world.advance(1)
    assert (await one.get(f"/{first}/status")).body["status"] == "expired"
    assert not one.end(first, "completed", result=1)
    await one.world.advance(831)  # 15 minutes after it began
    assert (await one.get(f"/{second}/status")).body["status"] == "expired"
    one.require_laws()


@in_loop
async def test_an_operation_that_nothing_carries_out_any_more_is_unknown() -> None:
    one = Deferring()
    operation_id = one.start()
    one.owns = False
    one.world.crash("a")
    body = (await one.get(f"/{operation_id}/status")).body
    assert body["status"] == "unknown"
    assert KIND in body["diagnostics"][0]
    one.require_laws()


@in_loop
async def test_an_operation_is_cancelled_once_and_its_owner_is_told() -> None:
    one = Deferring()
    operation_id = one.start("job-1")
    promise = (await one.get(f"/{operation_id}")).body
    assert promise["cancel_href"] == f"/v1/deferred-operations/{operation_id}/cancel"
    for _ in range(2):
        answer = await one.cancel(operation_id, as_="arca")
        assert (answer.status, answer.body["status"]) == (200, "cancelled")
    assert one.cancelled == ["job-1"]
    one.require_laws()


@in_loop
async def test_what_cannot_be_cancelled_says_why_and_goes_on() -> None:
    one = Deferring()
    operation_id = one.start(cancel_unavailable="it is in the air")
    promise = (await one.get(f"/{operation_id}")).body
    assert promise["cancel/unavailable-reason"] == "it is in the air"
    assert "cancel_href" not in promise
    answer = await one.cancel(operation_id)
    assert (answer.status, answer.body["code"]) == (409, "cancel_unavailable")
    assert "it is in the air" in answer.body["detail"]
    one.end(operation_id, "failed")
    answer = await one.cancel(operation_id)
    assert (answer.status, answer.body["code"]) == (409, "operation_ended")
    assert one.cancelled == []


@in_loop
async def test_a_module_sees_its_own_operations_alone() -> None:
    one = Deferring()
    operation_id = one.start()
    for path in ("", "/status"):
        assert (await one.get(f"/{operation_id}{path}", as_="arca")).status == 200
        answer = await one.get(f"/{operation_id}{path}", as_="dator")
        assert (answer.status, answer.body["code"]) == (404, "unknown_operation")
        assert (await one.get(f"/{operation_id}{path}", as_="open")).status == 401
    assert (await one.cancel(operation_id, as_="dator")).status == 404
    assert (await one.get("", as_="dator")).body == {"items": []}
    assert len((await one.get("?open=true", as_="arca")).body["items"]) == 1
    assert (await one.get("?open=false")).body == {"items": []}
    assert (await one.get("/deferred:x:y")).status == 404
