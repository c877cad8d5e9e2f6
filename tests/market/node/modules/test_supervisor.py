"""A module from its start to its end, in this process: states, refused reports, the operator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.modules.part import ModulesPart
from anabranch.market.node.modules.supervisor import ModuleNotReady
from anabranch.version import __version__

from .support import ScriptedModule, hosted, in_process, run

INIT = "/v1/middleware/init"
CONFIG = in_process("arca", **{"auth-token": "X-Arca-Auth", "http": {"headers": {"X-Extra": "1"}}})


def test_a_module_is_initialised_with_the_contract_and_its_token() -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        async with hosted(module, configs=[CONFIG]) as node:
            token = node.part.tokens.to_module("arca")
        calls = {path: (method, headers, body) for method, path, headers, body in module.calls}
        assert list(calls) == ["/readyz", INIT]
        assert calls["/readyz"] == ("GET", {"x-extra": "1"}, None)
        method, headers, body = calls[INIT]
        assert (method, headers) == ("POST", {"x-extra": "1", "x-arca-auth": token})
        assert body == {
            "schema_version": "v1",
            "middleware_contract_version": "v1",
            "host_api_version": "v1",
            "host_version": __version__,
            "executor_id": "arca",
            "executor_kind": "http_local_json",
            "module_id": "arca",
            "component_id": "arca",
            "node_id": "node:did:key:zTest",
            "middleware_home": "",
            "host_capabilities": [],
        }

    run(scenario())


def deep() -> Any:
    tree: Any = {"msg": "x"}
    for _ in range(10_000):
        tree = {"NOT": tree}
    return [{"chain": "pre-input", "filter": tree}]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"schema_version": "v1", "module_id": "dator"}, "report_module_id"),
        ({"schema_version": "v9", "module_id": "arca"}, "report_schema"),
        (None, "report_schema"),
        ("x" * (1024 * 1024), "report_too_large"),
        ({"module_id": "arca", "input_chains": deep()}, "report_too_deep"),
        ({"x": object()}, "report_schema"),
    ],
)
def test_a_report_that_cannot_be_taken_ends_the_module_at_once(answer: Any, code: str) -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        module.answers[INIT] = answer
        async with hosted(module, configs=[CONFIG]) as node:
            view = (await node.ask("GET", "/v1/modules/arca")).body
            with pytest.raises(ModuleNotReady):
                await node.part.modules["arca"].call("/x", None)
        assert (view["state"], view["restarts"], view["report"]) == ("failed", 0, None)
        assert view["last_problem"]["code"] == code
        assert len(view["last_problem"]["message"]) < 400
        assert len(module.bodies(INIT)) == 1

    run(scenario())


def test_a_filter_that_is_too_deep_is_refused_by_name() -> None:
    async def scenario() -> None:
        tree: Any = {"msg": "x"}
        for _ in range(100):
            tree = {"NOT": tree}
        module = ScriptedModule("arca", input_chains=[{"chain": "pre-input", "filter": tree}])
        async with hosted(module, configs=[CONFIG]) as node:
            view = (await node.ask("GET", "/v1/modules/arca")).body
        assert (view["state"], view["last_problem"]["code"]) == ("failed", "filter_too_deep")

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((500, {"secret": "words"}), "init_failed"),
        ((302, None), "init_failed"),
        (RuntimeError("secret words"), "module_crashed"),
    ],
)
def test_an_init_that_fails_is_tried_again_within_the_policy(answer: Any, code: str) -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        module.answers[INIT] = answer
        config = {**CONFIG, "restart_policy": {"max_restarts": 2}}
        async with hosted(module, configs=[config]) as node:
            view = (await node.ask("GET", "/v1/modules/arca")).body
        assert (view["state"], view["restarts"]) == ("failed", 2)
        assert view["last_problem"]["code"] == code
        assert "secret" not in str(view)
        assert len(module.bodies(INIT)) == 3

    run(scenario())


def test_a_module_that_gets_well_again_is_ready() -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        good, answers = module.answers[INIT], iter([(500, None), (500, None)])
        module.answers[INIT] = lambda _body: next(answers, good)
        async with hosted(module, configs=[CONFIG]) as node:
            await ready(node.part)
            assert node.part.modules["arca"].restarts == 2

    run(scenario())


def test_a_module_that_is_never_ready_is_given_up_after_its_time() -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        module.answers["/readyz"] = lambda _body: asyncio.sleep(3600)
        config = in_process(
            "arca", http={"startup_timeout_ms": 20}, restart_policy={"mode": "never"}
        )
        async with hosted(module, configs=[config]) as node:
            view = (await node.ask("GET", "/v1/modules/arca")).body
        assert (view["state"], view["last_problem"]["code"]) == ("failed", "startup_timeout")
        assert module.bodies(INIT) == []

    run(scenario())


def test_a_module_without_an_object_fails_and_can_be_started_later() -> None:
    async def scenario() -> None:
        async with hosted(configs=[CONFIG]) as node:
            view = (await node.ask("GET", "/v1/modules")).body["items"][0]
            assert (view["state"], view["last_problem"]["code"]) == ("failed", "not_attached")
            node.part.attach("arca", ScriptedModule("arca"))
            assert (await node.ask("POST", "/v1/modules/arca/start")).status == 200
            await ready(node.part)

    run(scenario())


def test_a_launcher_that_fails_unexpectedly_leaves_no_module_that_starts_for_ever() -> None:
    async def scenario() -> None:
        async with hosted(ScriptedModule("arca"), configs=[CONFIG]) as node:
            module = node.part.modules["arca"]
            await module.stop()

            class Broken:
                async def launch(self, config: Any) -> Any:  # noqa: ARG002
                    raise LookupError("a defect")

            module._launcher = Broken()
            module.start()
            await module.settled()
            assert module.state == "failed"
            assert module.problem is not None
            assert (module.problem.code, module.routable) == ("defect", False)

    run(scenario())


def test_a_module_that_was_restarted_a_thousand_times_is_restarted_again() -> None:
    async def scenario() -> None:
        async with hosted(ScriptedModule("arca"), configs=[CONFIG]) as node:
            module = node.part.modules["arca"]
            module._recent = [0] * 5000
            module._stop_asked.set()
            assert await module._paused() is True, "the pause has a length"

    run(scenario())


def test_the_operator_stops_starts_and_restarts() -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca", module_name="Arca")
        async with hosted(module, configs=[CONFIG]) as node:
            states = []
            for verb in ("stop", "stop", "start", "start", "restart"):
                await node.ask("POST", f"/v1/modules/arca/{verb}")
                await node.part.settled()
                states.append((await node.ask("GET", "/v1/modules/arca")).body["state"])
            assert states == ["stopped", "stopped", "ready", "ready", "ready"]
            assert len(module.bodies(INIT)) == 3
            view = (await node.ask("GET", "/v1/modules/arca")).body
            assert view["report"]["module_name"] == "Arca"
            assert (await node.ask("POST", "/v1/modules/nothing/stop")).status == 404
            for as_, status in (("arca", 403), ("open", 401), ("peer", 403)):
                assert (await node.ask("POST", "/v1/modules/arca/stop", as_=as_)).status == status

    run(scenario())


def test_a_module_that_is_not_enabled_is_not_started() -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        async with hosted(module, configs=[{**CONFIG, "enabled": False}]) as node:
            assert (await node.ask("GET", "/v1/modules/arca")).body["state"] == "configured"
        assert module.calls == []

    run(scenario())


def test_no_token_is_in_anything_the_operator_sees(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(ScriptedModule("arca"), configs=[CONFIG], data_dir=tmp_path) as node:
            seen = [
                await node.ask("GET", "/v1/modules"),
                await node.ask("GET", "/v1/modules/arca"),
            ]
            assert not any(secret in str(seen) for secret in node.part.tokens.secrets())

    run(scenario())


def test_a_module_that_says_its_token_is_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        async with hosted(module, configs=[CONFIG]) as node:
            secret = node.part.tokens.to_module("arca")
            module.answers[INIT]["module_id"] = secret
            await node.ask("POST", "/v1/modules/arca/restart")
            await node.part.settled()
            view = (await node.ask("GET", "/v1/modules/arca")).body
        assert view["last_problem"]["code"] == "report_module_id"
        assert "[redacted]" in view["last_problem"]["message"]
        assert secret not in str(view)
        assert secret not in caplog.text
        assert "report_module_id" in caplog.text

    run(scenario())


async def ready(part: ModulesPart) -> None:
    """Until the module is ready; between two starts it is neither."""
    module = part.modules["arca"]
    while module.state != "ready":
        await module.change()
