"""What is asked of roles and made of their answers: as values, and over loopback HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.modules.dator.config import EXECUTE_PATH, DispatchConfig, RoleConfig
from anabranch.modules.dator.http_roles import HttpRoles
from anabranch.modules.dator.role import RejectTask, RoleModule, load_function, perform
from anabranch.modules.dator.roles import RoleFailed, RoleUnavailable, read_answer, role_request
from anabranch.surfaces.http.module.server import HostToken, ModuleServer
from hangs import HANG_SECONDS
from in_loop import in_loop
from modules.dator.requests_of import order_of, request_of

ROLE = "role.summarise"
DISPATCH = "dispatch:1"
GOOD: dict[str, Any] = {
    "schema_version": "v1",
    "capability_id": "service_dispatch_execute",
    "status": "completed",
    "dispatch/id": DISPATCH,
    "provenance/origin-classes": ["node-generated"],
    "message": "done",
    "answer/content": {"a": 1},
    "answer/format": "json",
    "confidence/signal": 0.5,
}


def task(dispatch_id: str = DISPATCH, **given: Any) -> dict[str, Any]:
    request = request_of(order_of("offer:one", **{"request/input": given or {"text": "long"}}))
    return role_request(DispatchConfig(capability_id=ROLE), dispatch_id, request)


def test_a_role_is_asked_with_what_the_order_says() -> None:
    asked = task(text="abc")
    assert asked == {
        "schema_version": "v1",
        "capability_id": "role_task_execute",
        "role/capability_id": ROLE,
        "dispatch/id": DISPATCH,
        "service_type": "text/summarise",
        "request/input": {"text": "abc"},
        "workflow/run-id": "execution:one",
        "workflow/phase-id": "order",
        "correlation/id": "execution:one",
        "execution_ref": "execution:one",
    }
    needs = DispatchConfig(capability_id=ROLE, required_sensorium_actions=("os.open",))
    more = role_request(needs, DISPATCH, request_of(order_of("offer:one")))
    assert more["required_sensorium_actions"] == ["os.open"]


# -- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["json", "application/json", None])
def test_an_answer_in_json_is_taken_under_either_name_or_none(named: str | None) -> None:
    answer = {key: value for key, value in GOOD.items() if key != "answer/format"}
    found = read_answer(answer | ({"answer/format": named} if named else {}), DISPATCH)
    assert (found.status, found.output) == ("completed", {"a": 1})
    assert found.metadata["answer/format"] == "json"
    assert found.metadata["confidence/signal"] == 0.5


@pytest.mark.parametrize(
    ("content", "output"),
    [("[1]", [1]), ('"text"', "text"), ([1], [1]), (None, None), (False, False)],
)
def test_content_is_a_value_or_json_as_text(content: Any, output: Any) -> None:
    assert read_answer({**GOOD, "answer/content": content}, DISPATCH).output == output


@pytest.mark.parametrize(
    "change",
    [
        {"answer/format": "markdown"},
        {"answer/format": ""},
        {"answer/format": 1},
        {"answer/content": "no json"},
        {"answer/content": "NaN"},
        {"status": "done"},
        {"status": None},
        {"dispatch/id": "dispatch:2"},
        {"dispatch/id": None},
        {"schema_version": "v2"},
        {"capability_id": "other"},
    ],
)
def test_an_answer_that_is_not_understood_to_the_letter_fails(change: dict[str, Any]) -> None:
    with pytest.raises(RoleFailed) as raised:
        read_answer({**GOOD, **change}, DISPATCH)
    assert raised.value.code == "role-answer-invalid"


@pytest.mark.parametrize("answer", [None, [], "text", {}])
def test_what_is_no_answer_at_all_fails(answer: Any) -> None:
    with pytest.raises(RoleFailed):
        read_answer(answer, DISPATCH)


def test_a_completed_answer_needs_content() -> None:
    with pytest.raises(RoleFailed, match="answer/content"):
        read_answer({k: v for k, v in GOOD.items() if k != "answer/content"}, DISPATCH)


@pytest.mark.parametrize(
    ("status", "ends", "code"),
    [
        ("failed", "failed", "role-failed"),
        ("rejected-invalid-request", "rejected", "rejected-invalid-request"),
    ],
)
def test_a_role_may_fail_or_reject(status: str, ends: str, code: str) -> None:
    answer = read_answer({"status": status, "dispatch/id": DISPATCH, "message": "no"}, DISPATCH)
    assert (answer.status, answer.code, answer.message) == (ends, code, "no")


# -- a function as a role ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "output"),
    [
        (lambda given: given["text"], "long"),
        (lambda given, task: [given["text"], task["service_type"]], ["long", "text/summarise"]),
        (lambda _given: None, None),
        (lambda _given: {"x": (1, 2)}, {"x": [1, 2]}),
    ],
)
@in_loop
async def test_a_function_takes_the_input_and_maybe_the_request(function: Any, output: Any) -> None:
    assert read_answer(await perform(function, task()), DISPATCH).output == output


@in_loop
async def test_a_function_that_raises_or_returns_no_json_has_failed() -> None:
    def rejects(_given: Any) -> Any:
        raise RejectTask("no text")

    for function, status in (
        (rejects, "rejected-invalid-request"),
        (lambda given: given["none"], "failed"),
        (lambda _given: object(), "failed"),
    ):
        answer = await perform(function, task())
        assert answer["status"] == status


@pytest.mark.parametrize(
    "named", ["json", ":dumps", "json:", "no_such_module:f", "json:no_such", "json:__doc__"]
)
def test_what_is_no_function_is_refused(named: str) -> None:
    with pytest.raises(InputError):
        load_function(named)


def test_a_function_is_found_by_its_name() -> None:
    import json

    assert load_function("json:dumps") is json.dumps


# -- over loopback -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(function: Any, tmp_path: Path) -> AsyncIterator[tuple[HttpRoles, ModuleServer]]:
    token = tmp_path / "token"
    token.write_text("secret")
    module = RoleModule(function)
    async with ModuleServer(module, ("127.0.0.1", 0), HostToken("X-Role", "secret")) as server:
        role = RoleConfig(endpoint=server.url, auth_header="X-Role", token_file=str(token))
        wrong = RoleConfig(endpoint=server.url)
        lost = RoleConfig(endpoint=server.url, auth_header="X-Role", token_file=str(token) + "x")
        roles = HttpRoles({ROLE: role, "wrong": wrong, "lost": lost})
        try:
            yield roles, server
        finally:
            await roles.close()


@in_loop
async def test_a_role_over_http_does_the_same_dispatch_once(tmp_path: Path) -> None:
    calls: list[Any] = []

    def function(given: Any) -> Any:
        calls.append(given)
        return len(calls)

    async with served(function, tmp_path) as (roles, _):
        answers = await asyncio.gather(*(roles.call(ROLE, task(), 30) for _ in range(4)))
        assert [read_answer(one, DISPATCH).output for one in answers] == [1] * 4
        other = await roles.call(ROLE, task("dispatch:2"), 30)
        assert read_answer(other, "dispatch:2").output == 2


@in_loop
async def test_a_role_answers_only_those_with_its_token(tmp_path: Path) -> None:
    async with served(lambda _given: 1, tmp_path) as (roles, _):
        with pytest.raises(RoleFailed, match="401") as raised:
            await roles.call("wrong", task(), 30)
        assert raised.value.code == "role-refused"
        with pytest.raises(RoleUnavailable):
            await roles.call("lost", task(), 30)


@in_loop
async def test_a_role_may_ask_to_be_asked_later(tmp_path: Path) -> None:
    ready: list[bool] = []

    def function(_given: Any) -> Any:
        if not ready:
            ready.append(True)
            raise RoleUnavailable("the model is being loaded")
        return "now"

    async with served(function, tmp_path) as (roles, _):
        with pytest.raises(RoleUnavailable, match="503"):
            await roles.call(ROLE, task(), 30)
        answer = await roles.call(ROLE, task(), 30)
        assert read_answer(answer, DISPATCH).output == "now"


@in_loop
async def test_a_request_that_is_none_is_refused(tmp_path: Path) -> None:
    async with served(lambda _given: 1, tmp_path) as (roles, _):
        for wrong in ({}, {**task(), "capability_id": "x"}, {**task(), "request/input": 1}):
            with pytest.raises(RoleFailed, match="400"):
                await roles.call(ROLE, wrong, 30)


@in_loop
async def test_a_role_that_is_not_there_is_unavailable_and_has_not_begun() -> None:
    roles = HttpRoles({ROLE: RoleConfig(endpoint="http://127.0.0.1:9")})
    with pytest.raises(RoleUnavailable) as raised:
        await roles.call(ROLE, task(), 30)
    assert not raised.value.begun
    with pytest.raises(RoleUnavailable):
        await roles.call("role.unknown", task(), 30)
    await roles.close()


async def _bad(request: web.Request) -> web.StreamResponse:
    match request.path:
        case "/large":
            return web.Response(text='"' + "x" * 100_000 + '"')
        case "/text":
            return web.Response(text="hello")
        case "/list":
            return web.json_response([])
        case "/broken":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        case "/slow":
            await asyncio.sleep(HANG_SECONDS)
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"})


@in_loop
async def test_roles_in_bad_shape_are_told_apart() -> None:
    app = web.Application()
    app.router.add_post("/{tail:.*}", _bad)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    names = ("large", "text", "list", "broken", "slow", "redirect")
    roles = HttpRoles({
        name: RoleConfig(
            endpoint=f"http://127.0.0.1:{port}", invoke_path=f"/{name}", max_answer_bytes=1000
        )
        for name in names
    })  # fmt: skip
    found = {}
    for name in names:
        try:
            await roles.call(name, task(), 0.5 if name == "slow" else 30)
        except RoleFailed as error:
            found[name] = error.code
        except RoleUnavailable as error:
            found[name] = f"unavailable, begun: {error.begun}"
    assert found == {
        "large": "role-answer-invalid",
        "text": "role-answer-invalid",
        "list": "role-answer-invalid",
        "broken": "unavailable, begun: True",
        "slow": "role-timeout",
        "redirect": "role-refused",
    }
    await roles.close()
    await runner.cleanup()


@in_loop
async def test_a_function_that_does_not_say_what_it_takes_gets_the_input() -> None:
    answer = await perform(dict, task(text="a"))
    assert read_answer(answer, DISPATCH).output == {"text": "a"}


@in_loop
async def test_a_role_that_is_closed_leaves_no_work_behind() -> None:
    ended: list[str] = []

    async def waits(_given: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    module = RoleModule(waits)
    asking = asyncio.ensure_future(module.handle("POST", EXECUTE_PATH, {}, task()))
    while not module._answers:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await module.close()
    assert ended == ["ended"]
    with pytest.raises(asyncio.CancelledError):
        await asking
