"""Which nodes each participant runs, as the directory of this node knows.

Anyone may ask, and anyone may register: so it is kept with every change of a node, and no question
goes through all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from anabranch.market.node.directory.artifacts import CheckedPassport
from anabranch.market.node.directory.policy import IssuerPolicy, Presented


class Operators:
    def __init__(self, policy: IssuerPolicy) -> None:
        self._policy = policy
        self._nodes: dict[str, dict[str, list[str]]] = {}  # participant → node → capabilities
        self._participants: dict[str, list[str]] = {}  # of each node

    def update(self, node_id: str, held: Iterable[CheckedPassport], presented: Presented) -> None:
        """What the directory says of one node now."""
        for participant in self._participants.pop(node_id, ()):
            del self._nodes[participant][node_id]
            if not self._nodes[participant]:
                del self._nodes[participant]
        found = self._policy.operators(held, presented)
        for participant, capabilities in found.items():
            self._nodes.setdefault(participant, {})[node_id] = sorted(capabilities)
        if found:
            self._participants[node_id] = list(found)

    def nodes_of(self, participant: str, most: int) -> list[tuple[str, list[str]]]:
        """The first nodes by name, with the capabilities by which the participant runs each."""
        found = self._nodes.get(participant, {})
        return [(node, found[node]) for node in nsmallest(most, found)]
