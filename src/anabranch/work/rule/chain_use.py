"""The chain that a session belongs to, and whether the node at hand is one of it.

A session that was loaded from a registry knows its chain. Any other belongs to the chain that it
first uses; its first step that does so records that (`ctx.chain_id`). A node of another chain is as
good as none: whatever it says is about other contracts at the same addresses.
"""

from __future__ import annotations

from anabranch.work.rule.ports import ChainIdentity, OtherChain


class ChainUse:
    """What one execution of a step uses the chain for."""

    def __init__(self, identity: ChainIdentity | None = None, known: int = 0) -> None:
        self._identity = identity
        self.known = known  # 0: the session does not know its chain yet
        self.seen = 0  # the chain that was used; 0: none

    @property
    def chain_id(self) -> int:
        return self.known or self.seen

    async def require(self) -> None:
        """Before anything is asked of the usual node. Raises `ChainUnavailable`."""
        if self._identity is None:
            return
        found = await self._identity.chain_id()
        if self.known and found != self.known:
            found = await self._identity.chain_id(anew=True)  # the right node may be there by now
        if self.known and found != self.known:
            raise OtherChain(
                f"the node is one of chain {found}, but the session belongs to chain {self.known}; "
                f"name a node of chain {self.known} (setting chain_url)"
            )
        self.seen = found
