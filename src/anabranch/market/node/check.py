"""Does every card of a node say what the events of its stream come to? And cards made anew.

Every stream is replayed through the `evolve` of its family. A card of an older version, whose state
has other fields, is no damage: it is read, and compared as this version would write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, StoreError
from anabranch.market.node.entities import Family
from anabranch.store.stream_ports import StreamCard, Streams

ROWS_AT_ONCE = 200
STREAMS_AT_ONCE = 1000


class StreamProblem(msgspec.Struct, frozen=True):
    stream: str
    message: str


class StreamCheck(msgspec.Struct, kw_only=True):
    """What was looked at, and what is wrong."""

    streams: int = 0
    events: int = 0
    older: int = 0  # cards of an older version, which say the same
    problems: list[StreamProblem] = []


class DamagedStream(AnabranchError):
    """Its events cannot be what was written."""

    code = "damaged_stream"


Families = Iterable[Family[Any]]
#: Called with the number of streams that are done; may raise to give up.
Progress = Callable[[int], None]


def check_streams(
    streams: Streams, families: Families, progress: Progress = lambda _done: None
) -> StreamCheck:
    known = {family.name: family for family in families}
    report = StreamCheck()
    for name in _names(streams):
        card = streams.stream(name)
        if card is None:  # forgotten meanwhile
            continue
        report.streams += 1
        report.events += card.seq
        progress(report.streams)
        try:
            report.older += _compare(streams, known, card)
        except DamagedStream as damage:
            report.problems.append(StreamProblem(name, damage.message))
    return report


def rebuild(streams: Streams, families: Families) -> list[str]:
    """Write every card anew that differs from what its events come to, for a new version that says
    otherwise what is open; returns the names of their streams. No node may be open on the store."""
    known = {family.name: family for family in families}
    renewed: list[str] = []
    for name in _names(streams):
        card = streams.stream(name)
        if card is None:
            continue
        made = _replayed(streams, _family(known, card), card)
        if made != card:
            streams.renew_cards([made])
            renewed.append(name)
    return renewed


def _names(streams: Streams) -> Iterator[str]:
    after = ""
    while names := streams.stream_names(after, STREAMS_AT_ONCE):
        yield from names
        after = names[-1]


def _compare(streams: Streams, known: dict[str, Family[Any]], card: StreamCard) -> bool:
    """Whether the card is of an older version; raises where it is wrong."""
    family = _family(known, card)
    made = _replayed(streams, family, card)
    if made == card:
        return False
    for name in ("open", "wake", "group"):
        said, found = getattr(card, name), getattr(made, name)
        if said != found:
            raise DamagedStream(f"its card says {name}={said!r:.80}, its events {found!r:.80}")
    try:
        state = family.state_in(card)
    except StoreError as error:
        raise DamagedStream(error.message) from None
    if family.card_of(card, state, seq=card.seq, at=card.updated_at).state != made.state:
        raise DamagedStream("its card has another state than its events come to")
    return True


def _family(known: dict[str, Family[Any]], card: StreamCard) -> Family[Any]:
    family = known.get(card.family)
    if family is None:
        raise DamagedStream(f"it is of the unknown family {card.family!r:.80}")
    if family.stream(family.thing(card.stream)) != card.stream:
        raise DamagedStream(f"its name is not one of the family {card.family}")
    return family


def _replayed(streams: Streams, family: Family[Any], card: StreamCard) -> StreamCard:
    """The card as the events say it."""
    state, last, at = None, 0, card.updated_at
    while rows := streams.stream_events(card.stream, last, ROWS_AT_ONCE):
        for row in rows:
            if row.first_seq != last + 1:
                raise DamagedStream(f"event {last + 1} is missing")
            last, at = row.first_seq + row.count - 1, row.at
            state = _evolved(family, state, row.events, row.count, last)
    if last != card.seq or state is None:
        raise DamagedStream(f"it ends at event {last}, and its card says {card.seq}")
    return family.card_of(card, state, seq=last, at=at)


def _evolved(family: Family[Any], state: object, data: bytes, count: int, last: int) -> object:
    try:
        events = family.events_in(data)
        for event in events:
            state = family.evolve(state, event)
    except Exception as error:  # an event that never follows the ones before it
        raise DamagedStream(f"events up to {last} cannot be replayed ({error!r:.120})") from error
    if len(events) != count:
        raise DamagedStream(f"the row that ends at event {last} has {len(events)} events")
    return state
