"""The laws of every part of a node, over what is on its disk and in its memory.

    world.after_commit = lambda node: require(broken_laws(node) == [])

The disk is read as a restart would read it, so a law must hold after every commit and not only when
the node comes to rest.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from anabranch.market.node.check import check_streams
from anabranch.market.node.deferred import laws as deferred
from anabranch.market.node.delivery import laws as delivery
from anabranch.market.node.directory import laws as directory
from anabranch.market.node.directory.part import DirectoryPart
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.ledger import laws as ledger
from anabranch.market.node.modules import laws as modules
from anabranch.market.node.offers import laws as offers
from anabranch.market.node.offers.config import offers_config
from anabranch.market.node.orders import laws as orders
from anabranch.market.node.parts import all_families
from anabranch.market.node.peers import laws as peers
from anabranch.market.node.peers.part import PeersPart
from anabranch.runtime.writer import Writer
from anabranch.testing.market.nodes import WorldNode
from anabranch.testing.market.world import World

S = TypeVar("S")

_OF_ENTITIES: tuple[Callable[[Entities], Coroutine[Any, Any, list[str]]], ...] = (
    ledger.broken,
    orders.broken,
    delivery.broken,
    deferred.broken,
    modules.broken_laws,
)
_HISTORIES: Mapping[str, Callable[[str, Sequence[Any]], Iterable[str]]] = {
    "artifact-delivery": delivery.broken_delivery_history,
    "artifact-admission": delivery.broken_admission_history,
    "deferred-operation": deferred.broken_history,
}


def check_laws(world: World) -> list[str]:
    """What is wrong with the nodes of the world, each with the name of its node: their laws, their
    histories, cards that are not what their events come to, and what nodes say of each other."""
    views = {one.node_id: durable_view(one) for one in world.nodes}
    found = []
    for one in world.nodes:
        texts = [*broken_laws(one), *_broken_histories(one)]
        texts += _now(delivery.broken_between(views[one.node_id], one.node_id, views))
        found += [f"{one.name}: {text}" for text in texts]
    return found


def broken_laws(node: WorldNode) -> list[str]:
    """Of one node, which may be down."""
    view = durable_view(node)
    found = [text for law in _OF_ENTITIES for text in _now(law(view))]
    found += offers.broken(view, offers_config(node.spec.config), node.node_id)
    return [*found, *_of_memory(node)]


def durable_view(node: WorldNode) -> Entities:
    """The things of a node as they are on its disk; nothing can be changed through it."""
    view = Entities(node.store, node.world.clock, cast(Writer, None), all_families())
    view.load()
    return view


def durable_things(node: WorldNode, family: Family[S]) -> dict[str, S]:
    """All things of a family that are on the disk of a node."""
    return _now(ledger.everything(durable_view(node), family))


def _of_memory(node: WorldNode) -> Iterator[str]:
    if node.node is None:
        return
    for part in node.node.parts:
        if isinstance(part, DirectoryPart):
            yield from directory.broken(part, node.node.entities)
        elif isinstance(part, PeersPart):
            yield from peers.broken(part.messenger)


def _broken_histories(node: WorldNode) -> Iterator[str]:
    families = {family.name: family for family in all_families()}
    report = check_streams(node.store.node_streams, families.values())
    yield from (f"{one.stream}: {one.message}" for one in report.problems)
    if report.older:
        yield f"{report.older} cards are not what their events come to, byte by byte"
    for name in node.store.node_streams.stream_names(limit=1_000_000):
        card = node.store.node_streams.stream(name)
        assert card is not None
        if card.family in _HISTORIES:
            events = list(_events(node, families[card.family], name))
            yield from _HISTORIES[card.family](families[card.family].thing(name), events)


def _events(node: WorldNode, family: Family[Any], stream: str) -> Iterator[Any]:
    for row in node.store.node_streams.stream_events(stream):
        yield from family.events_in(row.events)


def _now(work: Coroutine[Any, Any, S]) -> S:
    """A view has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(S, done.value)
    raise AssertionError("a law waits for something")
