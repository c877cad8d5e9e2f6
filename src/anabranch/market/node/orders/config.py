"""The section `orders` of a node's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from anabranch.errors import InputError

_Seconds = Annotated[int, msgspec.Meta(ge=1, le=366 * 86_400)]


class OrdersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each time begins where the one before ends; the first at the end of the work."""

    accept_seconds: _Seconds = 86_400
    dispute_seconds: _Seconds = 86_400
    auto_release_seconds: _Seconds = 86_400
    escrow_policy: Annotated[str, msgspec.Meta(pattern="^escrow-policy:.{1,200}$")] = (
        "escrow-policy:host-ledger"
    )
    arbiters: tuple[str, ...] = ()  # who confirms what is arbiter-confirmed; else the participant
    settlement: bool = True  # false: nothing that costs money on hold is ordered


def orders_config(raw: Mapping[str, Any]) -> OrdersConfig:
    try:
        return msgspec.convert(raw.get("orders", {}), OrdersConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"section `orders` of the node's configuration: {error}") from None
