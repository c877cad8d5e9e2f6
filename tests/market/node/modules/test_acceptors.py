"""Acceptors of modules: which takes what, and that a module that has not decided is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node.ports import Acceptance

from .support import ScriptedModule, hosted, in_process, run

ACCEPT = "/v1/artifact-delivery/accept"
CONFIG = in_process(
    "arca",
    acceptors=[
        {"acceptor_id": "json", "artifact_schema": "s.v1", "content_type": "application/json"},
        {"acceptor_id": "any", "artifact_schema": "s.v1"},
        {"acceptor_id": "small", "artifact_schema": "t.v1", "max_response_bytes": 40},
    ],
)


def test_the_first_acceptor_that_fits_is_found() -> None:
    async def scenario() -> None:
        async with hosted(ScriptedModule("arca"), configs=[CONFIG]) as node:
            find = node.part.acceptor_for
            assert find("s.v1", "application/json") == "json"
            assert find("s.v1", "text/plain") == "any"
            assert find("t.v1", "") == "small"
            assert find("u.v1", "application/json") == ""

    run(scenario())


@pytest.mark.parametrize("status", ["accepted", "already-present", "rejected", "retryable"])
def test_a_decision_is_passed_on(status: str) -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        module.answers[ACCEPT] = {
            "status": status,
            "acceptor/id": "json",
            "reason": "because",
            "artifact/ref": "ref:1",
        }
        invoke = {"admission/id": "a1", "invocation/token": "t"}
        async with hosted(module, configs=[CONFIG]) as node:
            assert await node.part.accept("json", invoke) == Acceptance(
                status=status, acceptor_id="json", reason="because", artifact_ref="ref:1"
            )
        assert module.bodies(ACCEPT) == [invoke]

    run(scenario())


@pytest.mark.parametrize(
    ("acceptor", "answer", "reason"),
    [
        ("unknown", None, "acceptor-unknown"),
        ("json", (500, None), "acceptor-answered-500"),
        ("json", RuntimeError("x"), "module_crashed"),
        ("json", {"status": "perhaps", "acceptor/id": "json"}, "admission-invalid"),
        ("json", {"status": "accepted"}, "admission-invalid"),
        ("json", {"status": "accepted", "acceptor/id": "any"}, "admission-invalid"),
        ("json", [], "admission-invalid"),
        (
            "small",
            {"status": "accepted", "acceptor/id": "small", "reason": "x" * 40},
            "module_response_too_large",
        ),
    ],
)
def test_anything_else_is_no_decision(acceptor: str, answer: Any, reason: str) -> None:
    async def scenario() -> None:
        module = ScriptedModule("arca")
        module.answers[ACCEPT] = answer
        async with hosted(module, configs=[CONFIG]) as node:
            assert await node.part.accept(acceptor, {}) == Acceptance(
                status="retryable", acceptor_id=acceptor, reason=reason
            )

    run(scenario())


def test_a_module_that_is_stopped_has_not_decided() -> None:
    async def scenario() -> None:
        async with hosted(ScriptedModule("arca"), configs=[CONFIG]) as node:
            await node.part.modules["arca"].stop()
            said = await node.part.accept("json", {})
            assert (said.status, said.reason) == ("retryable", "module_not_ready")

    run(scenario())
