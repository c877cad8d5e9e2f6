"""The section `offers` of a node's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.market.identities import public_key

_Seconds = Annotated[int, msgspec.Meta(ge=1, le=3650 * 86_400)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class OffersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    valid_seconds: _Seconds = 30 * 86_400  # of an offer that does not say until when it is valid
    max_depth: _Count = 16  # of the queue of an offer that does not say it
    max_duration_seconds: _Seconds = 3_600  # the same for the time of the work
    untrusted_seconds: _Seconds = 3_600  # how long offers of strangers are kept, unseen
    expired_seconds: _Seconds = 7 * 86_400  # how long offers are kept that have expired
    observed_seconds: _Seconds = 60 * 86_400  # the same, whatever they say, since they came last
    forget_seconds: _Seconds = 86_400  # how long the numbers of those are known that were dropped
    observed_max: _Count = 4096  # rows
    local_max: _Count = 4096
    fetch_seconds: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0
    #: Whose relays are trusted: of peers that this node trusts, of nobody, or of these.
    federation: Literal["known-peers", "none"] | tuple[str, ...] = "known-peers"


def offers_config(raw: Mapping[str, Any]) -> OffersConfig:
    where = "section `offers` of the node's configuration"
    try:
        config = msgspec.convert(raw.get("offers", {}), OffersConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None
    for node in config.federation if isinstance(config.federation, tuple) else ():
        if not node.startswith("node:"):
            raise InputError(f"{where}: `federation` names nodes, such as node:did:key:z6Mk…")
        public_key(node)
    return config
