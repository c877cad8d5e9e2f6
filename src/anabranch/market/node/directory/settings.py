"""The section `directory` of the file of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.identities import public_key

Positive = Annotated[int, msgspec.Meta(ge=1)]
DAY_MS = 24 * 60 * 60 * 1000


class CapabilityPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may issue passports for one capability, besides `issuers` of the whole section."""

    issuers: tuple[str, ...] = ()
    operator: bool = True  # whoever runs a node, for that node


class DirectorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    issuers: tuple[str, ...] = ()  # participants that may issue for any node and capability
    policies: Mapping[str, CapabilityPolicy] = {}  # by capability
    bindings: Mapping[str, str] = {}  # node → participant, as the operator of this node says
    passports: tuple[str, ...] = ()  # capabilities that this node issues to itself
    passport_ms: Positive = 30 * DAY_MS
    sync_ms: Positive = 60_000
    stale_ms: Positive = 60 * 60 * 1000  # what a seed said counts so long without a word of it
    fetch_ms: Positive = 5_000
    nodes_max: Positive = 4096
    #: What is kept and told of one node, with its rows; eight times as much of one that is trusted.
    node_bytes: Annotated[int, msgspec.Meta(ge=4096, le=256 * 1024)] = 32 * 1024
    advertisement_ms: Positive = 7 * DAY_MS  # from its publication on
    proxies: tuple[str, ...] = ()  # addresses of proxies whose X-Forwarded-For is believed
    revocations_max: Positive = 100_000


def directory_settings(raw: Mapping[str, Any]) -> DirectorySettings:
    try:
        settings = msgspec.convert(raw.get("directory") or {}, DirectorySettings)
    except msgspec.ValidationError as error:
        raise InputError(f"`directory` of the node: {error}") from None
    for named in (*settings.issuers, *settings.bindings.values()):
        _require(named, "participant")
    for policy in settings.policies.values():
        for named in policy.issuers:
            _require(named, "participant")
    for named in settings.bindings:
        _require(named, "node")
    return settings


def _require(name: str, role: str) -> None:
    if not name.startswith(f"{role}:"):
        raise InputError(f"`directory` of the node: {name[:80]!r} is no {role}:did:key:…")
    try:
        public_key(name)
    except InputError as error:
        raise InputError(f"`directory` of the node: {error.message}") from None
