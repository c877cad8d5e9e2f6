"""Texts kept in contracts: fetched, bounded, hashed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from anabranch.keccak import keccak256
from anabranch.work.chain import abi
from anabranch.work.chain.contracts import call_data, eth_call
from anabranch.work.chain.errors import BadAnswer, BadDocument, DocumentTooLarge
from anabranch.work.chain.nesting import nests_deeper
from anabranch.work.chain.rpc import JsonRpc

ORCHESTRATION_BYTES_MAX = 262_144
RULE_BYTES_MAX = 131_072
DEPTH_MAX = 100
ENCRYPTED = "XGR1."


@lru_cache(maxsize=64)
def hash_of(raw: bytes) -> str:
    """The hash under which the chain knows a stored text. Every step asks, few texts change."""
    return "0x" + keccak256(raw).hex()


async def stored_bytes(
    rpc: JsonRpc, to: str, function: str, args: Sequence[Any], block: str
) -> bytes | None:
    """The text that a getter returns, undecoded; None when the contract answers nothing at all."""
    data = await eth_call(rpc, to, call_data(function, args), block)
    return abi.decode_bytes(data) if data else None


def text_of(raw: bytes, limit: int, what: str) -> str:
    if len(raw) > limit:
        raise DocumentTooLarge(f"{what} has {len(raw):,} bytes, more than the {limit:,} allowed")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadDocument(f"{what} is not UTF-8 (byte {error.start})") from None


def json_of(text: str, what: str) -> Any:
    """The value of a JSON text in which nothing is ambiguous: no key twice, no NaN."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise BadDocument(f"{what} has the key {key[:80]!r} twice in one object")
            found[key] = value
        return found

    def no_constant(name: str) -> NoReturn:
        raise BadDocument(f"{what} holds {name}, which is not JSON")

    if nests_deeper(text.encode(), DEPTH_MAX):
        raise BadDocument(f"{what} nests more than {DEPTH_MAX} levels deep")
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_constant)
    except ValueError as error:
        raise BadDocument(f"{what} is not JSON: {error}") from None


async def rule_bytes(rpc: JsonRpc, address: str, block: str) -> bytes:
    raw = await stored_bytes(rpc, address, "getRule()", (), block)
    if raw is None:
        raise BadAnswer(f"{address} is no XRC-137 rule contract: getRule() answers nothing")
    return raw
