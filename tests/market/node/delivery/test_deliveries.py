"""Deliveries: selectors, failure classes, retries, expiry, recovery, the surface of the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import AnabranchError, InputError, StoreError
from anabranch.market.documents import check
from anabranch.market.node.delivery import laws
from anabranch.market.node.delivery.config import DEFAULT_RULES, read_config
from anabranch.market.node.delivery.transport import MANY, MESSAGE, ask, outcome_of
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Acceptance, PeerUnreachable
from anabranch.testing.market import Fate, World
from in_loop import in_loop
from market.node.delivery.support import (
    ACCEPTOR,
    RULE,
    SCHEMA,
    Module,
    Outside,
    admissions_of,
    artifact,
    delivery_of,
    delivery_world,
    envelope,
    send,
    stage,
)
from market.support import participant


def require_laws(world: World) -> None:
    others = {one.node_id: one.entities for one in world.nodes}
    for one in world.nodes:
        assert one.run(laws.broken(one.entities)) == []
        assert one.run(laws.broken_between(one.entities, one.node_id, others)) == []


# -- selectors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "reached"),
    [
        ({"selector/kind": "node", "node/id": "b"}, "b"),
        ({"selector/kind": "participant", "participant/id": participant(5)}, "b c"),
        ({"selector/kind": "participant", "participant/id": participant(5), "max/nodes": 1}, "b"),
        ({"selector/kind": "group", "group/id": "friends"}, "c b"),
        ({"selector/kind": "configured-default", "name": "archive"}, "c"),
        ({"route/ref": "news"}, "b"),
    ],
)
@in_loop
async def test_targets_are_found_by_selectors(selector: dict[str, Any], reached: str) -> None:
    outside = Outside()
    names = delivery_world("a", "b", "c")
    b, c = names["b"].node_id, names["c"].node_id
    outside.participants[participant(5)] = [b, c]
    config = {
        "groups": {"friends": [c, b]},
        "defaults": {"archive": [c]},
        "routes": {"news": [stage("only", b)]},
    }
    world = delivery_world("a", "b", "c", outside=outside, config=config)
    if "route/ref" in selector:
        document = envelope(delivery__plan=selector)
    else:
        named = {**selector, "node/id": b} if selector["selector/kind"] == "node" else selector
        document = envelope(stage("s", named))
    answer = await send(world["a"], document)
    assert answer.body["status"] == "succeeded"
    targets = [one["node/id"] for one in answer.body["stage/results"][0]["targets"]]
    assert targets == [world[name].node_id for name in reached.split()]
    for name in reached.split():
        assert len(await admissions_of(world[name])) == 1
    require_laws(world)


@in_loop
async def test_a_stage_whose_targets_are_not_found_falls_back_to_the_next() -> None:
    world = delivery_world("a", "b")
    missing = {"selector/kind": "group", "group/id": "nobody"}
    answer = await send(
        world["a"], envelope(stage("s", missing, world["b"]), stage("t", world["b"]))
    )
    assert answer.body["status"] == "succeeded"
    assert [one["stage/id"] for one in answer.body["stage/results"]] == ["s", "t"]
    require_laws(world)


@in_loop
async def test_a_stage_is_over_as_soon_as_enough_targets_have_it() -> None:
    outside = Outside()
    outside.modules["c"] = {SCHEMA: Module([5.0])}  # seconds that it takes
    world = delivery_world("a", "b", "c", outside=outside)
    before = world.clock.now()
    document = envelope(stage("s", world["b"], world["c"], success__policy="any"))
    answer = await send(world["a"], document)
    assert world.clock.now() == before
    statuses = [one["status"] for one in answer.body["stage/results"][0]["targets"]]
    assert (answer.body["status"], statuses) == ("succeeded", ["admitted", "not-awaited"])


# -- failure classes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "failure_class"),
    [
        ({"status": "accepted"}, "admitted", ""),
        ({"status": "already-present"}, "admitted", ""),
        ({"status": "retryable", "reason": "busy"}, "transient", "adapter-transient"),
        ({"status": "retryable", "reason": "admission-timeout"}, "transient", "admission-timeout"),
        ({"status": "rejected", "reason": "no"}, "permanent", "adapter-permanent"),
        (
            {"status": "rejected", "reason": "admission-conflict"},
            "permanent",
            "admission-conflict",
        ),
        (
            {"status": "rejected", "reason": "kind-not-supported"},
            "permanent",
            "kind-not-supported",
        ),
        ({"status": "rejected", "reason": "envelope-invalid"}, "permanent", "envelope-invalid"),
        ({"status": "maybe"}, "permanent", "adapter-permanent"),
        ("what", "permanent", "adapter-permanent"),
        (None, "permanent", "adapter-permanent"),
    ],
)
def test_the_answer_of_a_peer_says_what_becomes_of_the_target(
    answer: Any, status: str, failure_class: str
) -> None:
    given = {"acceptor/id": "x", **answer} if isinstance(answer, dict) else answer
    outcome = outcome_of("node", given)
    assert (outcome.status, outcome.failure_class) == (status, failure_class)


class Refusing:
    """Peers that refuse every message."""

    def __init__(self, error: AnabranchError) -> None:
        self._error = error

    async def request(self, *_args: Any, **_options: Any) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("msg", "error", "status"),
    [
        (MESSAGE, NodeError(502, "message_unknown", "signed by the peer"), "permanent"),
        (MESSAGE, PeerUnreachable("by anyone", code="message_unknown"), "transient"),
        (MESSAGE, PeerUnreachable("by anyone", code="too_large"), "transient"),
        (MESSAGE, PeerUnreachable("by anyone", code="peer_envelope"), "transient"),
        (MESSAGE, PeerUnreachable("by anyone", code="peer_envelope_size"), "transient"),
        (MANY, PeerUnreachable("each of them alone", code="peer_envelope_size"), "permanent"),
        (MANY, PeerUnreachable("gone"), "transient"),
    ],
)
@in_loop
async def test_no_refusal_without_a_signature_ends_a_delivery(
    msg: str, error: AnabranchError, status: str
) -> None:
    peers: Any = Refusing(error)
    outcome = await ask(peers, "node", msg, {}, 1.0)
    assert (outcome.status, outcome.diagnostic) == (status, error.message)


RETRYABLE = Acceptance(status="retryable", acceptor_id=ACCEPTOR, reason="busy")
REJECTED = Acceptance(status="rejected", acceptor_id=ACCEPTOR, reason="not wanted")


@pytest.mark.parametrize(
    ("given", "status", "failure_class"),
    [
        (RETRYABLE, "failed-retryable", "adapter-transient"),
        (NodeError(503, "host_capability_unavailable", "not ready"), "failed-retryable",
         "adapter-transient"),
        (25.0, "failed-retryable", "admission-timeout"),
        (REJECTED, "failed-permanent", "adapter-permanent"),
    ],
)  # fmt: skip
@in_loop
async def test_what_an_acceptor_says_becomes_the_failure_of_the_delivery(
    given: Any, status: str, failure_class: str
) -> None:
    outside = Outside()
    outside.modules["b"] = {SCHEMA: Module([given])}
    world = delivery_world("a", "b", outside=outside)
    answer = await send(world["a"], envelope(stage("s", world["b"])))
    assert (answer.body["status"], answer.body["failure/class"]) == (status, failure_class)
    await world.advance(60)
    delivery = await delivery_of(world["a"], answer.body["delivery/id"])
    expected = "succeeded" if status == "failed-retryable" else status
    assert delivery["status"] == expected
    require_laws(world)


@in_loop
async def test_a_node_that_does_not_answer_times_the_stage_out_and_is_tried_again() -> None:
    world = delivery_world("a", "b")
    world.drop("a", "b")
    document = envelope(stage("s", world["b"]), policy={"timeout/ms": 500})
    answer = await send(world["a"], document)
    assert (answer.body["status"], answer.body["failure/class"]) == (
        "failed-retryable",
        "stage-timeout",
    )
    world.heal("a", "b")
    await world.advance(5)
    delivery = await delivery_of(world["a"], answer.body["delivery/id"])
    assert delivery["status"] == "succeeded"
    assert [one["failure/class"] for one in delivery["retry/history"]] == ["stage-timeout"]
    assert check(delivery, kind="artifact-delivery-status.v1") == []
    require_laws(world)


@in_loop
async def test_a_node_without_an_acceptor_does_not_support_the_kind() -> None:
    world = delivery_world("a", "b")
    given = artifact("x", "unheard-of.v1")
    answer = await send(world["a"], envelope(stage("s", world["b"]), artifact=given))
    assert (answer.body["status"], answer.body["failure/class"]) == (
        "failed-permanent",
        "kind-not-supported",
    )
    _, body = await world["b"].request("GET", "/v1/artifact-delivery/admissions")
    assert [one["reason"] for one in body["refused"]] == ["kind-not-supported"]
    assert body["items"] == []


@in_loop
async def test_a_best_effort_delivery_is_tried_once() -> None:
    world = delivery_world("a", "b")
    world.drop("a", "b")
    document = envelope(
        stage("s", world["b"]), policy={"timeout/ms": 100, "delivery": "best-effort"}
    )
    answer = await send(world["a"], document)
    assert (answer.body["status"], answer.body["failure/class"]) == (
        "failed-permanent",
        "stage-timeout",
    )
    world.heal("a", "b")
    await world.advance(600)
    assert await admissions_of(world["b"]) == []
    require_laws(world)


@in_loop
async def test_another_artifact_under_the_same_key_is_in_conflict() -> None:
    world = delivery_world("a", "b")
    first = envelope(stage("s", world["b"]), idempotency__key="k")
    assert (await send(world["a"], first)).body["status"] == "succeeded"
    second = {**first, "artifact": artifact("other")}
    answer = await send(world["a"], second)
    assert (answer.body["status"], answer.body["failure/class"]) == (
        "failed-permanent",
        "admission-conflict",
    )
    assert len(await admissions_of(world["b"])) == 1
    require_laws(world)


@in_loop
async def test_more_open_deliveries_than_the_limit_are_refused() -> None:
    world = delivery_world("a", "b", config={"max_open": 1})
    world.drop("a", "b")
    first = envelope(stage("s", world["b"]))
    assert (await send(world["a"], first, query="?mode=deferred")).status == 202
    second = envelope(stage("s", world["b"]), artifact=artifact("other"))
    answer = await send(world["a"], second, query="?mode=deferred")
    assert (answer.status, answer.body["code"]) == (429, "runtime-limit")
    assert answer.headers["Retry-After"] == "1"
    assert (await send(world["a"], first, query="?mode=deferred")).status == 202  # known already


@in_loop
async def test_deliveries_beyond_the_number_at_once_wait_and_all_arrive() -> None:
    outside = Outside()
    outside.modules["b"] = {SCHEMA: Module([1.0] * 6)}
    world = delivery_world("a", "b", outside=outside, config={"max_in_flight": 2})
    documents = [envelope(stage("s", world["b"]), artifact=artifact(number)) for number in range(6)]
    ids = []
    for document in documents:
        body = (await send(world["a"], document, query="?mode=deferred")).body
        ids.append(body["audit/outcome-ref"])
    statuses = [(await delivery_of(world["a"], one))["status"] for one in ids]
    assert statuses == ["running"] * 2 + ["accepted"] * 4
    await world.advance(10)
    statuses = [(await delivery_of(world["a"], one))["status"] for one in ids]
    assert statuses == ["succeeded"] * 6
    require_laws(world)


# -- time ------------------------------------------------------------------------------------


@in_loop
async def test_retries_wait_twice_as_long_each_time_up_to_the_limit() -> None:
    config = {"retry_seconds_min": 1, "retry_seconds_max": 8, "ttl_seconds": 60}
    outside = Outside()
    outside.modules["b"] = {SCHEMA: Module([RETRYABLE] * 100)}
    world = delivery_world("a", "b", outside=outside, config=config)
    answer = await send(world["a"], envelope(stage("s", world["b"])))
    begin = world.clock.now()
    seen: list[int] = []
    for _ in range(31):
        delivery = await delivery_of(world["a"], answer.body["delivery/id"])
        if delivery["attempts"] > len(seen):
            seen.append((world.clock.now() - begin) // 1000)
        await world.advance(1)
    assert seen == [0, 1, 3, 7, 15, 23]


@in_loop
async def test_a_delivery_that_is_not_done_in_time_expires_for_good() -> None:
    outside = Outside()
    module = Module([RETRYABLE] * 1000)
    outside.modules["b"] = {SCHEMA: module}
    world = delivery_world("a", "b", outside=outside, config={"ttl_seconds": 30})
    answer = await send(world["a"], envelope(stage("s", world["b"])), query="?mode=deferred")
    href = answer.body["status_href"]
    await world.advance(29)
    assert (await world["a"].request("GET", href, as_="arca")).body["status"] == "running"
    await world.advance(2)
    status, body = await world["a"].request("GET", href, as_="arca")
    assert (status, body["status"]) == (200, "expired")
    assert check(body, kind="deferred-operation-status.v1") == []
    delivery = await delivery_of(world["a"], answer.body["audit/outcome-ref"])
    assert delivery["status"] == "expired"
    asked = len(module.invokes)
    module.answers.clear()
    await world.advance(300)
    assert len(module.invokes) == asked
    require_laws(world)


@in_loop
async def test_recovery_tries_deliveries_before_their_time() -> None:
    outside = Outside()
    outside.modules["b"] = {SCHEMA: Module([RETRYABLE] * 3)}
    config = {"retry_seconds_min": 100, "retry_seconds_max": 100}
    world = delivery_world("a", "b", outside=outside, config=config)
    ids = []
    for number in range(3):
        document = envelope(stage("s", world["b"]), artifact=artifact(number))
        ids.append((await send(world["a"], document)).body["delivery/id"])
    _, body = await world["a"].request("POST", "/v1/artifact-delivery/recover?limit=2")
    assert body["recovered"] == 2
    await world.advance(1)
    statuses = [(await delivery_of(world["a"], one))["status"] for one in ids]
    assert sorted(statuses) == ["failed-retryable", "succeeded", "succeeded"]
    bad = await world["a"].request("POST", "/v1/artifact-delivery/recover?limit=0")
    assert (bad.status, bad.body["code"]) == (400, "bad_query")
    require_laws(world)


@in_loop
async def test_a_crash_during_an_attempt_reopens_the_delivery_and_tries_it_again() -> None:
    outside = Outside()
    outside.modules["b"] = {SCHEMA: Module([3.0])}
    world = delivery_world("a", "b", outside=outside)
    document = envelope(stage("s", world["b"]))
    answer = await send(world["a"], document, query="?mode=deferred")
    delivery_id = answer.body["audit/outcome-ref"]
    assert (await delivery_of(world["a"], delivery_id))["status"] == "running"
    world.crash("a")
    await world.advance(10)
    delivery = await delivery_of(world["a"], delivery_id)
    assert delivery["status"] == "succeeded"
    assert [one["failure/class"] for one in delivery["retry/history"]] == ["adapter-transient"]
    assert len(outside.modules["b"][SCHEMA].effects) == 1
    require_laws(world)


# -- replays, ids and the surface --------------------------------------------------------------


@in_loop
async def test_the_same_envelope_again_is_the_same_delivery() -> None:
    outside = Outside()
    module = Module()
    outside.modules["b"] = {SCHEMA: module}
    world = delivery_world("a", "b", outside=outside)
    document = envelope(stage("s", world["b"]))
    first = await send(world["a"], document)
    assert (await send(world["a"], document)).body == first.body
    later = await send(world["a"], document, query="?mode=deferred")
    assert later.body["audit/outcome-ref"] == first.body["delivery/id"]
    status, body = await world["a"].request("GET", later.body["status_href"])
    assert (status, body["status"], body["result"]) == (200, "completed", first.body)
    assert len(module.invokes) == 1


@in_loop
async def test_the_id_of_a_delivery_follows_from_component_artifact_plan_and_key() -> None:
    world = delivery_world("a", "b")
    here = stage("s", world["b"])
    documents = [
        ("arca", envelope(here)),
        ("dator", envelope(here, component="dator")),
        ("arca", envelope(here, artifact=artifact("other"))),
        ("arca", envelope(stage("t", world["b"]))),
        ("arca", envelope(here, idempotency__key="k")),
    ]
    ids = {(await send(world["a"], one, as_=who)).body["delivery/id"] for who, one in documents}
    assert len(ids) == len(documents)
    again = delivery_world("a", "b")  # another world, the same nodes
    assert (await send(again["a"], documents[0][1])).body["delivery/id"] in ids


@in_loop
async def test_what_is_deferred_is_promised_and_kept() -> None:
    world = delivery_world("a", "b")
    answer = await send(world["a"], envelope(stage("s", world["b"])), query="?mode=deferred")
    assert (answer.status, answer.headers["Retry-After"]) == (202, "1")
    at = world.clock.now()
    assert check(answer.body, kind="deferred-operation.v1", at=at) == []
    assert answer.body["operation/kind"] == "artifact-delivery.submit"
    await world.advance(1)
    status, body = await world["a"].request("GET", answer.body["status_href"], as_="arca")
    assert (status, body["status"]) == (200, "completed")
    assert check(body["result"], kind="artifact-delivery-result.v1") == []
    operation = answer.body["operation/id"]
    refused = await world["a"].request("POST", f"/v1/deferred-operations/{operation}/cancel")
    assert (refused.status, refused.body["code"]) == (409, "operation_ended")


@in_loop
async def test_a_delivery_on_its_way_cannot_be_cancelled() -> None:
    world = delivery_world("a", "b")
    world.drop("a", "b")
    answer = await send(world["a"], envelope(stage("s", world["b"])), query="?mode=deferred")
    operation = answer.body["operation/id"]
    refused = await world["a"].request("POST", f"/v1/deferred-operations/{operation}/cancel")
    assert (refused.status, refused.body["code"]) == (409, "cancel_unavailable")


@in_loop
async def test_a_delivery_that_was_not_deferred_has_an_operation_status_too() -> None:
    world = delivery_world("a", "b")
    done = await send(world["a"], envelope(stage("s", world["b"])))
    path = "/v1/artifact-delivery/deliveries/{}/operation-status"
    _, body = await world["a"].request("GET", path.format(done.body["delivery/id"]))
    assert (body["status"], body["result"]) == ("completed", done.body)
    assert check(body, kind="deferred-operation-status.v1") == []
    world.drop("a", "b")
    open_ = await send(world["a"], envelope(stage("t", world["b"])))
    _, body = await world["a"].request("GET", path.format(open_.body["delivery/id"]))
    assert (body["status"], body["retry_after_seconds"]) == ("running", 1)
    assert check(body, kind="deferred-operation-status.v1") == []


@in_loop
async def test_a_module_sees_its_own_deliveries_and_routes_alone() -> None:
    b = delivery_world("b")["b"].node_id
    config = {"routes": {"news": [stage("s", b)], "secret": [stage("s", b)]}}
    world = delivery_world("a", "b", config=config)
    mine = (await send(world["a"], envelope(stage("s", b)))).body["delivery/id"]
    await send(world["a"], envelope(stage("s", b), component="dator"), as_="dator")
    _, body = await world["a"].request("GET", "/v1/artifact-delivery/deliveries", as_="arca")
    assert [one["delivery/id"] for one in body["items"]] == [mine]
    _, body = await world["a"].request("GET", "/v1/artifact-delivery/deliveries")
    assert len(body["items"]) == 2
    path = f"/v1/artifact-delivery/deliveries/{mine}"
    assert (await world["a"].request("GET", path, as_="arca")).status == 200
    assert (await world["a"].request("GET", path, as_="dator")).status == 404
    assert (await world["a"].request("GET", path, as_="open")).status == 401
    _, body = await world["a"].request("GET", "/v1/artifact-delivery/routes", as_="arca")
    assert body == {"routes": ["news"]}
    _, body = await world["a"].request("GET", "/v1/artifact-delivery/routes")
    assert set(body["routes"]) == {"news", "secret"}


@in_loop
async def test_lists_of_deliveries_come_in_pages() -> None:
    world = delivery_world("a", "b")
    sent = []
    for number in range(5):
        document = envelope(stage("s", world["b"]), artifact=artifact(number))
        sent.append((await send(world["a"], document)).body["delivery/id"])
        await world.advance(1)
    seen, query = [], "?limit=2"
    for _ in range(3):
        path = f"/v1/artifact-delivery/deliveries{query}"
        _, body = await world["a"].request("GET", path)
        seen += [one["delivery/id"] for one in body["items"]]
        query = f"?limit=2&before={body.get('next')}"
    assert seen == sent[::-1]
    for bad in ("?limit=0", "?limit=x", "?before=x", "?open=maybe"):
        status, body = await world["a"].request("GET", f"/v1/artifact-delivery/deliveries{bad}")
        assert (status, body["code"]) == (400, "bad_query")


@in_loop
async def test_lost_answers_and_doubled_messages_admit_an_artifact_once() -> None:
    outside = Outside()
    module = Module()
    outside.modules["b"] = {SCHEMA: module}
    world = delivery_world("a", "b", outside=outside)
    fates = [Fate(answered=False), Fate(delays=(0.0, 0.0, 3.0)), Fate()]
    world.fate = lambda _a, _b, _data: fates.pop(0) if fates else Fate()
    document = envelope(stage("s", world["b"]), policy={"timeout/ms": 1000})
    answer = await send(world["a"], document)
    assert answer.body["failure/class"] == "stage-timeout"
    await world.advance(20)
    delivery = await delivery_of(world["a"], answer.body["delivery/id"])
    target = delivery["stage/outcomes"][0]["targets"][0]
    assert (delivery["status"], target["admission"]) == ("succeeded", "already-present")
    assert (len(module.invokes), len(module.effects)) == (1, 1)
    require_laws(world)


# -- configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"unknown": 1}, "unknown"),
        ({"ttl_seconds": 0}, "delivery.ttl_seconds"),
        ({"max_in_flight": -1}, "delivery.max_in_flight"),
        ({"retry_seconds_min": 5, "retry_seconds_max": 1}, "delivery.retry_seconds_max"),
        ({"outbound": [{"component/id": "x"}]}, "delivery.outbound[0]"),
        ({"outbound": [{**RULE, "recipient/selectors": ["x"]}]}, "delivery.outbound[0]"),
        ({"routes": {"news": []}}, "delivery.routes.news"),
        ({"routes": {"news": [{"stage/id": "s", "targets": []}]}}, "delivery.routes.news"),
        ({"groups": {"friends": []}}, "delivery.groups.friends"),
        ({"acceptors": [{"acceptor_id": "x"}]}, "artifact_schema"),
        ("text", "delivery"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_by_name(section: Any, named: str) -> None:
    with pytest.raises(InputError) as caught:
        read_config(section)
    assert named in caught.value.message


def test_without_a_section_requests_and_results_go_to_nodes_and_participants() -> None:
    config = read_config(None)
    assert config.outbound == DEFAULT_RULES
    assert {rule["schema"] for rule in config.outbound} == {
        "service-order.dispatch.request.v1",
        "service-order.result.v1",
    }
    assert read_config({"outbound": []}).outbound == ()


@in_loop
async def test_a_delivery_that_cannot_be_recorded_is_refused_and_does_not_leave() -> None:
    world = delivery_world("a", "b")

    def full(_when: str, _number: int) -> None:
        raise StoreError("no room on the disk")

    world["a"].on_commit = full
    for query in ("", "?mode=deferred"):
        answer = await send(world["a"], envelope(stage("s", world["b"])), query=query)
        assert (answer.status, answer.body["code"]) == (503, "ledger-error")
    await world.advance(5)
    assert await admissions_of(world["b"]) == []
    assert world["a"].store.node_streams.stream_names() == []
