"""The capability bridge: grants, handlers of the host and of modules, classes of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.node.api import Answer, Caller
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Capabilities, NodeContext

from .support import Hosted, ScriptedModule, hosted, in_process, run

GRANTS = ["host.*", "publication.verify", "nothing.here"]


async def echo(body: Any, caller: Caller, query: Mapping[str, str]) -> Answer:
    return Answer(status=202, body=[body, caller.module, dict(query)], headers={"Retry-After": "9"})


async def breaks(body: Any, caller: Caller, query: Mapping[str, str]) -> Answer:
    raise ZeroDivisionError("secret words")


async def refuses(body: Any, caller: Caller, query: Mapping[str, str]) -> Answer:
    raise NodeError(409, "some_class", "no")


async def misfits(body: Any, caller: Caller, query: Mapping[str, str]) -> Answer:
    raise InputError("field: wrong")


def prepare(context: NodeContext) -> None:
    handlers = {"echo": echo, "breaks": breaks, "refuses": refuses, "input": misfits}
    for name, handler in handlers.items():
        context.capabilities.register(f"host.{name}", handler)


def modules(answer: Any = None) -> tuple[ScriptedModule, ScriptedModule]:
    asking = ScriptedModule("arca")
    handling = ScriptedModule(
        "verifier",
        host_capability_handlers=[{"capability_id": "publication.verify", "invoke_path": "/v"}],
    )
    handling.answers["/v"] = answer if answer is not None else {"ok": True}
    return asking, handling


CONFIGS = [in_process("arca", grants=GRANTS), in_process("verifier")]


async def ask(node: Hosted, name: str, body: Any = None, as_: str = "arca") -> Answer:
    path = f"/v1/host/capabilities/{name}"
    return await node.ask("POST", path, body, as_=as_, query={"mode": "deferred"})


def test_the_host_knows_body_caller_and_query_of_its_own_capabilities() -> None:
    async def scenario() -> None:
        async with hosted(*modules(), configs=CONFIGS, prepare=prepare) as node:
            answer = await ask(node, "host.echo", {"a": 1})
        assert (answer.status, answer.headers) == (202, {"Retry-After": "9"})
        assert answer.body == [{"a": 1}, "arca", {"mode": "deferred"}]

    run(scenario())


def test_a_module_handles_what_it_reported_and_learns_who_asks() -> None:
    async def scenario() -> None:
        asking, handling = modules((202, {"status": "deferred"}))
        async with hosted(asking, handling, configs=CONFIGS) as node:
            answer = await ask(node, "publication.verify", {"url": "x", "module_id": "dator"})
            assert (answer.status, answer.body) == (202, {"status": "deferred"})
            assert await node.part.call_capability("publication.verify", {}, "workflow") == {
                "status": "deferred"
            }
        (method, _, headers, body), (_, _, later, _) = handling.calls[-2:]
        assert (method, body) == ("POST", {"url": "x", "module_id": "dator"})
        assert headers["x-orbiplex-caller-module"] == "arca"
        assert headers["x-orbiplex-capability-id"] == "publication.verify"
        assert later["x-orbiplex-caller-module"] == "workflow"

    run(scenario())


@pytest.mark.parametrize(
    ("name", "as_", "status", "code"),
    [
        ("host.echo", "open", 401, "unauthorized"),
        ("host.echo", "verifier", 403, "host_capability_forbidden"),
        ("nothing.here", "verifier", 403, "host_capability_forbidden"),
        ("signer.sign", "arca", 403, "host_capability_forbidden"),
        ("host.echo", "stranger", 403, "host_capability_forbidden"),
        ("nothing.here", "arca", 503, "host_capability_unavailable"),
        ("host.breaks", "arca", 502, "host_capability_dispatch_failed"),
        ("host.refuses", "arca", 409, "some_class"),
        ("host.input", "arca", 400, "input"),
    ],
)
def test_every_refusal_has_its_class(name: str, as_: str, status: int, code: str) -> None:
    async def scenario() -> None:
        async with hosted(*modules(), configs=CONFIGS, prepare=prepare) as node:
            answer = await ask(node, name, as_=as_)
        assert (answer.status, answer.body["code"]) == (status, code)
        assert "secret words" not in str(answer.body)

    run(scenario())


@pytest.mark.parametrize(
    "failure", [(500, {"secret": "words"}), (404, None), (302, None), RuntimeError("secret words")]
)
def test_a_handler_that_fails_is_a_bad_gateway(failure: Any) -> None:
    async def scenario() -> None:
        async with hosted(*modules(failure), configs=CONFIGS) as node:
            answer = await ask(node, "publication.verify")
            with pytest.raises(NodeError, match=r"publication\.verify"):
                await node.part.call_capability("publication.verify", {}, "workflow")
        assert answer.status == 502
        assert answer.body["code"] == "host_capability_dispatch_failed"
        assert "secret" not in str(answer.body)

    run(scenario())


def test_a_handler_that_is_not_ready_is_unavailable() -> None:
    async def scenario() -> None:
        async with hosted(*modules(), configs=CONFIGS) as node:
            await node.ask("POST", "/v1/modules/verifier/stop")
            answer = await ask(node, "publication.verify")
        assert (answer.status, answer.body["code"]) == (503, "host_capability_unavailable")
        assert "Retry-After" in answer.headers

    run(scenario())


def test_a_report_grants_nothing_and_takes_nothing_of_the_host() -> None:
    async def scenario() -> None:
        thief = ScriptedModule(
            "arca",
            host_capability_handlers=[{"capability_id": "host.echo"}],
            capabilities=[{"capability_id": "host.refuses", "class": "other"}],
            grants=["host.refuses"],
        )
        configs = [in_process("arca", grants=["host.echo"])]
        async with hosted(thief, configs=configs, prepare=prepare) as node:
            assert (await ask(node, "host.echo", 1)).body[0] == 1
            assert (await ask(node, "host.refuses")).status == 403
            view = (await node.ask("GET", "/v1/modules/arca")).body
        assert view["state"] == "degraded"
        assert "host.echo" in view["last_problem"]["message"]
        assert thief.bodies() == []

    run(scenario())


def test_a_capability_has_one_handling_module() -> None:
    async def scenario() -> None:
        _, first = modules({"by": "first"})
        second = ScriptedModule(
            "second", host_capability_handlers=[{"capability_id": "publication.verify"}]
        )
        configs = [in_process("verifier", grants=GRANTS), in_process("second")]
        async with hosted(first, second, configs=configs) as node:
            answer = await ask(node, "publication.verify", as_="verifier")
            assert answer.body == {"by": "first"}
            assert (await node.ask("GET", "/v1/modules/second")).body["state"] == "degraded"

    run(scenario())


def test_init_names_the_granted_capabilities_of_the_host() -> None:
    async def scenario() -> None:
        asking, handling = modules()
        async with hosted(asking, handling, configs=CONFIGS, prepare=prepare):
            pass
        granted = ["host.breaks", "host.echo", "host.input", "host.refuses"]
        assert asking.bodies("/v1/middleware/init")[0]["host_capabilities"] == granted
        assert handling.bodies("/v1/middleware/init")[0]["host_capabilities"] == []

    run(scenario())


def test_a_name_is_registered_once() -> None:
    capabilities = Capabilities()
    capabilities.register("a", echo)
    with pytest.raises(ValueError, match="a"):
        capabilities.register("a", echo)
    assert capabilities.names() == ["a"]


def test_grants_are_known_to_other_parts() -> None:
    async def scenario() -> None:
        async with hosted(*modules(), configs=CONFIGS) as node:
            assert node.part.is_granted("arca", "host.echo")
            assert not node.part.is_granted("arca", "signer.sign")
            assert not node.part.is_granted("verifier", "host.echo")
            assert not node.part.is_granted("stranger", "host.echo")

    run(scenario())
