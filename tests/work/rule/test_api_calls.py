"""API calls of a rule against a real server: what is sent, what is taken, what the bounds are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

from anabranch.kernel.values import Answer
from anabranch.work.rule.api import ApiOptions
from virtual import run_virtually

from ..support import Handler, run, server
from .rules import Chain, performer, rule_task

INPUTS = {"Asset": {"type": "string", "default": "eth"}, "N": {"type": "int64", "default": 5}}


def call(url: str, extracts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "quote",
        "method": "GET",
        "contentType": "json",
        "urlTemplate": url,
        "extractMap": dict(extracts),
        **more,
    }


def answered(
    handler: Handler,
    document: Any,
    payload: Mapping[str, Any] | None = None,
    *,
    running: Callable[[Coroutine[Any, Any, Answer]], Answer] = run,
    key: str = "17/3.0",
    **options: Any,
) -> Answer:
    """Carry out a document against a server; `{url}` in it is the server's address."""

    async def whole() -> Answer:
        async with server(handler) as address:
            worker = performer(Chain(), http=ApiOptions(**options))
            text = json.dumps({"payload": INPUTS, **document}).replace("{url}", address)
            try:
                return await worker.perform(rule_task(text, payload, key=key))
            finally:
                await worker.close()

    return running(whole())


def gives(value: Any, status: int = 200) -> Handler:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(value, status=status)

    return handler


def failures(answer: Answer) -> str:
    return "\n".join(answer.record["extras"].get("failures", []))


X = {"X": {"type": "double", "value": "resp.x"}}


def test_placeholders_are_encoded_in_the_address_and_raw_in_the_body() -> None:
    seen: dict[str, Any] = {}

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.update(path=request.raw_path, body=await request.text(), headers=request.headers)
        seen["query"] = dict(request.rel_url.query)
        seen["method"] = request.method
        return web.json_response({"x": 1})

    wanted = call(
        "{url}/q/[Asset]/end?q=[Asset]&n=[N]", X, method="POST",
        bodyTemplate='{"asset": "[Asset]", "n": [N]}', headers={"X-Key": "k-[Asset]"},
    )  # fmt: skip
    answer = answered(handler, {"apiCalls": [wanted]}, {"Asset": "a/b &?#=+%"})
    assert answer.outcome == "valid"
    assert seen["method"] == "POST"
    segments = [unquote(part) for part in seen["path"].partition("?")[0].split("/")]
    assert segments == ["", "q", "a/b &?#=+%", "end"]
    assert seen["query"] == {"q": "a/b &?#=+%", "n": "5"}
    assert seen["body"] == '{"asset": "a/b &?#=+%", "n": 5}'
    assert seen["headers"]["X-Key"] == "k-a/b &?#=+%"
    assert seen["headers"]["Content-Type"] == "application/json"
    assert seen["headers"]["Idempotency-Key"] == "17:3"


@pytest.mark.parametrize(
    ("given", "key"), [("17/3.0", "17:3"), ("9/4.0", "9:4"), ("9/Check/ab~2", "9/Check/ab~2")]
)
def test_each_of_several_calls_has_a_key_of_its_own(given: str, key: str) -> None:
    """Also in a session that redrives another."""
    keys: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        keys.append(request.headers["Idempotency-Key"])
        return web.json_response({})

    calls = [call("{url}/", {}, name=name) for name in ("one", "two")]
    answered(handler, {"apiCalls": calls}, key=given)
    assert keys == [f"{key}:one", f"{key}:two"]


def test_extracts_are_worked_out_in_order_cast_and_saved() -> None:
    extracts = {
        "Price": {"type": "double", "value": "resp.data[[0]].price"},
        "Cents": {"type": "int64", "value": "[Price] * 100.0"},
        "Hidden": {"type": "string", "value": "resp.data[1].name", "save": False},
        "Count": {"type": "uint256", "value": "size(resp.data)"},
        "Big": {"type": "uint256", "value": "resp.big"},
        "Cheap": {"type": "bool", "value": "resp.data.exists(d, d.price < 2.0) && [N] == 5"},
        "Old": "resp.data[1].name",
    }
    rules = ["[Cents] == 150", "[Hidden] == 'b'", "[Cheap]", "[Count] == 2"]
    data = {"data": [{"price": 1.5}, {"name": "b", "price": 7}], "big": 10**25}
    answer = answered(gives(data), {"apiCalls": [call("{url}/", extracts)], "rules": rules})
    assert answer.outcome == "valid", answer
    assert answer.result == {
        "Price": 1.5, "Cents": 150, "Count": "2", "Big": str(10**25), "Cheap": True, "Old": "b",
    }  # fmt: skip
    assert answer.record["apiSaves"] == answer.result


def test_a_list_may_be_the_root_of_an_answer() -> None:
    answer = answered(gives([4, 5]), {"apiCalls": [call("{url}/", {"A": "resp[1]"})]})
    assert answer.result == {"A": 5.0}


def test_later_calls_can_use_what_earlier_ones_saved() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"x": request.rel_url.path[1:]})

    first = call("{url}/first", {"A": {"type": "string", "value": "resp.x"}}, name="a")
    second = call("{url}/then-[A]", {"B": {"type": "string", "value": "resp.x"}}, name="b")
    answer = answered(handler, {"apiCalls": [first, second]})
    assert answer.result == {"A": "first", "B": "then-first"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("resp.nothing", "no field nothing"),
        ("resp.x / 0", "does not take"),
        ("[Nobody]", "no Nobody"),
        ("resp.s", "a text that is no double"),
        ("[resp.x, 1]", "a list"),
        ("resp", "a mapping"),
    ],
)
def test_the_default_of_an_alias_takes_over_when_its_value_cannot_be_had(
    value: str, reason: str
) -> None:
    extracts = {"A": {"type": "double", "value": value, "default": 9}, "B": X["X"]}
    document = {"apiCalls": [call("{url}/", extracts)]}
    answer = answered(gives({"x": "1", "s": "word"}), document)
    assert (answer.outcome, answer.result) == ("valid", {"A": 9.0, "B": 1.0})
    assert reason in failures(answer)


@pytest.mark.parametrize("with_default", [True, False])
@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (gives({"x": 1}, status=404), "HTTP status 404"),
        (gives({"x": 1}, status=500), "HTTP status 500"),
        (gives({"x": "y" * 1_000_001}), "larger than 1,000,000 bytes"),
    ],
)
def test_a_call_that_failed_leaves_the_default_or_makes_the_step_invalid(
    handler: Handler, reason: str, with_default: bool
) -> None:
    extract = {**X["X"], **({"default": 3} if with_default else {})}
    answer = answered(handler, {"apiCalls": [call("{url}/", {"X": extract})]})
    assert answer.outcome == ("valid" if with_default else "invalid")
    assert answer.result == ({"X": 3.0} if with_default else {})
    assert reason in failures(answer)
    assert "127.0.0.1" not in json.dumps(answer.record)


@pytest.mark.parametrize("body", [b"", b"no", b"[NaN]", b'{"a":', b"[" * 5000, b'{"x": "\xff"}'])
def test_an_answer_that_is_not_json_is_a_failed_call(body: bytes) -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body)

    answer = answered(handler, {"apiCalls": [call("{url}/", X)]})
    assert answer.outcome == "invalid"
    assert "not JSON" in failures(answer)


def test_a_slow_server_is_cut_off_and_asked_once() -> None:
    """In virtual time: however busy the machine is, the server hears of the call in time."""
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.method)
        await asyncio.sleep(30)
        return web.json_response({})

    document = {"apiCalls": [call("{url}/", X, timeoutMs=100)]}
    answer = answered(handler, document, running=run_virtually)
    assert "no complete answer within 0.1 s" in failures(answer)
    assert asked == ["GET"]


def test_the_default_timeout_is_eight_seconds_and_the_body_limit_a_megabyte() -> None:
    assert (ApiOptions().timeout_ms, ApiOptions().body_bytes, ApiOptions().redirects) == (
        8_000, 1_000_000, 3,
    )  # fmt: skip


def redirects(times: int, to: str = "") -> Handler:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        hop = int(request.rel_url.path[1:] or 0)
        if hop < times:
            raise web.HTTPFound(to or f"/{hop + 1}")
        return web.json_response({"x": hop})

    return handler


def test_three_redirects_are_followed_and_a_fourth_is_not() -> None:
    document = {"apiCalls": [call("{url}/0", X)]}
    assert answered(redirects(3), document).result == {"X": 3.0}
    refused = answered(redirects(4), document)
    assert refused.outcome == "invalid"
    assert "more than 3 redirects" in failures(refused)


def test_a_redirect_to_somewhere_that_is_not_http_is_refused() -> None:
    answer = answered(redirects(1, "ftp://x.test/"), {"apiCalls": [call("{url}/0", X)]})
    assert "none of http" in failures(answer)


def test_the_authors_headers_do_not_follow_a_redirect_to_another_origin() -> None:
    seen: list[Mapping[str, str]] = []

    async def second(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers)
        return web.json_response({"x": 1})

    async def whole() -> Answer:
        async with server(second) as other:

            async def first(_request: web.BaseRequest) -> web.StreamResponse:
                raise web.HTTPTemporaryRedirect(f"{other}/there")

            async with server(first) as address:
                worker = performer(Chain())
                wanted = call(f"{address}/", X, headers={"X-Api-Key": "secret"})
                document = json.dumps({"payload": {}, "apiCalls": [wanted]})
                try:
                    return await worker.perform(rule_task(document))
                finally:
                    await worker.close()

    assert run(whole()).result == {"X": 1.0}
    assert "X-Api-Key" not in seen[0]
    assert seen[0]["Idempotency-Key"] == "17:3"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/", "the connection failed"),
        ("file:///etc/hosts", "none of http"),
        ("not an address", "none of http"),
        ("http://[N", "address"),
        ("{url}/[Nobody]", "there is no Nobody"),
    ],
)
def test_a_call_that_cannot_be_made_is_a_failed_call(url: str, reason: str) -> None:
    answer = answered(gives({"x": 1}), {"apiCalls": [call(url, X)]})
    assert answer.outcome == "invalid"
    assert reason in failures(answer)


def test_a_header_with_line_breaks_is_never_sent() -> None:
    wanted = call("{url}/", X, headers={"X-A": "[Asset]"})
    answer = answered(gives({"x": 1}), {"apiCalls": [wanted]}, {"Asset": "a\r\nX-B: c"})
    assert "cannot carry" in failures(answer)


@pytest.mark.parametrize(
    ("answer_value", "value", "kind"),
    [
        ({"x": [0] * 65}, "resp.x[0]", "limit"),
        ({"x": {"y": [[1] * 65]}}, "1.0", "limit"),
        ({"x": [1] * 64}, "resp.x.all(a, resp.x.all(b, resp.x.all(c, a == b)))", "limit"),
    ],
)  # fmt: skip
def test_what_exceeds_a_cap_is_a_hard_error_default_or_not(
    answer_value: Any, value: str, kind: str
) -> None:
    extracts = {"A": {"type": "int64", "value": value, "default": 1}}
    answer = answered(gives(answer_value), {"apiCalls": [call("{url}/", extracts)]})
    assert answer.status == "aborted"
    assert answer.record["error_class"] == kind


@pytest.mark.parametrize("extract", ["resp.x", "resp.x * 2.0"])
def test_an_extract_out_of_range_takes_its_default_and_is_an_error_without_one(
    extract: str,
) -> None:
    wanted = {"type": "int64", "value": extract, "default": 1}
    answer = answered(gives({"x": 1e30}), {"apiCalls": [call("{url}/", {"A": wanted})]})
    assert (answer.status, answer.outcome, answer.result) == ("ok", "valid", {"A": 1})
    assert "call quote, A: it is out of the range of int64" in failures(answer)
    del wanted["default"]
    answer = answered(gives({"x": 1e30}), {"apiCalls": [call("{url}/", {"A": wanted})]})
    assert (answer.status, answer.record["error_class"]) == ("aborted", "overflow")


def test_the_environment_sets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert answered(gives({"x": 2}), {"apiCalls": [call("{url}/", X)]}).result == {"X": 2.0}
