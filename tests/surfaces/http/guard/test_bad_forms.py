"""What strangers can send before anybody knows them: bytes, forms, names of files. All refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest

from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.guard import FIELDS_MAX, STRANGERS_BYTES, STRANGERS_FIELDS

from ...tables import wrong_answers
from ..access import Door, serving
from ..support import run

NEEDED: Any = {"require_tokens": "yes"}
FORM = "application/x-www-form-urlencoded"


async def raw(door: Door, sent: bytes) -> tuple[int, str, bytes]:
    """The status, the head and the body of what comes back until the server hangs up."""
    port = int(door.server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head.decode("latin-1"), body


async def post(
    door: Door, data: bytes, media: str = FORM, path: str = "/login", **headers: str
) -> tuple[int, str]:
    given = {"Content-Type": media, "Cookie": f"anabranch_form={'x' * 43}", **headers}
    url = door.server.url + path
    async with door.session.post(url, data=data, headers=given) as reply:
        return reply.status, await reply.text()


# -- bytes that are no HTTP ------------------------------------------------------------------------

HEAD = b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
NOT_HTTP: dict[str, bytes] = {
    "nonsense": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    "a length and chunks": HEAD
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}    ",
    "a list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
    "a length with a sign": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "chunks that are not last": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "nearly chunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a chunk in another notation": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n c\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "line feeds only": b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n",
    "half a line end": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\rc\r\n\r\n",
    "a NUL": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\0c\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: " + b"s3cret" * 3000,
    "a thousand headers": b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 1000,
    "ten thousand parameters": b"GET /api/v1/runs?" + b"a&" * 10_000 + b" HTTP/1.1\r\n\r\n",
}


def test_what_is_not_http_is_refused_in_our_words_and_tells_nothing() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:

            async def check(name: str) -> None:
                status, head, body = await raw(door, NOT_HTTP[name])
                assert status == 400
                assert json.loads(body)["code"] == "not_http"
                assert "Server: anabranch" in head
                assert "nosniff" in head
                assert "aiohttp" not in head + body.decode()
                assert "s3cret" not in body.decode()
                assert (await door.ask("GET", "/health")).status == 200

            assert await wrong_answers(NOT_HTTP, check) == []

    run(go())


def test_a_head_without_end_is_given_up() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:

            async def check(sent: bytes) -> None:
                with suppress(ConnectionError):  # it may hang up while we are still sending
                    status, _, _ = await raw(door, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + sent)
                    assert status == 400
                assert (await door.ask("GET", "/health")).status == 200

            assert (
                await wrong_answers([b"X-A: " + b"x" * 1_000_000, b"X-A: b\r\n" * 100_000], check)
                == []
            )

    run(go())


OPEN = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
ASKED: dict[str, bytes] = {
    "no path": b"OPTIONS *" + OPEN,
    "a host for a path": b"CONNECT 127.0.0.1:80" + OPEN,
    "a packing that is no text": b"POST /api/v1/runs" + OPEN + b"Content-Encoding: \xff\r\n",
    "an origin that is no text": b"POST /api/v1/runs" + OPEN + b"Origin: http://\xff\r\n",
    "a host that is no text": b"GET /api/v1/runs HTTP/1.1\r\nConnection: close\r\nHost: \xff\r\n",
    "a media type that is no text": b"POST /login" + OPEN + b"Content-Type: \xff\r\n",
    "an origin at a page": b"POST /login" + OPEN + b"Origin: http://\xff\r\n",
    "a path that is no text": b"GET /\xff" + OPEN,
    "a path of the API that is no text": b"GET /api/v1/\xff" + OPEN,
    "a parameter that is no text": b"GET /login?next=/\xff" + OPEN,
    "a token that is no text": b"GET /api/v1/runs" + OPEN + b"Authorization: Bearer \xff\r\n",
}


def test_what_strangers_ask_is_refused_without_a_fault_whatever_they_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:

            async def check(name: str) -> None:
                status, head, body = await raw(door, ASKED[name] + b"\r\n")
                assert status < 500, body
                assert "charset=utf-8" in head or json.loads(body)["status"] == status
                assert [
                    one.getMessage() for one in caplog.records if one.levelname == "ERROR"
                ] == []

            assert await wrong_answers(ASKED, check) == []

    run(go())


def test_a_fault_of_ours_above_all_guards_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            assert door.server._runner is not None
            app = door.server._runner.app
            monkeypatch.setattr(app.router, "resolve", lambda _request: 1 // 0)
            status, head, body = await raw(door, b"GET /api/v1/runs" + OPEN + b"\r\n")
            assert (status, json.loads(body)["code"]) == (500, "internal")
            assert "nosniff" in head
            (line,) = caplog.records
            assert line.exc_info is None
            assert "\n" not in line.getMessage()
            assert "ZeroDivisionError" in line.getMessage()
            assert "test_bad_forms.py" in line.getMessage()

    run(go())


def test_a_second_request_hidden_in_the_first_is_never_answered() -> None:
    async def go() -> None:
        async with serving() as door:
            hidden = b"DELETE /api/v1/tokens/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            for head in (
                b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
                b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
            ):
                _, _, body = await raw(door, HEAD + head + hidden)
                assert re.findall(rb"HTTP/1\.[01] \d", body) == []
            assert door.server.parts.store.tokens() == []

    run(go())


# -- forms of strangers ----------------------------------------------------------------------------


def test_a_form_is_utf_8_whatever_it_claims() -> None:
    """Some of these take minutes to read a megabyte."""

    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:

            async def check(charset: str) -> None:
                began = time.process_time()
                status, text = await post(
                    door, b"xn--" + b"a" * 15_000, f"{FORM}; charset={charset}"
                )
                assert status == 415
                assert "UTF-8" in text
                assert time.process_time() - began < 5

            assert (
                await wrong_answers(
                    ["punycode", "idna", "utf-7", "utf-16", "bogus", "undefined"], check
                )
                == []
            )

    run(go())


BROKEN: dict[str, tuple[bytes, str, int]] = {
    "no media type": (b"csrf=x", "application/octet-stream", 415),
    "JSON": (b"{}", "application/json", 415),
    "plain text": (b"csrf=x", "text/plain", 415),
    "not UTF-8": (b"csrf=\xff\xfe", FORM, 400),
    "too many fields": (b"a=&" * (FIELDS_MAX + 1), FORM, 400),
    "more fields than the entrance has": (b"a=&" * (STRANGERS_FIELDS + 1), FORM, 400),
    "too large": (b"a=" + b"x" * STRANGERS_BYTES, FORM, 413),
    "files": (b"--x\r\n", "multipart/form-data; boundary=x", 413),
}


def test_a_form_at_the_entrance_that_is_none_is_refused() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:

            async def check(name: str) -> None:
                data, media, expected = BROKEN[name]
                status, text = await post(door, data, media)
                assert status == expected
                assert 'role="alert"' in text

            assert await wrong_answers(BROKEN, check) == []

    run(go())


PARTS: dict[str, bytes] = {
    "no boundary in it": b"nothing",
    "half a part": b'--x\r\nContent-Disposition: form-data; name="a"',
    "no name": b"--x\r\n\r\nvalue\r\n--x--\r\n",
    "not UTF-8": b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--x--\r\n',
    "packed": b'--x\r\nContent-Disposition: form-data; name="a"\r\nContent-Encoding: gzip\r\n\r\n'
    + gzip.compress(b"0" * 1_000_000)
    + b"\r\n--x--\r\n",
    "another charset": b'--x\r\nContent-Disposition: form-data; name="a"\r\n'
    b"Content-Type: text/plain; charset=punycode\r\n\r\n" + b"a" * 200_000 + b"\r\n--x--\r\n",
    "nested": b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n--y\r\n\r\nz\r\n--y--\r\n"
    b"\r\n--x--\r\n",
    "too many": b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * (FIELDS_MAX + 1)
    + b"--x--\r\n",
}


def test_a_form_with_files_that_is_broken_is_refused() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:

            async def check(name: str) -> None:
                began = time.process_time()
                media = "multipart/form-data; boundary=x"
                status, _ = await post(door, PARTS[name], media, "/definitions")
                assert status in (400, 403), status  # 403: it can be read, and has no secret
                assert time.process_time() - began < 5

            assert await wrong_answers(PARTS, check) == []

    run(go())


def test_a_large_form_is_taken_apart_beside_the_event_loop(monkeypatch: Any) -> None:
    threads: dict[str, list[bool]] = {"pairs_in": [], "parts_in": []}
    here = threading.get_ident()

    def watched(name: str) -> Any:
        take_apart = getattr(guard, name)

        def work(*given: Any) -> Any:
            threads[name].append(threading.get_ident() == here)
            return take_apart(*given)

        return work

    for name in threads:
        monkeypatch.setattr(guard, name, watched(name))

    async def go() -> None:
        async with serving(pages=True) as door:
            for size in (1000, 300_000):
                assert (await post(door, b"csrf=x&a=" + b"%41" * size))[0] == 403
                part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n%s\r\n--x--\r\n'
                media = "multipart/form-data; boundary=x"
                assert (await post(door, part % (b"a" * size), media))[0] == 403

    run(go())
    assert threads == {"pairs_in": [True, False], "parts_in": [True, False]}


def test_json_in_a_field_has_the_limits_of_a_body() -> None:
    """And it is read beside the event loop: `[],` sixteen million times held everybody up."""

    async def go() -> None:
        async with serving(pages=True) as door:
            values = f"[{'[],' * 300_000}1]"
            for path, field in (("/definitions", "rules"), ("/sessions/wake", "payload")):
                fields = {"csrf": "x" * 43, "text": "workflow: []", "process": "r:1", field: values}
                _, text = await post(door, urlencode(fields, safe="[],").encode(), path=path)
                assert "more than 250,000 lists and objects" in text

    run(go())


def test_a_packed_body_is_not_unpacked() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:
            bomb = gzip.compress(b"0" * 20_000_000)

            async def check(packed: str) -> None:
                for path, media in (("/api/v1/runs", "application/json"), ("/login", FORM)):
                    given = {"Content-Encoding": packed}
                    status, text = await post(door, bomb, media, path, **given)
                    assert status == 415
                    assert "packed" in text

            assert (
                await wrong_answers(["gzip", "deflate", "br", "zstd", "gzip, gzip", "x"], check)
                == []
            )

    run(go())


def test_slow_forms_of_strangers_keep_nobody_out() -> None:
    """More of them than connections are allowed: they make room as if they were idle."""

    async def go() -> None:
        async with serving(pages=True, serve_connections_max=20, **NEEDED) as door:
            token = door.token("read")
            port = int(door.server.url.rpartition(":")[2])
            writers = []
            for _ in range(60):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {FORM}\r\n"
                writer.write(f"{head}Content-Length: 1000\r\n\r\na".encode())
                writers.append(writer)
            for _ in range(5):
                assert (await door.ask("GET", "/runs", token)).status == 200
            assert len(door.server.limiter) <= 20
            for writer in writers:
                writer.close()

    run(go())


# -- names -----------------------------------------------------------------------------------------


def test_a_file_that_is_not_one_of_ours_is_not_there() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:

            async def check(name: str) -> None:
                status, _, body = await raw(
                    door,
                    f"GET /static/x/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode(),  # noqa: E501
                )
                assert status == 404
                assert b"root:" not in body
                assert b"import" not in body

            assert (
                await wrong_answers(
                    [
                        "..%2f..%2fcontext.py",
                        "%2e%2e%2fcontext.py",
                        "..%5c..%5ccontext.py",
                        "%2fetc%2fpasswd",
                        "C:%5cwindows%5cwin.ini",
                        "page.js%00",
                        "page.js%2f..%2fpage.js",
                        ".hidden",
                        "a" * 3000,
                        "%c0%ae%c0%ae%2fcontext.py",
                        "..;%2fcontext.py",
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_lines_in_a_path_do_not_become_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with serving(pages=True) as door:

            def broken(*_given: Any) -> Any:
                raise RuntimeError("a defect")

            read: Any = door.server.parts.verbs.read
            read.find = broken
            reply = await door.ask("GET", "/runs/a%0Aanabranch: all is well/wait")
            assert reply.status == 500

    run(go())
    assert not re.search(r"^anabranch: all is well", caplog.text, re.MULTILINE)
    assert "failed" in caplog.text
