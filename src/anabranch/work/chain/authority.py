"""Who may start an orchestration that lies on a chain.

The registry has an owner and may have a list of executors; each rule contract likewise. The zero
address in a list means everyone. A contract without a list is its owner's alone. Locally anybody
may start anything (`everybody`); `owners_and_executors` does what the chain's own engine does.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from anabranch.work.chain.abi import decode
from anabranch.work.chain.abi_types import type_of
from anabranch.work.chain.contracts import ZERO_ADDRESS, call_data, eth_call
from anabranch.work.chain.errors import BadAnswer, NotAllowed, Reverted
from anabranch.work.chain.rpc import JsonRpc

_OWNERS = ("owner()", "getOwner()")  # the second is the older one


class ContractAccess(msgspec.Struct, frozen=True):
    """Who a contract says may use it, as far as it says so."""

    contract: str
    owner: str | None = None
    executors: tuple[str, ...] | None = None


Authority = Callable[[str, ContractAccess], bool]


def everybody(_who: str, _access: ContractAccess) -> bool:
    return True


def owners_and_executors(who: str, access: ContractAccess) -> bool:
    listed = access.executors or ()
    return who.lower() == access.owner or who.lower() in listed or ZERO_ADDRESS in listed


def check_authority(who: str, access: ContractAccess, authority: Authority) -> None:
    if not authority(who, access):
        raise NotAllowed(
            f"{who or 'the caller'} is neither owner nor executor of {access.contract}"
        )


async def access_of(rpc: JsonRpc, contract: str, block: str) -> ContractAccess:
    """Owner and executors; what the contract does not implement stays None."""
    owner = None
    for getter in _OWNERS:
        found = await _asked(rpc, contract, getter, "address", block)
        if isinstance(found, str):
            owner = found
            break
    listed = await _asked(rpc, contract, "getExecutorList()", "address[]", block)
    return ContractAccess(contract, owner, tuple(listed) if isinstance(listed, list) else None)


async def _asked(rpc: JsonRpc, contract: str, getter: str, kind: str, block: str) -> object:
    try:
        data = await eth_call(rpc, contract, call_data(getter), block)
        return decode((type_of(kind),), data)[0]
    except (Reverted, BadAnswer):
        return None
