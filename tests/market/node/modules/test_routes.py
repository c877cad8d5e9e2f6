"""Claimed local routes: one owner, 503 while it is away, and nothing secret passed on."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node.modules.laws import broken_laws
from anabranch.store.memory.store import MemoryStore

from .support import (
    ScriptedModule,
    decision,
    hosted,
    in_process,
    run,
)

INVOKE = "/v1/middleware/invoke"
CATALOG = "/v1/enact/service-catalog"


def owner(name: str = "arca", route: str = "GET service-catalog", **chain: Any) -> ScriptedModule:
    module = ScriptedModule(
        name, input_chains=[{"chain": "inbound-local", "local_routes": [route], **chain}]
    )
    module.answers[INVOKE] = decision("return", {"status": 200, "body": {"by": name}})
    return module


def test_the_owner_answers_and_sees_who_asks_but_no_secret() -> None:
    async def scenario() -> None:
        module = owner()
        async with hosted(module, configs=[in_process("arca")]) as node:
            answer = await node.ask(
                "GET",
                CATALOG,
                query={"limit": "3"},
                headers={
                    "accept": "application/json",
                    "authorization": "Bearer secret",
                    "cookie": "secret",
                    "x-orbiplex-authtok": "secret",
                },
            )
        assert (answer.status, answer.body) == (200, {"by": "arca"})
        (envelope,) = module.bodies()
        assert envelope.pop("correlation_id").startswith("local:")
        assert envelope == {
            "schema_version": "v1",
            "envelope_kind": "local-input",
            "chain_kind": "inbound-local",
            "method": "GET",
            "path": CATALOG,
            "query": {"limit": "3"},
            "headers": {"accept": "application/json"},
            "body": None,
            "caller": {"scope": "operator"},
        }

    run(scenario())


def test_another_module_may_ask_and_is_named() -> None:
    async def scenario() -> None:
        module, other = owner(), ScriptedModule("dator")
        async with hosted(module, other, configs=[in_process("arca"), in_process("dator")]) as node:
            assert (await node.ask("GET", CATALOG, as_="dator")).status == 200
        assert module.bodies()[0]["caller"] == {"scope": "module", "module_id": "dator"}

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "as_", "status", "code"),
    [
        ("GET", CATALOG, "open", 401, "unauthorized"),
        ("GET", CATALOG, "peer", 403, "forbidden"),
        ("POST", CATALOG, "operator", 405, "method"),
        ("GET", "/v1/enact/other", "operator", 404, "not_found"),
        ("GET", "/v1/elsewhere", "operator", 404, "not_found"),
        ("GET", "/v1/elsewhere", "open", 404, "not_found"),
        ("GET", CATALOG + "/", "operator", 404, "not_found"),
    ],
)
def test_who_gets_nothing(method: str, path: str, as_: str, status: int, code: str) -> None:
    async def scenario() -> None:
        module = owner()
        async with hosted(module, configs=[in_process("arca")]) as node:
            answer = await node.ask(method, path, as_=as_)
        assert (answer.status, answer.body["code"]) == (status, code)
        assert module.bodies() == []

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (decision("return", {"status": 202, "body": [1]}), 202, [1]),
        (decision("return", {"body": None}), 200, None),
        (decision("reject"), 403, "rejected"),
        (decision("allow"), 502, "module_failed"),
        (decision("rewrite", {"body": 1}), 502, "module_failed"),
        (decision("drop"), 502, "module_failed"),
        (decision("return", {"status": 99}), 502, "module_failed"),
        (decision("return", {"status": 600}), 502, "module_failed"),
        (decision("return", {"status": "200"}), 502, "module_failed"),
        (decision("return", "text"), 502, "module_failed"),
        ((500, None), 502, "module_failed"),
        (RuntimeError("secret words"), 502, "module_failed"),
    ],
)
def test_what_the_owner_says_is_answered(answer: Any, status: int, body: Any) -> None:
    async def scenario() -> None:
        module = owner()
        module.answers[INVOKE] = answer
        async with hosted(module, configs=[in_process("arca")]) as node:
            got = await node.ask("GET", CATALOG)
        assert got.status == status
        assert (got.body["code"] if status >= 400 else got.body) == body
        assert "secret words" not in str(got.body)

    run(scenario())


def test_only_harmless_headers_of_an_answer_pass() -> None:
    async def scenario() -> None:
        module = owner()
        headers = {"ETag": "1", "Set-Cookie": "a=b", "Retry-After": "3\r\nX: y", "X-Other": "z"}
        module.answers[INVOKE] = decision("return", {"status": 200, "headers": headers})
        async with hosted(module, configs=[in_process("arca")]) as node:
            assert (await node.ask("GET", CATALOG)).headers == {"ETag": "1"}

    run(scenario())


def test_a_route_has_one_owner_and_the_second_claim_degrades_its_module() -> None:
    async def scenario() -> None:
        first, second = owner("first"), owner("second")
        second.answers["/v1/middleware/init"]["input_chains"][0]["local_routes"] = [
            "GET service-catalog",
            "POST own",
        ]
        configs = [in_process("first"), in_process("second")]
        async with hosted(first, second, configs=configs) as node:
            assert (await node.ask("GET", CATALOG)).body == {"by": "first"}
            assert (await node.ask("POST", "/v1/enact/own", {})).body == {"by": "second"}
            view = (await node.ask("GET", "/v1/modules/second")).body
            assert view["state"] == "degraded"
            assert view["routes"] == [{"method": "POST", "path": "/v1/enact/own"}]
            assert view["last_problem"]["code"] == "route_conflict"
            assert "first" in view["last_problem"]["message"]
            assert (await node.ask("GET", "/v1/modules/first")).body["state"] == "ready"
            assert await broken_laws(node.node.entities) == []

    run(scenario())


def test_while_the_owner_is_away_the_route_is_too_and_says_when_to_ask_again() -> None:
    async def scenario() -> None:
        async with hosted(owner(), configs=[in_process("arca")]) as node:
            await node.ask("POST", "/v1/modules/arca/stop")
            answer = await node.ask("GET", CATALOG)
            assert (answer.status, answer.body["code"]) == (503, "module_not_ready")
            assert int(answer.headers["Retry-After"]) > 0
            await node.ask("POST", "/v1/modules/arca/start")
            await node.part.settled()
            assert (await node.ask("GET", CATALOG)).status == 200

    run(scenario())


def test_a_node_that_was_restarted_knows_the_route_before_its_owner_is_ready() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with hosted(owner(), configs=[in_process("arca")], store=store):
            pass
        async with hosted(configs=[in_process("arca")], store=store) as node:  # nothing attached
            assert (await node.ask("GET", CATALOG)).status == 503
        other = owner("dator")
        async with hosted(other, configs=[in_process("dator")], store=store) as node:
            assert (await node.ask("GET", CATALOG)).body == {"by": "dator"}
            assert await broken_laws(node.node.entities) == []

    run(scenario())


def test_a_route_that_is_no_longer_reported_is_free() -> None:
    async def scenario() -> None:
        first, second = owner("first"), owner("second", "GET x")
        configs = [in_process("first"), in_process("second")]
        async with hosted(first, second, configs=configs) as node:
            first.answers["/v1/middleware/init"]["input_chains"] = []
            second.answers["/v1/middleware/init"]["input_chains"][0]["local_routes"] = [
                "GET service-catalog"
            ]
            for name in ("first", "second"):
                await node.ask("POST", f"/v1/modules/{name}/restart")
                await node.part.settled()
            assert (await node.ask("GET", CATALOG)).body == {"by": "second"}
            assert (await node.ask("GET", "/v1/enact/x")).status == 404

    run(scenario())


@pytest.mark.parametrize(
    ("first", "skip", "status", "body", "owner_saw"),
    [
        (decision("allow"), False, 200, {"by": "arca"}, {"n": 1}),
        (decision("rewrite", {"body": {"n": 2}}), False, 200, {"by": "arca"}, {"n": 2}),
        (decision("rewrite", {"status": 1}), False, 200, {"by": "arca"}, {"n": 1}),
        (decision("return", {"body": "early"}), False, 200, "early", None),
        (decision("reject"), False, 403, None, None),
        (decision("reject"), True, 200, {"by": "arca"}, {"n": 1}),
    ],
)
def test_the_generic_chain_comes_before_the_owner_unless_it_is_skipped(
    first: Any, skip: bool, status: int, body: Any, owner_saw: Any
) -> None:
    async def scenario() -> None:
        guard = ScriptedModule("guard", input_chains=[{"chain": "inbound-local"}])
        guard.answers[INVOKE] = first
        module = owner(route="POST orders", skip_generic_chain=skip)
        configs = [in_process("guard"), in_process("arca")]
        async with hosted(guard, module, configs=configs) as node:
            answer = await node.ask("POST", "/v1/enact/orders", {"n": 1})
        assert answer.status == status
        if status == 200:
            assert answer.body == body
        assert [seen["body"] for seen in module.bodies()] == (
            [] if owner_saw is None else [owner_saw]
        )
        assert bool(guard.bodies()) is not skip

    run(scenario())


def test_the_generic_chain_can_answer_what_nothing_claims() -> None:
    async def scenario() -> None:
        guard = ScriptedModule(
            "guard",
            input_chains=[{"chain": "inbound-local", "message_types": ["POST /v1/enact/free"]}],
        )
        guard.answers[INVOKE] = decision("return", {"status": 200, "body": 1})
        async with hosted(guard, configs=[in_process("guard")]) as node:
            assert (await node.ask("POST", "/v1/enact/free", {})).body == 1
            assert (await node.ask("POST", "/v1/enact/else", {})).status == 404

    run(scenario())
