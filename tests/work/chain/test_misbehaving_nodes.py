"""Whatever a node or something in front of it does, it ends in the right error, in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from anabranch.errors import InputError
from anabranch.work.chain import errors, rpc
from anabranch.work.chain.abi import encode
from anabranch.work.chain.abi_types import type_of
from anabranch.work.chain.evm import Endpoints, EvmChain
from anabranch.work.chain.loader import LoadedOrchestration, load_orchestration
from anabranch.work.chain.nesting import nests_deeper
from anabranch.work.chain.rpc import JsonRpc, RpcOptions
from anabranch.work.rule.ports import ReadFailed, RuleUnavailable
from hangs import HANG_SECONDS
from market.checks import BESIDE, HERE, where

from ..support import Handler, run, server
from .contracts import refusal, text

REGISTRY = "0x" + 40 * "1"
QUICK = RpcOptions(timeout_seconds=HANG_SECONDS, pause_seconds=0.001)
DOCUMENT = '{"id":"orders","structure":{}}'
Answer = dict[str, Any] | web.StreamResponse


class Node:
    """Answers a registry with one orchestration, except where a test says otherwise."""

    def __init__(self, **answers: Callable[[dict[str, Any]], Answer]) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        question = await request.json()
        self.asked.append(question)
        method = question["method"]
        answer = self.answers[method](question) if method in self.answers else usual(question)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.json_response({"jsonrpc": "2.0", "id": question["id"], **answer})


def usual(question: dict[str, Any]) -> Answer:
    match question["method"]:
        case "eth_blockNumber":
            return {"result": "0x10"}
        case "eth_chainId":
            return {"result": "0x66b"}
        case "eth_getCode":
            return {"result": "0x00"}
    if question["params"][0]["data"].startswith("0x9335a4d1"):  # getOSTC
        return {"result": "0x" + text(DOCUMENT).hex()}
    return {"error": {"code": 3, "message": "execution reverted", "data": "0x"}}


def load(handle: Handler, options: RpcOptions = QUICK) -> LoadedOrchestration:
    async def loading() -> LoadedOrchestration:
        async with server(handle) as url:
            return await load_orchestration(url, REGISTRY, "orders", options=options)

    return run(loading())


def answering(answer: Answer) -> Handler:
    """A node whose contract calls all get this answer."""
    return Node(eth_call=lambda _: answer).handle


def test_the_mock_itself_works() -> None:
    assert load(Node().handle).text == DOCUMENT


# -- reverts, as nodes write them --------------------------------------------------------------

REASON = "0x" + refusal("XRC729: not found").hex()
PANIC = "0x4e487b71" + (0x11).to_bytes(32, "big").hex()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": 3, "message": "execution reverted", "data": REASON}, "XRC729: not found"),
        ({"code": -32000, "message": "x", "data": {"data": REASON}}, "XRC729: not found"),
        ({"code": -32015, "message": "VM execution error.", "data": f"Reverted {REASON}"},
         "XRC729: not found"),
        ({"code": -32603, "message": "Internal", "data": {"originalError": {"data": REASON}}},
         "XRC729: not found"),
        ({"code": -32000, "message": "execution reverted: XRC729: not found"},
         "XRC729: not found"),
        ({"code": -32603, "message":
          "VM Exception while processing transaction: reverted with reason string 'no such'"},
         "no such"),
        ({"code": 3, "message": "execution reverted", "data": "0x"}, ""),
        ({"code": 3, "message": "execution reverted"}, ""),
        ({"code": -32000, "message": "execution reverted"}, ""),
        ({"code": -32015, "message": "VM execution error."}, ""),
        ({"code": -32000, "message": "invalid opcode: INVALID"}, ""),
        ({"code": 3, "message": "execution reverted", "data": PANIC}, "panic 0x11"),
        ({"code": 3, "message": "execution reverted", "data": "0x12345678"},
         "custom error 0x12345678"),
        ({"code": 3, "message": "execution reverted", "data": REASON[:60]}, ""),
    ],
)  # fmt: skip
def test_a_revert_is_known_in_every_spelling(error: dict[str, Any], reason: str) -> None:
    with pytest.raises(errors.UnknownOrchestration) as caught:
        load(answering({"error": error}))
    said = f"'orders' ({reason}), or" if reason else "'orders', or"
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"code": -32000, "message": "header not found"}, True),
        ({"code": -32005, "message": "limit exceeded"}, True),
        ({"code": -32601, "message": "the method eth_call does not exist"}, False),
        ({"code": "odd", "message": None}, False),
        ("just words", False),
        ([1], False),
    ],
)
def test_a_refusal_of_the_node_is_not_taken_for_a_revert(error: Any, retryable: bool) -> None:
    node = Node(eth_call=lambda _: {"error": error})
    with pytest.raises(errors.NodeRefused, match="refused eth_call") as caught:
        load(node.handle)
    assert not isinstance(caught.value, errors.Reverted)
    assert caught.value.retryable is retryable
    assert [question["method"] for question in node.asked].count("eth_call") == 1


# -- answers of the contract that cannot be ----------------------------------------------------


def word(number: int) -> str:
    return number.to_bytes(32, "big").hex()


@pytest.mark.parametrize(
    ("result", "kind", "words"),
    [
        ("0x", errors.NotARegistry, "answers nothing"),
        ("0x" + word(32), errors.BadAnswer, "points behind the end"),
        ("0x" + text(DOCUMENT).hex()[:-40], errors.BadAnswer, "longer than the answer"),
        ("0x" + word(2**200) + word(4) + word(0), errors.BadAnswer, "points behind the end"),
        ("0x" + word(32) + word(2**256 - 1), errors.BadAnswer, "longer than the answer"),
        ("0x" + word(32) + word(2**31) + word(0), errors.BadAnswer, "longer than the answer"),
        ("0x1", errors.NodeMisbehaved, "bytes in hexadecimal"),
        ("zz", errors.NodeMisbehaved, "bytes in hexadecimal"),
        (None, errors.NodeMisbehaved, "bytes in hexadecimal"),
        (["0x"], errors.NodeMisbehaved, "bytes in hexadecimal"),
        ("0x" + text("[" * 100_000).hex(), errors.BadDocument, "more than 100 levels deep"),
        ("0x" + text("x" * 262_145).hex(), errors.DocumentTooLarge, "262,145 bytes, more than"),
    ],
)
def test_an_answer_that_cannot_be_a_document_is_refused(
    result: Any, kind: type[errors.ChainError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        load(answering({"result": result}))
    assert not caught.value.retryable


def test_a_document_of_the_largest_size_is_taken() -> None:
    document = json.dumps({"id": "orders", "structure": {}, "meta": "x" * 262_000})
    document += " " * (262_144 - len(document))
    node = Node()
    node.answers["eth_call"] = lambda question: (
        {"result": "0x" + encode([type_of("string")], [document]).hex()}
        if question["params"][0]["data"].startswith("0x9335a4d1")
        else usual(question)
    )
    assert load(node.handle).text == document


def test_a_registry_that_answers_differently_each_time_is_found_out() -> None:
    """The text of one moment and the hash of another do not go together."""
    kept = encode([type_of("bytes32"), type_of("uint256"), type_of("uint64")], [b"\x07" * 32, 1, 1])
    answers = iter([text(DOCUMENT), kept])
    with pytest.raises(errors.HashMismatch, match="the registry keeps the hash"):
        load(Node(eth_call=lambda _: {"result": "0x" + next(answers).hex()}).handle)


@pytest.mark.parametrize("number", ["latest", None, "", "0x", 16, "0xzz", {"a": 1}])
def test_a_block_number_that_is_none_is_refused(number: Any) -> None:
    with pytest.raises(errors.NodeMisbehaved, match="eth_blockNumber did not answer with a number"):
        load(Node(eth_blockNumber=lambda _: {"result": number}).handle)


# -- HTTP and JSON-RPC -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: web.Response(text="<html>It works!</html>"), "is not JSON-RPC"),
        (lambda: web.Response(text=""), "is not JSON-RPC"),
        (lambda: web.Response(text="[" * 50_000), "is not JSON-RPC"),
        (lambda: web.Response(body=b"\xff\xfe"), "is not JSON-RPC"),
        (lambda: web.json_response([1, 2]), "is not JSON-RPC"),
        (lambda: web.json_response({"id": 1}), "is not JSON-RPC"),
        (lambda: web.json_response({"id": 4711, "result": "0x1"}), "belongs to another call"),
        (lambda: web.json_response({"id": True, "result": "0x1"}), "belongs to another call"),
        (lambda: web.json_response({"id": None, "result": "0x1"}), "belongs to another call"),
        (lambda: web.json_response({"id": "1", "result": "0x1"}), "belongs to another call"),
        (lambda: web.Response(status=302, headers={"Location": "http://evil/"}), "redirects"),
        (lambda: web.Response(status=307, headers={"Location": "http://evil/"}), "redirects"),
        (lambda: web.Response(status=401), "HTTP status 401; check the credentials"),
        (lambda: web.Response(status=404), "HTTP status 404"),
        (lambda: web.Response(body=b" " * 10_000_000), "larger than 4,194,304 bytes"),
    ],
)
def test_what_is_no_answer_is_refused_and_not_asked_again(
    answer: Callable[[], web.Response], words: str
) -> None:
    node = Node(eth_blockNumber=lambda _: answer())
    with pytest.raises(errors.NodeMisbehaved, match=words):
        load(node.handle)
    assert len(node.asked) == 1


@pytest.mark.parametrize("lists", [10, 1_100_000])
def test_lists_without_end_are_counted_and_looked_at_beside_the_event_loop(
    lists: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four megabytes of them held it for a quarter of a second."""
    places: list[str] = []
    decoded = rpc._decoded

    def noted(body: bytes) -> Any:
        places.append(where())
        return decoded(body)

    monkeypatch.setattr(rpc, "_decoded", noted)
    body = '{"jsonrpc":"2.0","id":1,"result":[' + "[]," * lists + "[]]}"
    words = "did not answer with a number" if lists == 10 else "is not JSON-RPC"
    with pytest.raises(errors.NodeMisbehaved, match=words):
        load(Node(eth_blockNumber=lambda _: web.Response(text=body)).handle)
    assert places == [HERE if lists == 10 else BESIDE]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_in_trouble_is_asked_again_a_few_times(status: int) -> None:
    node = Node(eth_blockNumber=lambda _: web.Response(status=status, text="down"))
    with pytest.raises(errors.NodeUnreachable, match=rf"{status} \(3 attempts\)") as caught:
        load(node.handle)
    assert caught.value.retryable
    assert len(node.asked) == 3


def test_trouble_that_passes_is_not_noticed() -> None:
    left = [2]

    def flaky(question: dict[str, Any]) -> Answer:
        left[0] -= 1
        return web.Response(status=503) if left[0] >= 0 else usual(question)

    assert load(Node(eth_blockNumber=flaky).handle).block == 16


def test_an_error_inside_a_failed_status_is_the_answer() -> None:
    """Some nodes answer a revert with status 400 or 500."""

    def refused(question: dict[str, Any]) -> Answer:
        error = {"code": 3, "message": "execution reverted", "data": REASON}
        return web.json_response({"id": question["id"], "error": error}, status=500)

    with pytest.raises(errors.UnknownOrchestration, match="XRC729: not found"):
        load(Node(eth_call=refused).handle)


def test_a_slow_node_is_given_up_in_time() -> None:
    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    with pytest.raises(errors.NodeUnreachable, match=r"within 0\.05 s \(3 attempts\)"):
        load(slow, replace(QUICK, timeout_seconds=0.05))


def test_a_node_that_drips_is_given_up_in_time() -> None:
    async def dripping(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2_000):
            await response.write(b" ")
            await asyncio.sleep(0.01)
        return response

    with pytest.raises(errors.NodeUnreachable, match=r"within 0\.1 s"):
        load(dripping, replace(QUICK, timeout_seconds=0.1, attempts=1))


def test_a_connection_that_breaks_off_is_asked_again() -> None:
    asked = [0]

    async def broken(request: web.BaseRequest) -> web.StreamResponse:
        asked[0] += 1
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(errors.NodeUnreachable, match="the connection failed"):
        load(broken)
    assert asked == [3]


def test_nobody_listening_is_said_without_the_address() -> None:
    secret = "http://user:hunter2secret@127.0.0.1:9/v3/0123456789abcdef?apikey=topsecret"
    with pytest.raises(errors.NodeUnreachable) as caught:
        run(load_orchestration(secret, REGISTRY, "orders", options=QUICK))
    said = f"{caught.value}{caught.value.__cause__}{caught.value!r}"
    assert "http://127.0.0.1:9" in said
    for word_ in ("hunter2secret", "0123456789abcdef", "topsecret", "user"):
        assert word_ not in said


def test_a_node_that_repeats_its_address_does_not_betray_it() -> None:
    async def telling() -> str:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            question = await request.json()
            words = f"bad key in {request.path_qs} of user:hunter2secret"
            return web.json_response(
                {"id": question["id"], "error": {"code": -32000, "message": words}}
            )

        async with server(handle) as url:
            whole = url.replace("//", "//user:hunter2secret@")
            rpc = JsonRpc(f"{whole}/v3/0123456789abcdef?apikey=topsecret&pin=bad", QUICK)
            try:
                with pytest.raises(errors.NodeRefused) as caught:
                    await rpc.call("eth_chainId")
            finally:
                await rpc.close()
            return f"{caught.value} {rpc!r}"

    said = run(telling())
    assert "bad key in" in said  # stars would tell what the pin is
    for word_ in ("hunter2secret", "0123456789abcdef", "topsecret"):
        assert word_ not in said


@pytest.mark.parametrize("url", ["", "node", "ftp://x", "http://", "http://x:99999", "http://[x"])
def test_an_address_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InputError, match="has to be an http:// or https:// URL"):
        JsonRpc(url)


@pytest.mark.parametrize(
    ("body", "deeper"),
    [
        (b"[[[]]]", False),
        (b"[[[[]]]]", True),
        (b'{"a":{"b":{"c":[]}}}', True),
        (b"[[],[],[],[],[],[]]", False),
        (rb'["[[[[[[", "\"[[[[[", "\\", [1]]', False),
        (rb'["\\", [[[[', True),
        (rb'["", "[[[[', True),  # nothing closes this one
        (rb'["", "\"[[[[\"", [1]]', False),
        (rb'["[[[[", "\"[[', False),
    ],
)
def test_nesting_is_counted_outside_of_texts(body: bytes, deeper: bool) -> None:
    assert nests_deeper(body, 3) is deeper


# -- the ports ---------------------------------------------------------------------------------


def test_what_a_rule_sees_of_all_this_is_soft_or_says_whether_to_wait() -> None:
    async def down(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=503)

    async def asking() -> None:
        async with server(down) as url:
            chain = EvmChain(Endpoints(url, options=QUICK))
            try:
                with pytest.raises(ReadFailed, match="HTTP status 503"):
                    await chain.read(
                        to=REGISTRY, function="owner()(address)", args=(), saved_types={}, rpc=None
                    )
                with pytest.raises(RuleUnavailable, match="HTTP status 503") as caught:
                    await chain.rule(REGISTRY)
                assert caught.value.retryable
            finally:
                await chain.close()

    run(asking())
