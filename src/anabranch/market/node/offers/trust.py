"""Whose offers may be seen: explicit > federation > untrusted, derived by the host alone.

explicit     the operator trusts the participant who provides
federation   the relay began at a peer that this node knows, and a peer that it knows brought it: a
             relay is not signed, so what a stranger says about its origin does not count
untrusted    everything else; kept for a while, unseen
"""

from __future__ import annotations

from anabranch.market.node.entities import Change
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.offers.records import RANK, TRUSTED, Route, Trust
from anabranch.market.node.ports import NodeContext


class Judge:
    def __init__(self, context: NodeContext, config: OffersConfig) -> None:
        self._context = context
        self._federation = config.federation

    def trust(self, change: Change, provider: str, route: Route) -> Trust:
        """What an offer of this provider is worth that came this way, as things are now."""
        trusted = change.get(TRUSTED, provider)
        if trusted is not None and trusted.removed_at is None:
            return "explicit"
        if self._is_known(route.source) and self._is_known(route.origin):
            return "federation"
        return "untrusted"

    def best(self, change: Change, provider: str, *routes: Route) -> tuple[Trust, Route]:
        """Of several ways the one that is trusted most; of equal ones the first."""
        judged = [(self.trust(change, provider, route), route) for route in routes]
        return max(judged, key=lambda one: RANK[one[0]])

    def _is_known(self, node: str) -> bool:
        if self._federation == "none" or node == self._context.signer.node_id:
            return False
        if isinstance(self._federation, tuple):
            return node in self._federation
        return bool(self._context.directory.endpoint(node))
