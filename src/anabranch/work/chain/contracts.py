"""One call of a contract, and what its failures mean.

Nodes disagree on how they say that a contract refused: the code is 3, -32000, -32015 or another,
and what the contract said stands in `error.data`, in `error.data.data`, or only in the message.
`revert_of` knows them all. A refusal that is none of these is the node's own and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from anabranch.work.chain import abi
from anabranch.work.chain.abi_types import signature_of, type_of
from anabranch.work.chain.errors import (
    BadAddress,
    BadAnswer,
    NodeMisbehaved,
    NodeRefused,
    Reverted,
    WrongChain,
)
from anabranch.work.chain.rpc import JsonRpc

ZERO_ADDRESS = "0x" + 40 * "0"

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_HEX_INSIDE = re.compile(r"0x[0-9a-fA-F]{8,}")
_QUANTITY = re.compile(r"0x[0-9a-fA-F]{1,64}")
_ERROR, _PANIC = "0x08c379a0", "0x4e487b71"
_STRING = (type_of("string"),)
_UINT = (type_of("uint256"),)
_REVERT_CODES = frozenset({3, -32015})
#: A contract that stops without `revert` did not answer either.
_VM_WORDS = re.compile(
    r"revert|invalid opcode|out of gas|stack (under|over)flow|invalid jump|bad instruction"
    r"|invalid instruction|opcode 0x[0-9a-f]+ not defined",
    re.I,
)
_SAID = re.compile(r"(?:reverted|revert)(?: with reason string)?:? +(.+)", re.I)


def address(text: str, what: str = "the address") -> str:
    """The address in lower case."""
    if not _ADDRESS.fullmatch(text):
        raise BadAddress(f"{what} {text[:80]!r} is no address")
    return text.lower()


def is_address(text: Any) -> TypeGuard[str]:
    return isinstance(text, str) and _ADDRESS.fullmatch(text) is not None


def call_data(function: str, args: Sequence[Any] = ()) -> bytes:
    """Selector and arguments. Raises `BadAbi`."""
    signature = signature_of(function)
    return signature.selector + abi.encode(signature.inputs, args)


async def eth_call(
    rpc: JsonRpc,
    to: str,
    data: bytes,
    block: str = "latest",
    more: Mapping[str, str] | None = None,  # from, value, gas …
) -> bytes:
    """What the contract returns. Raises `Reverted` when it refuses."""
    try:
        result = await rpc.call("eth_call", {"to": to, "data": _hex(data), **(more or {})}, block)
    except NodeRefused as error:
        raise revert_of(error, to) or error from None
    return data_of(rpc, result, "eth_call")


async def code_at(rpc: JsonRpc, where: str, block: str) -> bytes:
    return data_of(rpc, await rpc.call("eth_getCode", where, block), "eth_getCode")


async def chain_id(rpc: JsonRpc) -> int:
    return quantity(rpc, await rpc.call("eth_chainId"), "eth_chainId")


async def require_chain(rpc: JsonRpc, wanted: int) -> None:
    """Asks the node, every time: what answers behind an address may have been replaced."""
    found = await chain_id(rpc)
    if found != wanted:
        raise WrongChain(
            f"{rpc.place} is a node of chain {found}, but the session belongs to chain {wanted}"
        )


async def block_number(rpc: JsonRpc) -> int:
    return quantity(rpc, await rpc.call("eth_blockNumber"), "eth_blockNumber")


def data_of(rpc: JsonRpc, result: Any, method: str) -> bytes:
    if not isinstance(result, str) or not _HEX.fullmatch(result):
        raise NodeMisbehaved(f"{rpc.place}: {method} did not answer with bytes in hexadecimal")
    return bytes.fromhex(result[2:])


def quantity(rpc: JsonRpc, result: Any, method: str) -> int:
    if not isinstance(result, str) or not _QUANTITY.fullmatch(result):
        raise NodeMisbehaved(f"{rpc.place}: {method} did not answer with a number in hexadecimal")
    return int(result, 16)


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


# -- reverts ---------------------------------------------------------------------------------


def revert_of(error: NodeRefused, to: str) -> Reverted | None:
    """The refusal of a contract inside the refusal of a node, if it is one."""
    datas = list(_hex_in(error.data, 3))
    known = [data for data in datas if data.startswith((_ERROR, _PANIC))]
    if not (known or error.number in _REVERT_CODES or _VM_WORDS.search(error.said)):
        return None
    reason = next(filter(None, map(reason_in, [*known, *datas])), "") or _said(error.said)
    words = f": {reason}" if reason else " without a reason"
    return Reverted(
        f"the contract {to} refused the call{words}", reason=reason, number=error.number
    )


def reason_in(data: str) -> str:
    """What the contract said: the text of `Error`, the number of `Panic`, or the selector."""
    try:
        raw = bytes.fromhex(data[10:]) if len(data) >= 10 else b""
        if data.startswith(_ERROR):
            return " ".join(str(abi.decode(_STRING, raw)[0]).split())[:300]
        if data.startswith(_PANIC):
            return f"panic 0x{abi.decode(_UINT, raw)[0]:02x}"
    except (BadAnswer, ValueError):
        return ""
    return f"custom error {data[:10]}" if len(data) >= 10 else ""


def _hex_in(data: Any, depth: int) -> Iterator[str]:
    """Every hexadecimal text in the data of an error, the outer ones first."""
    if isinstance(data, str):
        yield from (found.lower() for found in _HEX_INSIDE.findall(data))
    elif isinstance(data, dict) and depth:
        for key in ("data", "result", "output", "return", "originalError"):
            yield from _hex_in(data.get(key), depth - 1)


def _said(message: str) -> str:
    found = _SAID.search(message)
    return found[1].strip("'\" ") if found else ""
