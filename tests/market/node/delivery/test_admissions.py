"""Artifacts that arrive: one acceptor, one admission, whatever is repeated, late or lost."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from anabranch.market.documents import check
from anabranch.market.node.delivery import inbound, laws
from anabranch.market.node.delivery.arrivals import DeliverMessage, read_arrival
from anabranch.market.node.delivery.part import DeliveryPart
from anabranch.market.node.ports import Acceptance
from anabranch.testing.market import World, WorldNode
from in_loop import in_loop
from market.node.delivery.support import (
    ACCEPTOR,
    RESULT,
    SCHEMA,
    Module,
    Outside,
    admissions_of,
    artifact,
    carrying,
    delivery_of,
    delivery_world,
    envelope,
    order_result,
    send,
    stage,
)
from market.support import node as node_id

RETRYABLE = Acceptance(status="retryable", acceptor_id=ACCEPTOR, reason="busy")
REJECTED = Acceptance(status="rejected", acceptor_id=ACCEPTOR, reason="not wanted")
PEER = node_id(7)


def message(given: Any, key: str = "k", **changes: Any) -> dict[str, Any]:
    return {
        "schema": "artifact-delivery-deliver.v1",
        "delivery/id": "delivery:x",
        "component/id": "arca",
        "idempotency/key": key,
        "artifact": given,
        **changes,
    }


async def arrive(node: WorldNode, payload: Any, peer: str = PEER) -> dict[str, Any]:
    """What the node answers to the message of a peer."""
    body = {"from": peer, "msg": "artifact-delivery.deliver", "payload": payload}
    answer = (await node.request("POST", "/peer/messages", body, as_="peer")).body["answer"]
    assert check(answer, kind="artifact-delivery-admission-response.v1") == []
    assert isinstance(answer, dict)
    return answer


def with_module(*answers: Any, schema: str = SCHEMA, **config: Any) -> tuple[World, Module]:
    outside = Outside()
    module = Module(answers)
    outside.modules["b"] = {schema: module}
    return delivery_world("a", "b", outside=outside, config=config), module


# -- reading ---------------------------------------------------------------------------------


@in_loop
async def test_a_large_artifact_is_judged_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside: list[bool] = []

    def reading(*given: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            beside.append(True)
        else:
            beside.append(False)
        return read_arrival(*given)

    monkeypatch.setattr(inbound, "read_arrival", reading)
    world = delivery_world("b")
    for number, text in enumerate(("small", "large" * 5000)):
        answer = await arrive(world["b"], message(artifact(text), key=f"k{number}"))
        assert answer["status"] == "accepted"
    assert beside == [False, True]


# -- once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_module", [True, False])
@in_loop
async def test_an_artifact_is_admitted_once_and_present_from_then_on(by_module: bool) -> None:
    world, module = with_module(schema=SCHEMA if by_module else "other.v1")
    b = world["b"]
    statuses = [(await arrive(b, message(artifact())))["status"] for _ in range(3)]
    assert statuses == ["accepted", "already-present", "already-present"]
    assert len(module.invokes) == int(by_module)
    world.crash("b")
    assert (await arrive(b, message(artifact())))["status"] == "already-present"
    assert len(await admissions_of(b)) == 1


@pytest.mark.parametrize("by_module", [True, False])
@in_loop
async def test_another_digest_under_an_admitted_key_is_rejected(by_module: bool) -> None:
    world, module = with_module(schema=SCHEMA if by_module else "other.v1")
    await arrive(world["b"], message(artifact()))
    answer = await arrive(world["b"], message(artifact("other")))
    assert (answer["status"], answer["reason"]) == ("rejected", "admission-conflict")
    assert len(module.effects) == int(by_module)
    assert [one["status"] for one in await admissions_of(world["b"])] == ["accepted"]


@in_loop
async def test_keys_belong_to_a_peer_a_component_and_a_schema() -> None:
    world, module = with_module()
    b = world["b"]
    await arrive(b, message(artifact()))
    others = [
        (message(artifact("1")), node_id(8)),
        (message(artifact("2"), **{"component/id": "dator"}), PEER),
        (message(artifact("3"), key="other"), PEER),
    ]
    for payload, peer in others:
        assert (await arrive(b, payload, peer))["status"] == "accepted"
    assert len(module.effects) == 4


@in_loop
async def test_what_an_acceptor_cannot_decide_yet_is_offered_again() -> None:
    world, module = with_module(RETRYABLE, RETRYABLE)
    answers = [await arrive(world["b"], message(artifact())) for _ in range(4)]
    assert [one["status"] for one in answers] == [
        "retryable", "retryable", "accepted", "already-present",
    ]  # fmt: skip
    assert len({one["admission/id"] for one in module.invokes}) == 1


@in_loop
async def test_a_key_belongs_to_its_first_digest_while_the_acceptor_has_not_decided() -> None:
    world, module = with_module(RETRYABLE)
    await arrive(world["b"], message(artifact()))
    answer = await arrive(world["b"], message(artifact("other")))
    assert (answer["status"], answer["reason"]) == ("rejected", "admission-conflict")
    assert (await arrive(world["b"], message(artifact())))["status"] == "accepted"
    assert len(module.effects) == 1


@in_loop
async def test_a_rejection_is_repeated_and_frees_the_key() -> None:
    world, module = with_module(REJECTED)
    b = world["b"]
    for _ in range(2):
        answer = await arrive(b, message(artifact()))
        assert (answer["status"], answer["reason"]) == ("rejected", "not wanted")
    assert len(module.invokes) == 1
    assert (await arrive(b, message(artifact("other"))))["status"] == "accepted"
    assert [one["status"] for one in await admissions_of(b)] == ["accepted"]
    assert b.run(laws.broken(b.entities)) == []


@in_loop
async def test_two_of_the_same_at_once_ask_the_acceptor_once() -> None:
    world, module = with_module(2.0)
    b = world["b"]
    part: Any = b.node.parts[2] if b.node else None
    sent = _read(message(artifact()))

    async def both() -> list[dict[str, Any]]:
        inbound = part._inbound
        return list(await asyncio.gather(*(inbound.admit("peer", PEER, sent) for _ in range(2))))

    answers = b.run(both())
    assert [one["status"] for one in answers] == ["accepted", "already-present"]
    assert len(module.invokes) == 1


def _read(payload: dict[str, Any]) -> DeliverMessage:
    return msgspec.convert(payload, DeliverMessage)


@in_loop
async def test_a_peer_that_no_longer_waits_does_not_stop_the_acceptor() -> None:
    world, module = with_module(5.0)
    document = envelope(stage("s", world["b"]), policy={"timeout/ms": 1000})
    answer = await send(world["a"], document)
    assert answer.body["failure/class"] == "stage-timeout"
    await world.advance(30)
    delivery = await delivery_of(world["a"], answer.body["delivery/id"])
    assert delivery["status"] == "succeeded"
    assert (len(module.invokes), len(module.effects)) == (1, 1)


# -- what is wrong ---------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, str]] = {
    "no object": ("x", "envelope-malformed"),
    "no artifact": (message(None), "envelope-malformed"),
    "unknown field": (message(artifact(extra=1)), "envelope-malformed"),
    "no base64": (message(artifact(**{"bytes/base64": "?"})), "envelope-malformed"),
    "no key": (message(artifact(), key=""), "envelope-malformed"),
    "long key": (message(artifact(), key="x" * 257), "envelope-malformed"),
    "long component": (message(artifact(), **{"component/id": "x" * 257}), "envelope-malformed"),
    "long schema": (message(artifact(schema="x" * 257)), "envelope-malformed"),
    "deep result": (message(artifact(b"[" * 1900, RESULT)), "envelope-invalid"),
    "wrong size": (message(artifact(**{"size/bytes": 6})), "envelope-invalid"),
    "wrong digest": (message(artifact(digest=artifact("x")["digest"])), "envelope-invalid"),
    "too large": (message(artifact("x" * 3000)), "runtime-limit"),
    "no result": (message(artifact({"schema": RESULT}, RESULT)), "envelope-invalid"),
    "no kind": (message(artifact("x", "unheard-of.v1")), "kind-not-supported"),
}


@pytest.mark.parametrize("case", WRONG)
@in_loop
async def test_what_is_wrong_is_rejected_by_its_class_and_changes_nothing(case: str) -> None:
    payload, reason = WRONG[case]
    world, module = with_module(max_bytes=2000)
    answer = await arrive(world["b"], payload)
    assert (answer["status"], answer["reason"]) == ("rejected", reason)
    assert module.invokes == []
    assert world["b"].store.node_streams.stream_names() == []
    _, body = await world["b"].request("GET", "/v1/artifact-delivery/admissions")
    assert [one["reason"] for one in body["refused"]] == [reason]


@in_loop
async def test_the_source_peer_is_that_of_the_transport_whatever_the_message_says() -> None:
    world, module = with_module()
    await arrive(world["b"], message(artifact(), **{"source/peer": node_id(1)}))
    assert module.invokes[0]["source/peer"] == PEER
    assert check(module.invokes[0], kind="artifact-delivery-acceptor-invoke.v1") == []


# -- tokens ----------------------------------------------------------------------------------


def closing(invoke: Any, **changes: Any) -> dict[str, Any]:
    document = {
        "admission/id": invoke["admission/id"],
        "invocation/token": invoke["invocation/token"],
        "acceptor/id": invoke["acceptor/id"],
        "schema": invoke["artifact"]["schema"],
        "digest": invoke["artifact"]["digest"],
    }
    return {**document, **{key.replace("__", "/"): one for key, one in changes.items()}}


async def close_out(node: WorldNode, body: Any) -> Any:
    return await node.request("POST", "/v1/artifact-delivery/admissions", body, as_="arca")


@in_loop
async def test_where_the_token_is_demanded_nothing_is_admitted_before_it_is_handed_back() -> None:
    world, module = with_module(closeout_tokens=[SCHEMA])
    b = world["b"]
    answer = await arrive(b, message(artifact()))
    assert (answer["status"], answer["reason"]) == ("retryable", "closeout-pending")
    assert [one["status"] for one in await admissions_of(b)] == ["pending"]
    token = closing(module.invokes[0])
    assert (await close_out(b, token)).body["status"] == "accepted"
    assert (await close_out(b, token)).status == 403  # it was for one use
    assert (await arrive(b, message(artifact())))["status"] == "already-present"


@pytest.mark.parametrize(
    "changes",
    [
        {"invocation__token": "x"},
        {"acceptor__id": "another"},
        {"schema": "another.v1"},
        {"digest": "sha256:another"},
        {"admission__id": "admission:another"},
    ],
)
@in_loop
async def test_a_token_is_bound_to_its_admission_acceptor_schema_and_digest(
    changes: dict[str, Any],
) -> None:
    world, module = with_module(closeout_tokens=[SCHEMA])
    b = world["b"]
    await arrive(b, message(artifact()))
    answer = await close_out(b, closing(module.invokes[0], **changes))
    assert (answer.status, answer.body["code"]) == (403, "invalid_token")
    assert [one["status"] for one in await admissions_of(b)] == ["pending"]


@in_loop
async def test_the_token_of_an_earlier_call_is_worth_nothing() -> None:
    world, module = with_module(RETRYABLE, closeout_tokens=[SCHEMA])
    b = world["b"]
    await arrive(b, message(artifact()))
    await arrive(b, message(artifact()))
    first, second = module.invokes
    assert first["invocation/token"] != second["invocation/token"]
    assert (await close_out(b, closing(first))).status == 403
    rejected = await close_out(b, closing(second, status="rejected", reason="no"))
    assert rejected.body["status"] == "rejected"
    assert (await arrive(b, message(artifact())))["reason"] == "no"


@in_loop
async def test_artifacts_that_wait_for_their_token_take_no_room_in_memory() -> None:
    world, module = with_module(closeout_tokens=[SCHEMA])
    b = world["b"]
    await arrive(b, message(artifact("x" * 10_000)))
    assert b.node is not None
    (part,) = [one for one in b.node.parts if isinstance(one, DeliveryPart)]
    assert part._inbound.tokens.bytes_kept() == 0
    assert (await close_out(b, closing(module.invokes[0]))).body["status"] == "accepted"


@in_loop
async def test_tokens_are_nowhere_in_the_store() -> None:
    world, module = with_module(closeout_tokens=[SCHEMA])
    b = world["b"]
    await arrive(b, message(artifact()))
    streams = b.store.node_streams
    kept = b"".join(
        row.events for name in streams.stream_names() for row in streams.stream_events(name)
    )
    assert module.invokes[0]["invocation/token"].encode() not in kept


# -- the operator ----------------------------------------------------------------------------


@in_loop
async def test_the_operator_hands_an_artifact_in_and_looks_at_admissions() -> None:
    world, module = with_module()
    b = world["b"]
    path = "/v1/artifact-delivery/admissions"
    answer = await b.request("POST", path, {"artifact": artifact()})
    assert (answer.status, answer.body["status"]) == (200, "accepted")
    assert module.invokes[0]["source/adapter"] == "local"
    assert module.invokes[0]["source/peer"] is None
    (one,) = await admissions_of(b)
    shown = await b.request("GET", f"{path}/{one['admission/id']}")
    assert (shown.status, shown.body) == (200, one)
    assert (await b.request("GET", f"{path}/admission:none")).status == 404
    wrong: list[Any] = [None, [], {"artifact": 1}, {"artifact": {"schema": "x"}}]
    for bad in wrong:
        assert (await b.request("POST", path, bad)).status == 400
    assert (await b.request("GET", path, as_="arca")).status == 403


# -- results ---------------------------------------------------------------------------------


def with_orders(*answers: Any, module: bool = True) -> tuple[World, Outside, Module]:
    outside = Outside()
    acceptor = Module(answers)
    if module:
        outside.modules["a"] = {RESULT: acceptor}
    return delivery_world("a", "b", outside=outside), outside, acceptor


@pytest.mark.parametrize("module", [True, False])
@in_loop
async def test_a_result_closes_its_order_once(module: bool) -> None:
    world, outside, acceptor = with_orders(module=module)
    document = carrying(order_result(world["b"]), world["a"])
    for _ in range(2):
        assert (await send(world["b"], document)).body["status"] == "succeeded"
    again = {**document, "idempotency/key": "again"}
    targets = (await send(world["b"], again)).body["stage/results"][0]["targets"]
    assert targets[0]["admission"] == "already-present"
    assert outside.orders_of("a").said == [("result", "remote-execution:r1:s1:a1")]
    assert len(acceptor.invokes) == int(module)


@in_loop
async def test_two_results_with_different_digests_the_first_stays() -> None:
    world, outside, acceptor = with_orders()
    await send(world["b"], carrying(order_result(world["b"]), world["a"]))
    other = carrying(order_result(world["b"], "something else"), world["a"])
    answer = await send(world["b"], other)
    assert (answer.body["status"], answer.body["failure/class"]) == (
        "failed-permanent",
        "admission-conflict",
    )
    assert outside.orders_of("a").said == [("result", "remote-execution:r1:s1:a1")]
    assert len(acceptor.invokes) == 1


@in_loop
async def test_a_result_that_orders_refuse_reaches_no_acceptor() -> None:
    world, outside, acceptor = with_orders()
    stranger = carrying(order_result(world["a"]), world["a"])  # of another provider than its peer
    answer = await send(world["b"], stranger)
    assert answer.body["status"] == "failed-permanent"
    assert "source-peer-mismatch" in answer.body["diagnostic"]
    assert (acceptor.invokes, outside.orders_of("a").said) == ([], [])
    assert await admissions_of(world["a"]) == []


@in_loop
async def test_a_result_for_a_step_that_is_closed_is_rejected_and_its_order_is_told() -> None:
    late = Acceptance(status="rejected", acceptor_id=ACCEPTOR, reason="step-already-closed")
    world, outside, _ = with_orders(late)
    answer = await send(world["b"], carrying(order_result(world["b"]), world["a"]))
    assert answer.body["status"] == "failed-permanent"
    assert outside.orders_of("a").said == [("result", "remote-execution:r1:s1:a1")]


@in_loop
async def test_a_result_that_the_module_rejects_closes_nothing() -> None:
    world, outside, _ = with_orders(REJECTED)
    answer = await send(world["b"], carrying(order_result(world["b"]), world["a"]))
    assert answer.body["status"] == "failed-permanent"
    assert outside.orders_of("a").said == []


@in_loop
async def test_a_message_that_comes_before_the_node_is_open_is_sent_again() -> None:
    world, module = with_module()
    part: Any = world["b"].node.parts[2] if world["b"].node else None
    part._is_open = False
    answer = await arrive(world["b"], message(artifact()))
    assert (answer["status"], answer["reason"]) == ("retryable", "starting")
    assert module.invokes == []
