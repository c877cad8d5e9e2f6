"""An http task sends what its inputs say, and its result is the answer in one shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from anabranch.kernel.values import Answer
from anabranch.work.kind_options import HttpOptions
from anabranch.work.kinds.http.performer import Http

from ..support import Handler, run, server, task


async def echo(request: web.BaseRequest) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "path": request.path,
            "query": sorted(request.query.items()),
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": (await request.read()).decode(),
        }
    )


def call(
    handler: Handler, *, path: str = "/", options: HttpOptions | None = None, **inputs: Any
) -> Answer:
    """The answer of one task whose server is `handler`."""

    async def scenario() -> Answer:
        http = Http(options)
        async with server(handler) as address:
            try:
                return await http.perform(task("http", url=address + path, **inputs))
            finally:
                await http.close()

    return run(scenario())


def sent(**inputs: Any) -> dict[str, Any]:
    """What arrived at the server."""
    answer = call(echo, **inputs)
    assert answer.status == "ok", answer.fault
    data: dict[str, Any] = answer.result["data"]
    return data


def answering(status: int = 200, **more: Any) -> Handler:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, **more)

    return handler


def test_the_result_has_one_shape() -> None:
    answer = call(answering(201, text='{"a": 1}', content_type="application/json"), path="/x?q=1")
    result = answer.result
    assert sorted(result) == ["data", "elapsed", "headers", "status_code", "url"]
    assert (result["status_code"], result["data"]) == (201, {"a": 1})
    assert result["headers"]["content-type"] == "application/json; charset=utf-8"
    assert result["url"].endswith("/x?q=1")
    assert 0 < result["elapsed"] < 5


@pytest.mark.parametrize(
    ("response", "data"),
    [
        ({"text": "héllo"}, "héllo"),
        ({"body": b"[1]", "content_type": "application/problem+json"}, [1]),
        (
            {
                "body": '["é"]'.encode("latin-1"),
                "headers": {"Content-Type": "application/json; charset=latin-1"},
            },
            ["é"],
        ),
        ({"body": b"", "content_type": "application/json"}, None),
        ({"body": b"plain", "content_type": "application/octet-stream"}, "plain"),
    ],
)
def test_the_content_type_says_what_data_is(response: dict[str, Any], data: Any) -> None:
    assert call(answering(**response)).result["data"] == data


def test_bytes_that_are_no_text_come_as_base64() -> None:
    result = call(answering(body=b"\xff\xfe\x00", content_type="image/png")).result
    assert (result["data"], result["encoding"]) == ("//4A", "base64")


def test_parameters_drop_null_and_become_text() -> None:
    data = sent(params={"a": None, "b": True, "c": 1.5, "d": ["x", 2], "e": "ö&="}, path="/p?z=9")
    assert data["query"] == [
        ["b", "true"],
        ["c", "1.5"],
        ["d", "x"],
        ["d", "2"],
        ["e", "ö&="],
        ["z", "9"],
    ] or sorted(map(tuple, data["query"])) == sorted(
        [("b", "true"), ("c", "1.5"), ("d", "2"), ("d", "x"), ("e", "ö&="), ("z", "9")]
    )


@pytest.mark.parametrize(
    ("inputs", "content_type", "body"),
    [
        ({"body": {"a": 1}}, "application/json", '{"a":1}'),
        ({"payload": [1]}, "application/json", "[1]"),
        ({"json": "text"}, "application/json", '"text"'),
        ({"data": {"a": None}}, "application/json", '{"a":null}'),
        ({"form": {"a": "1 2", "b": None}}, "application/x-www-form-urlencoded", "a=1+2"),
        ({"data": "raw"}, "text/plain; charset=utf-8", "raw"),
        ({"body": "<a/>", "headers": {"Content-Type": "text/xml"}}, "text/xml", "<a/>"),
        (
            {"data": {"a": 1}, "headers": {"content-type": "application/x-www-form-urlencoded"}},
            "application/x-www-form-urlencoded",
            "a=1",
        ),
    ],
)
def test_bodies_are_written_as_meant(inputs: dict[str, Any], content_type: str, body: str) -> None:
    data = sent(method="post", **inputs)
    assert data["method"] == "POST"
    assert data["headers"]["content-type"] == content_type
    assert data["body"] == body


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"type": "basic", "username": "joe", "password": "s3"}, "Basic am9lOnMz"),
        ({"username": "joe", "password": "s3"}, "Basic am9lOnMz"),
        ({"basic": {"username": "joe", "password": "s3"}}, "Basic am9lOnMz"),
        ({"type": "bearer", "token": "tok"}, "Bearer tok"),
        ({"bearer": "tok"}, "Bearer tok"),
        ({"token": "tok"}, "Bearer tok"),
    ],
)
def test_credentials_become_a_header(auth: dict[str, Any], header: str) -> None:
    assert sent(auth=auth)["headers"]["authorization"] == header


def test_calls_that_change_something_carry_the_key() -> None:
    assert sent(method="PUT")["headers"]["idempotency-key"] == "run-1/job-1"
    own = sent(method="DELETE", headers={"Idempotency-Key": "mine"})
    assert own["headers"]["idempotency-key"] == "mine"
    assert "idempotency-key" not in sent()["headers"]


def test_headers_are_text_and_null_is_left_out() -> None:
    headers = sent(headers={"X-Number": 5, "X-None": None, "X-Flag": False})["headers"]
    assert (headers["x-number"], headers["x-flag"]) == ("5", "false")
    assert "x-none" not in headers
    assert headers["user-agent"] == "anabranch"


def test_endpoint_is_another_name_of_url() -> None:
    async def scenario() -> Answer:
        http = Http()
        async with server(echo) as address:
            answer = await http.perform(task("http", endpoint=f" {address}/x "))
            await http.close()
            return answer

    assert run(scenario()).result["data"]["path"] == "/x"


async def redirecting(request: web.BaseRequest) -> web.Response:
    if request.path == "/end":
        return await echo(request)
    return web.Response(status=302, headers={"Location": "/end?secret=1"})


def test_redirects_are_followed_for_plain_reading_calls() -> None:
    assert call(redirecting, path="/start").result["url"].endswith("/end?secret=1")


@pytest.mark.parametrize(
    "inputs",
    [
        {"method": "POST"},
        {"auth": {"token": "t"}},
        {"headers": {"Authorization": "x"}},
        {"headers": {"X-Api-Key": "x"}},
        {"follow_redirects": False},
    ],
)
def test_others_are_told_where_it_goes(inputs: dict[str, Any]) -> None:
    fault = call(redirecting, path="/start", **inputs).fault
    assert fault is not None
    assert (fault.kind, fault.code) == ("client_error", "HTTP_302")
    assert "a redirect to /end; set follow_redirects: true" in fault.message


def test_redirects_can_be_asked_for() -> None:
    answer = call(redirecting, path="/start", auth={"token": "t"}, follow_redirects=True)
    assert answer.result["data"]["path"] == "/end"


def test_state_does_not_leak_between_calls() -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        response = web.json_response({"cookie": request.headers.get("Cookie")})
        response.set_cookie("session", "one")
        return response

    async def scenario(http: Http, address: str) -> list[Any]:
        return [(await http.perform(task(url=address))).result["data"] for _ in range(2)]

    assert with_http(handler, scenario) == [{"cookie": None}, {"cookie": None}]


def test_a_thousand_calls_run_at_once() -> None:
    here, most = 0, 0
    together = asyncio.Event()

    async def handler(_: web.BaseRequest) -> web.Response:
        nonlocal here, most
        here += 1
        most = max(most, here)
        if here == 1000:
            together.set()
        await together.wait()
        here -= 1
        return web.Response(text="ok")

    async def scenario(http: Http, address: str) -> list[Answer]:
        calls = [http.perform(task(url=address)) for _ in range(1000)]
        return await asyncio.gather(*calls)

    answers = with_http(handler, scenario)
    assert most == 1000
    assert {answer.result["data"] for answer in answers} == {"ok"}


def test_connections_are_used_again() -> None:
    ports = set()

    async def handler(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return web.Response(text="ok")

    async def scenario(http: Http, address: str) -> None:
        for _ in range(5):
            await http.perform(task(url=address))

    with_http(handler, scenario)
    assert len(ports) == 1


def with_http(handler: Handler, scenario: Callable[[Http, str], Awaitable[Any]]) -> Any:
    async def guarded() -> Any:
        http = Http()
        async with server(handler) as address:
            try:
                return await scenario(http, address)
            finally:
                await http.close()

    return run(guarded())


def test_the_result_is_plain_json() -> None:
    answer = call(echo, method="POST", body={"deep": [{"a": None}]})
    assert json.loads(json.dumps(answer.result)) == answer.result
