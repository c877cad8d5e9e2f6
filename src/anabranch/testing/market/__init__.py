"""A marketplace for tests: any number of nodes in one process and in virtual time.

    world = World(nodes=["buyer", "provider"], start="2026-06-10T08:00:00Z")
    answer = await world["buyer"].request("GET", "/v1/status", as_="operator")

See docs/node.md.
"""

from anabranch.testing.market.hosted import arca, dator
from anabranch.testing.market.laws import check_laws
from anabranch.testing.market.modules import LastingModule, ModuleLife
from anabranch.testing.market.nodes import Answered, NodeSpec, WorldNode
from anabranch.testing.market.world import Fate, World

__all__ = [
    "Answered",
    "Fate",
    "LastingModule",
    "ModuleLife",
    "NodeSpec",
    "World",
    "WorldNode",
    "arca",
    "check_laws",
    "dator",
]
