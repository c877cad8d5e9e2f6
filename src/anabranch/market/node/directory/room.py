"""Whose advertisement makes room for another one where a directory is full.

Anyone can make keys, so nodes that nobody vouches for count by the address that they came from: the
source with the most of them gives one up for a source that has fewer. Whom this node trusts comes
in always, and makes room for nobody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

from anabranch.market.node.api import Call

_NETWORK_BITS = 56  # of IPv6: what one customer is given


def source_of(call: Call, proxies: Collection[str]) -> str:
    """The network that a call comes from; of proxies that are believed, whom they name."""
    named = call.remote
    for one in reversed(call.headers.get("x-forwarded-for", "").split(",")):
        if named not in proxies or not _is_address(one.strip()):
            break
        named = one.strip()
    return _network(named)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _network(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text  # of a transport without addresses
    if isinstance(address, ipaddress.IPv4Address):
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))


class Strangers:
    """The nodes that nobody vouches for, by source; of each source the oldest first."""

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, None]] = {}
        self._source_of: dict[str, str] = {}

    def add(self, node_id: str, source: str) -> None:
        """Counts with its source from now on, as the newest one."""
        self.remove(node_id)
        self._source_of[node_id] = source
        self._sources.setdefault(source, {})[node_id] = None

    def remove(self, node_id: str) -> None:
        source = self._source_of.pop(node_id, None)
        if source is None:
            return
        nodes = self._sources[source]
        del nodes[node_id]
        if not nodes:
            del self._sources[source]

    def __len__(self) -> int:
        return len(self._source_of)

    @property
    def nodes(self) -> Mapping[str, str]:
        """With the source of each."""
        return self._source_of

    def one_too_many(self, source: str | None) -> str:
        """Who makes room for a node of this source, or for one that is trusted (None); "" where
        none has to."""
        if not self._sources:
            return ""
        most = max(self._sources.values(), key=len)
        if source is not None and len(self._sources.get(source, ())) + 1 >= len(most):
            return ""
        return next(iter(most))
