"""Whose offers may be seen: explicit > federation > untrusted, derived by the host alone.

`catalog/routes.py` has the rule; here is who is trusted, and which peers this node knows: those
that its operator has named, or for which an issuer vouches whom the operator has named. That a node
has an address says nothing: anyone can publish one.
"""

from __future__ import annotations

from anabranch.market.catalog.routes import Route, Trust, trust_of
from anabranch.market.node.entities import Change
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.offers.records import TRUSTED, TrustedProvider
from anabranch.market.node.ports import NodeContext


class Judge:
    def __init__(self, context: NodeContext, config: OffersConfig) -> None:
        self._context = context
        self._federation = config.federation

    def trust(self, change: Change, provider: str, route: Route) -> Trust:
        """What an offer of this provider is worth that came this way, as things are now."""
        trusted = self.is_trusted(change.get(TRUSTED, provider))
        return trust_of(route, is_trusted=trusted, is_known=self.is_known)

    @staticmethod
    def is_trusted(entry: TrustedProvider | None) -> bool:
        return entry is not None and entry.removed_at is None

    def is_known(self, node: str) -> bool:
        """Whether what this node relays counts."""
        if self._federation == "none" or node == self._context.signer.node_id:
            return False
        if isinstance(self._federation, tuple):
            return node in self._federation
        return self._context.directory.is_trusted(node)
