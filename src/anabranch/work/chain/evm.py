"""A chain as rules see it: where their texts are, and what contracts answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from anabranch.errors import InputError
from anabranch.work.chain import abi
from anabranch.work.chain.abi_types import AbiType, Signature, signature_of, type_of
from anabranch.work.chain.contracts import (
    address,
    block_number,
    chain_id,
    eth_call,
    is_address,
)
from anabranch.work.chain.documents import RULE_BYTES_MAX, hash_of, rule_bytes, text_of
from anabranch.work.chain.errors import BadAnswer, ChainError
from anabranch.work.chain.rpc import JsonRpc, RpcOptions
from anabranch.work.network.addresses import ANY, AddressPolicy
from anabranch.work.rule.ports import BadAbi, ReadFailed, RuleText, RuleUnavailable

_INDEX_MAX = 63  # of a saved value: a read has up to 64 saves
_URLS_MAX = 64  # nodes that rules named by URL and that are kept open

#: How a returned word is read when a signature does not say: as wide as a word is, so that a value
#: out of range spoils its own slot and not the whole read.
SAVED_AS: Mapping[str, AbiType] = {
    "string": type_of("string"),
    "uuid": type_of("string"),
    "bool": type_of("bool"),
    "int64": type_of("int256"),
    "uint64": type_of("uint256"),
    "int256": type_of("int256"),
    "uint256": type_of("uint256"),
    "double": type_of("int256"),
    "decimal": type_of("int256"),
    "timestamp_ms": type_of("int256"),
    "duration_ms": type_of("int256"),
    "address": type_of("address"),
    "bytes": type_of("bytes"),
    "bytes32": type_of("bytes32"),
}


class Endpoints:
    """The nodes that can be asked: the usual one, those with a name, and others if allowed."""

    def __init__(
        self,
        url: str,
        named: Mapping[str, str] | None = None,
        *,
        any_url: bool = False,
        options: RpcOptions | None = None,
        addresses: AddressPolicy = ANY,
    ) -> None:
        # The nodes of the settings are the operator's own; a policy is for those that rules name.
        self._foreign = replace(options or RpcOptions(), addresses=addresses)
        self._any_url = any_url
        self.usual = JsonRpc(url, options)
        self._named = {name: JsonRpc(other, options) for name, other in (named or {}).items()}
        self._by_url: dict[str, JsonRpc] = {}

    async def pick(self, name: str | None) -> JsonRpc:
        if not name:
            return self.usual
        if name in self._named:
            return self._named[name]
        if "://" not in name:
            raise ReadFailed(
                f"the endpoint {name[:80]!r} is not known; the setting chain_endpoints has "
                f"{', '.join(sorted(self._named)) or 'none'}"
            )
        if not self._any_url:
            raise ReadFailed("the rule names a node by its URL; see the setting chain_rule_urls")
        return await self._at(name)

    async def _at(self, url: str) -> JsonRpc:
        rpc = self._by_url.pop(url, None)
        if rpc is None:
            try:
                rpc = JsonRpc(url, self._foreign)
            except InputError as error:
                raise ReadFailed(error.message) from None
        self._by_url[url] = rpc  # the last one used stands last
        if len(self._by_url) > _URLS_MAX:
            oldest = next(iter(self._by_url))
            await self._by_url.pop(oldest).close()
        return rpc

    async def close(self) -> None:
        for rpc in (self.usual, *self._named.values(), *self._by_url.values()):
            await rpc.close()


class EvmChain:
    """Rule texts and contract reads from EVM nodes."""

    def __init__(self, endpoints: Endpoints, *, pins: Mapping[str, str] | None = None) -> None:
        self._endpoints = endpoints
        self._chain = 0  # not asked yet
        self._pins = {address(rule): text.lower() for rule, text in (pins or {}).items()}

    async def rule(self, rule: str) -> RuleText:
        """The text as it stands now. With a pinned hash any other text is refused."""
        rpc = self._endpoints.usual
        try:
            where = address(rule, "the rule")
            block = await block_number(rpc)
            raw = await rule_bytes(rpc, where, hex(block))
            text = text_of(raw, RULE_BYTES_MAX, f"the rule at {where}")
        except ChainError as error:
            raise _unavailable(error) from None
        found = hash_of(raw)
        pinned = self._pins.get(where, found)
        if found != pinned:
            raise RuleUnavailable(
                f"the rule at {where} has changed: it has the hash {found}, but {pinned} is pinned"
            )
        return RuleText(text, found, f"chain@{block}")

    async def chain_id(self, *, anew: bool = False) -> int:
        """The chain of the usual node, asked once: what is sent is compared anew every time."""
        if anew or not self._chain:
            try:
                self._chain = await chain_id(self._endpoints.usual)
            except ChainError as error:
                raise _unavailable(error) from None
        return self._chain

    async def read(
        self,
        *,
        to: str,
        function: str,
        args: Sequence[Any],
        saved_types: Mapping[int, str],
        rpc: str | None,
    ) -> list[Any]:
        """The returned values; None stands for one that could not be decoded."""
        signature = signature_of(function)
        if not is_address(to):
            raise BadAbi(f"a read cannot go to {str(to)[:80]!r}: that is no address")
        data = signature.selector + abi.encode(signature.inputs, args)
        types = _returned(signature, saved_types)
        node = await self._endpoints.pick(rpc)
        try:
            answer = await eth_call(node, to, data)
        except ChainError as error:
            raise ReadFailed(f"{signature.name} of {to}: {error.message}") from None
        return _values(f"{signature.name} of {to}", types, answer)

    async def close(self) -> None:
        await self._endpoints.close()


def _unavailable(error: ChainError) -> RuleUnavailable:
    return RuleUnavailable(
        error.what if error.retryable else error.message, retryable=error.retryable
    )


def _returned(signature: Signature, saved: Mapping[int, str]) -> Sequence[AbiType | None]:
    """The declared types, or else those the saved values ask for; between them anything."""
    if signature.outputs is not None:
        return signature.outputs
    if wrong := [index for index in saved if not 0 <= index <= _INDEX_MAX]:
        raise BadAbi(f"{signature.name} cannot save value {wrong[0]}: 0 to {_INDEX_MAX} are there")
    if unknown := [kind for kind in saved.values() if kind not in SAVED_AS]:
        raise BadAbi(f"{unknown[0][:40]!r} is no type a value can be saved as")
    last = max(saved, default=-1)
    return [SAVED_AS[saved[index]] if index in saved else None for index in range(last + 1)]


def _values(what: str, types: Sequence[AbiType | None], answer: bytes) -> list[Any]:
    found = abi.decode_each(types, answer)
    wrong = [value for value in found if isinstance(value, BadAnswer)]
    if types and not answer:
        raise ReadFailed(f"{what}: nothing came back; is there a contract with this function?")
    if wrong and len(wrong) == len(found):
        raise ReadFailed(f"{what}: {wrong[0].what}")
    return [None if isinstance(value, BadAnswer) else value for value in found]
