"""What nobody should send: it is refused with a reason and a way out, and changes nothing."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from contextlib import suppress
from typing import Any

import pytest

from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.io.request_body import Limits
from anabranch.surfaces.http.routes import API, Route

from ...tables import wrong_answers
from ..support import HELLO, Client, Reply, gated, playbook, run, serving, step

JSON = {"Content-Type": "application/json"}
PROBLEM = {"type", "title", "status", "code", "detail", "hint"}


def is_problem(reply: Reply) -> bool:
    """Every error has the same shape, whoever found it."""
    return (
        reply.headers["Content-Type"] == "application/problem+json"
        and set(reply.json) - {"problems"} == PROBLEM
        and reply.json["status"] == reply.status
        and all(reply.json[key] for key in PROBLEM)
    )


async def refused(client: Client, status: int, code: str, method: str, path: str, **more: Any) -> Reply:  # fmt: skip  # noqa: E501
    reply = await client.ask(method, path, **more)
    assert (reply.status, reply.json["code"]) == (status, code), reply.text
    assert is_problem(reply), reply.text
    return reply


async def raw(client: Client, sent: bytes, *, shut: bool = True) -> bytes:
    """Bytes as they are, and everything that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(sent)
    if shut:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


# -- paths and methods -----------------------------------------------------------------------------


def test_every_path_refuses_the_methods_it_does_not_have() -> None:
    async def go() -> None:
        async with serving() as client:
            paths = {route.path for route in ALL_ROUTES if route.path.startswith(API)}
            for path in sorted(paths):
                known = {route.method for route in ALL_ROUTES if route.path == path}
                filled = path.replace("{", "").replace("}", "")
                for method in {"PUT", "PATCH", "DELETE"} - known:
                    reply = await refused(client, 405, "method", method, client.url + filled)
                    assert set(reply.headers["Allow"].split(", ")) >= known
            await refused(client, 405, "method", "GET", "/runs/x/pause")
            await refused(client, 405, "method", "POST", "/runs/x/explain")

    run(go())


OF_A_RUN = [route for route in ALL_ROUTES if route.path.startswith(f"{API}/runs/{{run}}")]


def test_a_run_that_does_not_exist_is_said_to_be_unknown() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(route: Route) -> None:
                path = route.path.removeprefix(API)
                filled = path.format(run="no-such-run", step="a", gate="g", name="paid")
                body = {"json": route.example} if route.body is not None else {}
                await refused(client, 404, "not_found", route.method, filled, **body)

            assert await wrong_answers(OF_A_RUN, check) == []

    run(go())


def test_a_path_that_leads_nowhere_leads_nowhere() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(path: str) -> None:
                sent = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                answer = await raw(client, sent.encode(), shut=False)
                status = int(answer.split(b" ", 2)[1])
                assert status in (400, 404), answer
                assert b"root:" not in answer
                assert len(answer) < 2000

            assert (
                await wrong_answers(
                    [
                        "/api/v1/payloads/../../etc/passwd",
                        "/api/v1/payloads/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
                        "/api/v1/payloads/..%5c..%5cetc",
                        "/api/v1/payloads/%00",
                        "/api/v1/definitions/..%2f..%2f..%2fetc%2fpasswd",
                        "/api/v1/runs/%2e%2e",
                        "/api/v1/runs/..;/x",
                        "/api/v1/runs/%ff%fe",
                        "/api/v1/runs/%ED%A0%80",
                        "/api/v1//runs",
                        "/api/v2/runs",
                        "/api/v1/runs/" + "x" * 5000,
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_parameters_that_a_route_does_not_know_are_refused_with_the_nearest_word() -> None:
    async def go() -> None:
        async with serving() as client:
            reply = await refused(client, 400, "unknown_parameter", "GET", "/runs?stauts=failed")
            assert "status" in reply.json["hint"]
            for query in (
                "limit=0",
                "limit=501",
                "limit=x",
                "limit=1&limit=2",
                "limit=١",
                "limit=1e3",
                "status=ended",
                "label=tenant",
                "created_after=-1",
                f"created_after={10**30}",
                "name=a%00b",
            ):
                await refused(client, 400, "parameter", "GET", f"/runs?{query}")
            for query in ("format=png", "raw=yes"):
                await refused(client, 400, "parameter", "GET", f"/runs/x/graph?{query}")

    run(go())


def test_a_cursor_that_is_not_ours_is_refused() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(cursor: str) -> None:
                for path in ("/runs", "/definitions", "/approvals"):
                    await refused(client, 400, "parameter", "GET", path, params={"cursor": cursor})

            assert (
                await wrong_answers(
                    [
                        "x",
                        "=",
                        "AAAA",
                        "WzFd",
                        "WzEsMl0",
                        "WyJhIiwiYiJd",
                        "e30",
                        "Ww",
                        "ü",
                        "W251bGwsMV0",
                        "!" * 900,
                        base64.b64encode(b"[" * 5000).decode(),
                    ],
                    check,
                )
                == []
            )

    run(go())


# -- bodies ----------------------------------------------------------------------------------------

DEEP = b'{"definition": {}, "input": ' + b'{"a":' * 300 + b"1" + b"}" * 301

BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "no_body"),
    "blank": (b" \n ", 400, "no_body"),
    "no JSON": (b"definition: x", 400, "not_json"),
    "half of it": (b'{"definition": "x"', 400, "not_json"),
    "two of them": (b'{"definition": "x"} {}', 400, "not_json"),
    "single quotes": (b"{'definition': 'x'}", 400, "not_json"),
    "a comment": (b'{"definition": "x" /* y */}', 400, "not_json"),
    "NaN": (b'{"definition": "x", "input": {"a": NaN}}', 400, "not_json"),
    "infinity": (b'{"definition": "x", "input": {"a": -Infinity}}', 400, "not_json"),
    "too large a float": (b'{"definition": "x", "input": {"a": 1e999}}', 422, "schema"),
    "too long a number": (b'{"fingerprint": "x", "input": [' + b"9" * 5000 + b"]}", 422, "schema"),
    "not UTF-8": (b'{"definition": "\xff\xfe"}', 400, "not_json"),
    "UTF-16": ('{"definition": "x"}'.encode("utf-16"), 400, "not_json"),
    "half a character": (b'{"definition": "\\ud800"}', 400, "not_json"),
    "a control character": (b'{"definition": "a\x01b"}', 400, "not_json"),
    "a key twice": (b'{"definition": "x", "definition": "y"}', 400, "duplicate_key"),
    "a key twice inside": (b'{"definition": {"a": [{"b": 1, "b": 2}]}}', 400, "duplicate_key"),
    "too deep": (DEEP, 400, "too_deep"),
    "far too deep": (b'{"input": {"a": ' + b"[" * 1_000_000, 400, "too_deep"),
    "deep in a list": (b'{"input": {"a":' + b"[" * 201 + b"]" * 201 + b"}}", 400, "too_deep"),
    "quotes without end": (b'{"a":' + b"[" * 500 + b'\\"' * 500_000, 400, "too_deep"),
    "quotes that end nowhere": (b'{"definition": "' + b'\\"' * 500_000, 400, "not_json"),
    "a list": (b"[1]", 422, "schema"),
    "a text": (b'"x"', 422, "schema"),
    "null": (b"null", 422, "schema"),
    "an unknown key": (b'{"definition": "x", "inputs": {}}', 422, "schema"),
    "a wrong kind": (b'{"definition": 5}', 422, "schema"),
    "labels that are no texts": (b'{"definition": "x", "labels": {"a": 1}}', 422, "schema"),
    "neither": (b"{}", 422, "usage"),
    "both": (b'{"definition": "x", "fingerprint": "y"}', 422, "usage"),
}


def test_a_body_that_cannot_be_read_is_refused_and_begins_nothing() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(name: str) -> None:
                body, status, code = BODIES[name]
                await refused(client, status, code, "POST", "/runs", data=body, headers=JSON)
                assert (await client.get("/runs")).json["items"] == []

            assert await wrong_answers(BODIES, check) == []

    run(go())


def test_brackets_inside_texts_are_not_counted_as_depth() -> None:
    async def go() -> None:
        async with serving() as client:
            body = {"definition": HELLO, "input": {"a": '[{"\\' * 500, "b": [[1]] * 300}}
            assert (await client.post("/runs", body)).status == 201

    run(go())


@pytest.mark.parametrize("media", ["", "text/plain", "application/x-www-form-urlencoded", "json"])
def test_a_body_that_is_not_said_to_be_json_is_refused(media: str) -> None:
    """A form of another site cannot say so: that is one of the walls against it."""

    async def go() -> None:
        async with serving() as client:
            data = json.dumps({"definition": HELLO}).encode()
            headers = {"Content-Type": media}
            await refused(client, 415, "media_type", "POST", "/runs", data=data, headers=headers)
            charset = {"Content-Type": "application/json; charset=utf-8"}
            assert (await client.ask("POST", "/runs", data=data, headers=charset)).status == 201

    run(go())


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused_early(announced: bool) -> None:
    async def go() -> None:
        async with serving(limits=Limits(body_bytes=100_000)) as client:

            async def pieces() -> Any:
                for _ in range(100):
                    yield b"x" * 10_000

            data = b"x" * 100_001 if announced else pieces()
            with suppress(ConnectionError):  # it may hang up while we are still sending
                await refused(client, 413, "too_large", "POST", "/runs", data=data, headers=JSON)
            assert (await client.get("/runs")).json["items"] == []

    run(go())


def test_a_bomb_of_compressed_zeros_does_not_go_off() -> None:
    async def go() -> None:
        import zlib

        packed = zlib.compress(b"[" + b"0" * 50_000_000)
        async with serving(limits=Limits(body_bytes=1_000_000)) as client:
            headers = {**JSON, "Content-Encoding": "deflate"}
            reply = await client.ask("POST", "/runs", data=packed, headers=headers)
            assert reply.status in (400, 413)
            assert is_problem(reply)

    run(go())


def test_a_label_of_ten_megabytes_is_refused() -> None:
    async def go() -> None:
        async with serving() as client:
            body = {"definition": HELLO, "labels": {"note": "x" * 10_000_000}}
            data = io.BytesIO(json.dumps(body).encode())
            reply = await refused(client, 422, "input", "POST", "/runs", data=data, headers=JSON)
            assert len(reply.text) < 1000
            many = {"definition": HELLO, "labels": {str(n): "" for n in range(100)}}
            await refused(client, 422, "input", "POST", "/runs", json=many)
            assert (await client.get("/runs")).json["items"] == []

    run(go())


def test_a_run_id_that_is_not_safe_is_refused() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(name: str) -> None:
                body = {"definition": HELLO, "run": name}
                reply = await client.post("/runs", body)
                assert (reply.status, reply.code) == (422, "bad_run_id"), reply.text

            assert (
                await wrong_answers(["last", "../x", "a b", "", "x" * 200, "ü", "-rf"], check) == []
            )

    run(go())


def test_markup_in_names_stays_text() -> None:
    async def go() -> None:
        name = "<script>alert(1)</script>"
        async with serving() as client:
            made = playbook(step("a", result=name), name=name)
            begun = await client.post("/runs", {"definition": made, "labels": {name: name}})
            if begun.status == 422:  # the dialect may be stricter about names
                made = playbook(step("a", result=name))
                begun = await client.post("/runs", {"definition": made, "labels": {name: name}})
            run_id = begun.json["run"]
            await client.ended(run_id)
            shown = await client.get(f"/runs/{run_id}")
            assert shown.headers["Content-Type"] == "application/json"
            assert shown.json["result"] == name
            svg = await client.get(f"/runs/{run_id}/graph?format=svg&raw=true")
            assert "<script" not in svg.text
            unknown = await client.get(f"/runs/{name.replace('/', '')}")
            assert unknown.headers["Content-Type"] == "application/problem+json"

    run(go())


# -- connections -----------------------------------------------------------------------------------


def test_a_body_that_never_comes_is_given_up() -> None:
    async def go() -> None:
        async with serving(limits=Limits(body_seconds=0.1)) as client:
            head = "POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            sent = f"{head}Content-Length: 100\r\n\r\n{{".encode()
            answer = await raw(client, sent, shut=False)
            assert b" 408 " in answer.split(b"\r\n")[0]
            assert b"slow_body" in answer
            assert (await client.get("/runs")).json["items"] == []

    run(go())


def test_connections_that_are_left_half_open_keep_nobody_waiting() -> None:
    async def go() -> None:
        async with serving() as client:
            writers = []
            for sent in (b"", b"GET /api/v1/runs HT", b"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\n"):
                for _ in range(30):
                    _, writer = await asyncio.open_connection("127.0.0.1", client.port)
                    writer.write(sent)
                    writers.append(writer)
            begun = await client.post("/runs", {"definition": HELLO})
            assert begun.status == 201
            for writer in writers:
                writer.close()

    run(go())


def test_what_is_not_http_is_turned_away() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(sent: bytes) -> None:
                answer = await raw(client, sent)
                assert b" 500 " not in answer.split(b"\r\n")[0]
                assert b"Traceback" not in answer
                assert (await client.get("/runs")).status == 200

            assert (
                await wrong_answers(
                    [
                        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                        b"GET\r\n\r\n",
                        b"GET / HTTP/9.9\r\n\r\n",
                        b"GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                        b"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",  # noqa: E501
                        b"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",  # noqa: E501
                        b"GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nX-Long: "
                        + b"x" * 100_000
                        + b"\r\n\r\n",
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_a_client_that_leaves_in_the_middle_leaves_the_run_whole() -> None:
    async def go() -> None:
        async with serving() as client:
            body = json.dumps({"definition": gated(), "run": "left"}).encode()
            head = f"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"  # noqa: E501
            _, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(head.encode() + body)
            await writer.drain()
            writer.transport.abort()
            for _ in range(200):
                reply = await client.get("/runs/left")
                if reply.status == 200:
                    break
                await asyncio.sleep(0.01)
            assert reply.json["run"] == "left"

    run(go())
