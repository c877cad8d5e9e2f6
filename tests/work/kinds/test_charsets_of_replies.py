"""The charset of a reply is the server's choice: only those of linear cost are decoded."""

from __future__ import annotations

import ast
import base64
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import anabranch
from anabranch.kernel.values import Answer
from anabranch.work.kinds.http import response
from anabranch.work.kinds.http.charsets import CODECS
from anabranch.work.kinds.http.performer import Http
from syntax import nodes_in

from ..support import run, server, task

SOURCE = Path(anabranch.__file__).parent


def fetched(body: bytes, content_type: str) -> Answer:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def scenario() -> Answer:
        http = Http()
        try:
            async with server(handler) as url:
                return await http.perform(task("http", url=url))
        finally:
            await http.close()

    return run(scenario())


@pytest.mark.parametrize("charset", sorted(CODECS))
def test_every_charset_of_the_table(charset: str) -> None:
    text = "plain" if CODECS[charset] == "ascii" else "é ü"
    body = text.encode(CODECS[charset])
    assert fetched(body, f"text/plain; charset={charset}").result["data"] == text
    as_json = f'"{text}"'.encode(CODECS[charset])
    assert fetched(as_json, f'application/json; charset="{charset.upper()}"').result["data"] == text


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "utf-7", "unicode_escape", "rot13", "zlib", "gb18030", "nope"]
)
def test_text_of_any_other_charset_comes_as_bytes(charset: str) -> None:
    body = b"a" * 1_000_000 + b"-9kqa"  # a minute and more, where punycode is decoded
    result = fetched(body, f"text/plain; charset={charset}").result
    assert result["encoding"] == "base64"
    assert base64.b64decode(result["data"]) == body


def test_json_of_any_other_charset_is_an_error_that_names_it() -> None:
    answer = fetched(b'"' + b"a" * 1_000_000 + b'-9kqa"', "application/json; charset=punycode")
    assert answer.fault is not None
    assert answer.fault.kind == "parse"
    assert "its charset is 'punycode'" in answer.fault.message


def test_a_large_reply_is_taken_apart_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[int] = set()
    real = response.answer_for

    def noting(*given: Any) -> Answer:
        seen.add(threading.get_ident())
        return real(*given)

    monkeypatch.setattr(response, "answer_for", noting)
    body = b"[" + b"[1],[2]," * 100_000 + b"3]"
    assert len(fetched(body, "application/json").result["data"]) == 200_001
    assert threading.get_ident() not in seen


def test_a_reply_of_countless_lists_is_refused_before_it_is_built() -> None:
    body = b"[" + b"[]," * 1_000_001 + b"[]]"
    answer = fetched(body, "application/json")
    assert answer.fault is not None
    assert "more than 1,000,000 lists and objects" in answer.fault.message


def test_nowhere_else_is_a_charset_of_others_decoded() -> None:
    """No `.text()` or `.json()` of a reply, no `.decode(…)` whose codec is not written out."""
    allowed = {"work/kinds/http/charsets.py", "work/loops/collections/files.py"}
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = str(path.relative_to(SOURCE)), path.read_text(encoding="utf-8")
        if not re.search(r"\b(decode|text|json)\s*\(", text):
            continue  # to parse all of them takes seconds
        for node in nodes_in(text):
            awaited = node.value if isinstance(node, ast.Await) else None
            if isinstance(awaited, ast.Call) and isinstance(awaited.func, ast.Attribute):
                bare = not awaited.args and not awaited.keywords
                if bare and awaited.func.attr in ("text", "json"):
                    wrong.append(f"{name}:{awaited.lineno}")
            if name in allowed or not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and node.func.attr == "decode" and node.args:
                whose = ast.unparse(node.func.value).removeprefix("self.")
                on_bytes = whose.partition(".")[0].removesuffix("()") not in _DECODERS
                if on_bytes and not isinstance(node.args[0], ast.Constant):
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong


#: Names whose `decode` takes bytes and gives values.
_DECODERS = {
    "msgspec",
    "_decoder",
    "_audited",
    "_SIZES",
    "decoder",
    "_answers",
    "_cursors",
    "_events",
    "_state",
    "_states",
    "abi",
    "json_size",
    "_HEADER",
    "_LINE",
}
