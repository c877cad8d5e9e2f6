"""Whatever comes to `/rpc`, from whomever: the answer is JSON, and the log has no traceback."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.surfaces.http.routes import API
from hangs import HANG_SECONDS
from seeds import examples

from ..cli.server_in_thread import served
from .permits import ANN, BOB, CHAIN
from .test_rpc import HASH, RULE, SLEEPER

JSON = "application/json"
ME = ANN.sign("xdalaPermit", {})
CONTROL = {"runner": ANN.address, "sessionId": 1, "action": "wake", "stepId": "W1"}
START = {"ostcId": "o", "ostcHash": HASH, "sessionId": 2, "maxTotalGas": 1, "payload": '{"x": 1}'}
GRANT = {"grantee": BOB.address, "rights": 1, "expireAt": 9, "encDEK": "0x"}
#: Calls that would be right, by method.
RIGHT: dict[str, list[Any]] = {
    "getNextProcessId": [{"from": ANN.address}],
    "estimateRuleGas": [{"json": json.loads(RULE), "validSpawns": 1, "encrypted": False}],
    "stepExecuted": [ANN.address, "1", 1],
    "sessionAlive": [ANN.address, "1"],
    "validateDataTransfer": [
        {"orchestration": ANN.address, "stepId": "A1", "payload": {"x": 1},
         "permit": ANN.sign("SessionPermit", START)}
    ],
    "wakeUpProcess": [
        {"permit": ANN.sign("ControlPermitV2", CONTROL), "stepId": "W1", "payload": {"x": 1}}
    ],
    "control": [
        {"permit": BOB.sign("ControlPermitV2", {**CONTROL, "action": "kill"}), "action": "kill"}
    ],
    "listSessions": [{"permit": ME, "rootId": "1", "last": 9, "parentPid": "1:1", "view": "raw"}],
    "manageGrants": [{"permit": ME, "rid": HASH, "scope": 1, "entries": [GRANT], "refAddr": ""}],
    "listGrants": [{"permit": ME, "rid": HASH, "validAt": 1, "limit": 5, "cursor": 0}],
}  # fmt: skip
WAKEABLE = [{"controlPermit": BOB.sign("ControlPermitV2", CONTROL), "rootId": "1", "last": 9}]
NAMES = sorted(
    {"permit", "controlPermit", "domain", "types", "message", "signature", "primaryType", "name"}
    | {"chainId", "expiry", "from", "runner", "rootId", "parentPid", "last", "view", "stepId"}
    | {"processId", "payload", "orchestration", "json", "validSpawns", "rid", "scope", "entries"}
    | {"grantee", "rights", "expireAt", "encDEK", "limit", "cursor", "validAt", "refAddr", "type"}
    | {"jsonrpc", "method", "params", "id", "__wakeUp", "rules", "onValid", "sessionId", "action"}
)
WHOLE = st.integers() | st.sampled_from([2**53, 2**63, 2**64, 2**256, -1, 10**4299])
LEAVES = (
    st.none()
    | st.booleans()
    | WHOLE
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)  # halves of characters as well
    | st.sampled_from([ANN.address, BOB.address, HASH, "1", "1:2", "W1", "0x", RULE, "raw"])
)
JUNK = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def bent(draw: st.DrawFn, whole: Any) -> Any:
    """The same but for one place, however deep."""
    if isinstance(whole, (dict, list)) and whole and draw(st.integers(0, 9)):
        keys = sorted(whole) if isinstance(whole, dict) else list(range(len(whole)))
        if "params" in keys:  # where the most is
            keys += ["params"] * 9
        key, changed = draw(st.sampled_from(keys)), whole.copy()
        changed[key] = draw(bent(whole[key]))
        return changed
    return draw(JUNK)


CALLS = st.sampled_from(
    [
        {"jsonrpc": "2.0", "id": 1, "method": f"xgr_{name}", "params": params}
        for name, params in [*RIGHT.items(), ("listSessions", WAKEABLE), ("getCoreAddrs", [])]
    ]
)
BENT = CALLS.flatmap(bent)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    value = draw(CALLS | BENT | BENT.flatmap(bent) | st.lists(BENT, max_size=4))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    body = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)):
        return body
    cut, more = draw(st.integers(0, len(body))), draw(st.binary(max_size=8))
    return body[:cut] + more + body[cut + draw(st.integers(0, 3)) :]


def is_reply(value: Any) -> bool:
    return isinstance(value, dict) and value["jsonrpc"] == "2.0" and len(value) == 3


def ask(server: HTTPConnection, body: bytes, method: str = "POST", media: str = JSON) -> Any:
    """The answer: one of JSON-RPC, or with another status than 200 a problem in JSON."""
    server.request(method, "/rpc", body, {"Content-Type": media})
    reply = server.getresponse()
    text = reply.read()
    if reply.status == 204:
        assert text == b""
        return None
    value, answered = json.loads(text), reply.getheader("Content-Type", "").split(";")[0]
    if reply.status == 200:
        assert answered == "application/json"
        assert all(map(is_reply, value if isinstance(value, list) else [value])), text
        assert b"-32603" not in text, "a bug in Anabranch"
    else:
        assert answered == "application/problem+json"
        assert 400 <= reply.status < 500, text
        assert value["status"] == reply.status
    return value


@contextmanager
def connected() -> Iterator[HTTPConnection]:
    """To a server with its pages, whose first session is one of Ann's and sleeps."""
    with served(":memory:", rpc_access="permit", chain_id=CHAIN) as server:
        parts = urlsplit(server.url)
        assert parts.hostname is not None
        with closing(HTTPConnection(parts.hostname, parts.port, timeout=HANG_SECONDS)) as made:
            start = {"definition": SLEEPER, "labels": {"owner": ANN.address}}
            made.request("POST", f"{API}/runs", json.dumps(start), {"Content-Type": JSON})
            reply = made.getresponse()
            assert reply.status == 201, reply.read()
            reply.read()
            yield made


def test_every_answer_is_json_and_nothing_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    with connected() as server:

        @settings(max_examples=examples(1000, least=50))
        @given(bodies())
        @example(b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "xgr_getCoreAddrs"}')
        @example(b'{"jsonrpc": "2.0", "id": 1, "method": "xgr_control", "params": ["\\ud800"]}')
        @example(b"[" * 100_000)
        def answer_each(body: bytes) -> None:
            ask(server, body)

        answer_each()
        for method, media, status in (("GET", JSON, 405), ("PUT", JSON, 405), ("POST", "a/b", 415)):
            assert ask(server, b"{}", method, media)["status"] == status
    names = ("anabranch.http", "asyncio", "aiohttp.server")  # others tell of a busy machine
    errors = [one for one in caplog.records if one.levelno >= logging.ERROR and one.name in names]
    assert errors == []
