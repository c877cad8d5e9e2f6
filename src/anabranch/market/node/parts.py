"""The parts that every node has, in the order in which they are made and opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.market.node import status
from anabranch.market.node.buying import part as buying
from anabranch.market.node.deferred import part as deferred
from anabranch.market.node.delivery import part as delivery
from anabranch.market.node.directory import part as directory
from anabranch.market.node.entities import Family
from anabranch.market.node.ledger import part as ledger
from anabranch.market.node.modules import part as modules
from anabranch.market.node.node import MakePart
from anabranch.market.node.offers import part as offers
from anabranch.market.node.orders import part as orders
from anabranch.market.node.peers import part as peers

#: Modules come last of those that others call: they call back as soon as they are started.
_PARTS = (deferred, peers, directory, offers, ledger, orders, delivery, buying, modules)


def standard_parts() -> Sequence[MakePart]:
    return (*((one.make, one.FAMILIES) for one in _PARTS), (status.make, ()))


def all_families() -> tuple[Family[Any], ...]:
    return tuple(family for one in _PARTS for family in one.FAMILIES)
