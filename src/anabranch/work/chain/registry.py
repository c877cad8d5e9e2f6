"""What a registry contract keeps: the ids of its orchestrations, and what it says about each."""

from __future__ import annotations

import msgspec

from anabranch.work.chain import abi
from anabranch.work.chain.abi_types import type_of
from anabranch.work.chain.authority import access_of
from anabranch.work.chain.contracts import (
    address,
    block_number,
    call_data,
    chain_id,
    code_at,
    eth_call,
)
from anabranch.work.chain.documents import hash_of, stored_bytes
from anabranch.work.chain.errors import BadAnswer, NoContract, NotARegistry, Reverted
from anabranch.work.chain.loader import META
from anabranch.work.chain.rpc import JsonRpc, RpcOptions

_IDS = (type_of("string[]"),)


class RegistryEntry(msgspec.Struct, frozen=True):
    """One orchestration; what only newer registries tell is None with older ones."""

    id: str
    hash: str | None = None
    version: int | None = None
    updated_at: int | None = None  # seconds since the epoch


class RegistryListing(msgspec.Struct, frozen=True):
    registry: str
    chain_id: int
    block: int
    owner: str | None
    executors: tuple[str, ...] | None
    entries: tuple[RegistryEntry, ...]


async def list_registry(
    rpc_url: str, registry: str, options: RpcOptions | None = None
) -> RegistryListing:
    """Everything at one block, in the order of the registry."""
    rpc = JsonRpc(rpc_url, options)
    try:
        where = address(registry, "the registry")
        block = await block_number(rpc)
        tag = hex(block)
        if not await code_at(rpc, where, tag):
            raise NoContract(f"there is no contract at {where}")
        access = await access_of(rpc, where, tag)
        entries = [await _entry(rpc, where, one, tag) for one in await _ids(rpc, where, tag)]
        found = await chain_id(rpc)
        return RegistryListing(where, found, block, access.owner, access.executors, tuple(entries))
    finally:
        await rpc.close()


async def _ids(rpc: JsonRpc, registry: str, tag: str) -> list[str]:
    try:
        (ids,) = abi.decode(_IDS, await eth_call(rpc, registry, call_data("getAllOSTC()"), tag))
    except (Reverted, BadAnswer):
        raise NotARegistry(f"{registry} is not an XRC-729 contract: it lists nothing") from None
    return [str(one) for one in ids]


async def _hash(rpc: JsonRpc, registry: str, ostc_id: str, tag: str) -> str | None:
    try:
        raw = await stored_bytes(rpc, registry, "getOSTC(string)", (ostc_id,), tag)
    except (Reverted, BadAnswer):
        return None
    return None if raw is None else hash_of(raw)


async def _entry(rpc: JsonRpc, registry: str, ostc_id: str, tag: str) -> RegistryEntry:
    try:
        data = call_data("getOSTCMeta(string)", (ostc_id,))
        kept, version, updated = abi.decode(META, await eth_call(rpc, registry, data, tag))
    except (Reverted, BadAnswer):  # an older registry: the hash is that of what it gives out
        return RegistryEntry(ostc_id, await _hash(rpc, registry, ostc_id, tag))
    return RegistryEntry(ostc_id, str(kept), int(version), int(updated))
