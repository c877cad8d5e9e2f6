"""The state of a node: things that events change, each with a stream of its own in the store.

    with entities.change() as change:
        change.add(ORDERS, "order:r1-s1-a1", Opened(…))
        change.add(ACCOUNTS, "account:…", Held(…))
    await entities.durable()

A block is one transaction: all its events or none. What it changed is seen at once by whoever
decides next, and is durable in the order of the blocks; whatever leaves the node (an answer, a
message, a call of a module) waits for `durable`. A write that fails ends the node: what is in
memory is then ahead of the disk, and the node has to be opened again.

A family is a kind of thing. What is open stays in memory; of the rest the most recently used. A
later version may give a state more fields, with defaults, and may leave fields out: what is read
and not known is ignored.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from anabranch.clock import Clock
from anabranch.errors import Conflict, StoreError
from anabranch.market.node.wakes import Key, Wakes
from anabranch.runtime.writer import Writer
from anabranch.store.ports import Batch, Store
from anabranch.store.stream_ports import StreamCard, StreamCommit, StreamFilter

S = TypeVar("S")

CLOSED_KEPT = 4096  # closed things in memory
CLOSED_BYTES = 32 * 1024 * 1024  # and of all of them: others may have sent what they hold
PAGE = 1000
_encode = msgspec.json.Encoder(order="deterministic").encode


class Family(Generic[S]):
    """How things of one kind are kept. `evolve(state, event)` is pure and the only code that
    changes a state; the first event of a thing gets None. Of an event that `begins_anew` it does
    not look at the state before, and what was before is not kept."""

    def __init__(
        self,
        name: str,
        state: type[S],
        event: Any,  # the struct of its events, or a tagged union of them
        evolve: Callable[[S | None, Any], S],
        *,
        is_open: Callable[[S], bool] = lambda _state: False,
        wake: Callable[[S], int | None] = lambda _state: None,
        group: Callable[[S], str] = lambda _state: "",
        begins_anew: Callable[[Any], bool] = lambda _event: False,
    ) -> None:
        self.name = name
        self.evolve = evolve
        self.is_open = is_open
        self.wake = wake
        self.group = group
        self.begins_anew = begins_anew
        self._states = msgspec.json.Decoder(state)
        self._events = msgspec.json.Decoder(list[event])

    def stream(self, thing: str) -> str:
        return f"state/{self.name}/{thing}"

    def thing(self, stream: str) -> str:
        return stream.removeprefix(f"state/{self.name}/")

    def state_in(self, card: StreamCard) -> S:
        """Raises `StoreError` where the card is damaged."""
        try:
            return self._states.decode(card.state)
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"the card of the stream {card.stream:.200} cannot be read ({error!s:.120}); "
                "`anabranch node check` says what else is damaged",
                code="damaged_stream",
            ) from None

    def card_of(self, before: StreamCard, state: S, *, seq: int, at: int) -> StreamCard:
        """The card of a thing in this state, after event `seq`."""
        is_open = self.is_open(state)
        return msgspec.structs.replace(
            before,
            seq=seq,
            state=_encode(state),
            updated_at=at,
            open=is_open,
            wake=self.wake(state) if is_open else None,
            group=self.group(state),
        )

    def events_in(self, data: bytes) -> list[Any]:
        return self._events.decode(data)


class Changed(NamedTuple):
    """A thing before and after a block, for those who listen."""

    family: Family[Any]
    thing: str
    before: Any
    after: Any


class _Entry(NamedTuple):
    card: StreamCard
    state: Any


class _Pending(NamedTuple):
    entry: _Entry
    events: list[Any]
    before: Any
    anew: bool = False  # with the first of these events

    @property
    def seq(self) -> int:
        return (0 if self.anew else self.entry.card.seq) + len(self.events)


class Change:
    """The block: reads see what it has added so far."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities
        self.now = entities.clock.now()
        self.after = entities.made  # blocks before this one
        self.added: dict[tuple[Family[Any], str], _Pending] = {}
        self._absent: set[tuple[Family[Any], str]] = set()  # so the store is asked once

    def get(self, family: Family[S], thing: str) -> S | None:
        pending = self.added.get((family, thing))
        if pending is not None:
            state: S = pending.entry.state
            return state
        entry = self._entry(family, thing)
        return entry.state if entry else None

    def _entry(self, family: Family[Any], thing: str) -> _Entry | None:
        key = family, thing
        if key in self._absent:
            return None
        entry = self._entities.entry(family, thing)
        if entry is None:
            self._absent.add(key)
        return entry

    def add(self, family: Family[S], thing: str, event: Any) -> S:
        """The thing after this event."""
        key = family, thing
        if key in self.added:
            (card, state), events, before, anew = self.added[key]
        else:
            entry = self._entry(family, thing)
            card, state = entry if entry else (self._blank(family, thing), None)
            events, before, anew = [], state, False
        if family.begins_anew(event) and state is not None:
            events, state, anew = [], None, True
        after = family.evolve(state, event)
        self.added[key] = _Pending(_Entry(card, after), [*events, event], before, anew)
        return after

    def _blank(self, family: Family[Any], thing: str) -> StreamCard:
        return StreamCard(
            stream=family.stream(thing),
            family=family.name,
            seq=0,
            state=b"",
            created_at=self.now,
            updated_at=self.now,
        )


class Entities:
    def __init__(
        self, store: Store, clock: Clock, writer: Writer, families: tuple[Family[Any], ...]
    ) -> None:
        if store.node_streams is None:
            raise StoreError(
                "a node keeps its state in a file of its own; several servers share this store",
                code="shared_store",
            )
        self.clock = clock
        self._streams = store.node_streams
        self._writer = writer
        self._families = {family.name: family for family in families}
        self._open: dict[str, dict[str, _Entry]] = {name: {} for name in self._families}
        self._wakes = Wakes()
        self._closed: OrderedDict[Key, _Entry] = OrderedDict()
        self._closed_bytes = 0
        self._batch: dict[str, StreamCommit] = {}
        self._in_flight: frozenset[str] = frozenset()  # streams that are being written
        self._news: list[Changed] = []
        self.made = self._kept = 0  # blocks, and how many of them are durable
        self._writing: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        self._listeners: list[Callable[[Changed], None]] = []

    def load(self) -> None:
        """Read what is open, page by page."""
        after = ""
        while cards := self._streams.open_streams(after, PAGE):
            after = cards[-1].stream
            for card in cards:
                family = self._families.get(card.family)
                if family is None:
                    raise StoreError(
                        f"stream {card.stream} is of the unknown family {card.family!r}: it was "
                        "written by a newer version",
                        code="newer_node",
                    )
                thing = family.thing(card.stream)
                self._open[family.name][thing] = _Entry(card, family.state_in(card))
                self._wakes.put((family.name, thing), card.wake)

    # -- reading -----------------------------------------------------------------------------

    def open_counts(self) -> dict[str, int]:
        """How many things are open, by family; those without any are left out."""
        return {name: len(things) for name, things in self._open.items() if things}

    def get(self, family: Family[S], thing: str) -> S | None:
        entry = self.entry(family, thing)
        return entry.state if entry else None

    def entry(self, family: Family[Any], thing: str) -> _Entry | None:
        found = self._open[family.name].get(thing)
        if found is not None:
            return found
        key = family.name, thing
        if key in self._closed:
            self._closed.move_to_end(key)
            return self._closed[key]
        card = self._streams.stream(family.stream(thing))
        if card is None:
            return None
        return self._remember(key, _Entry(card, family.state_in(card)))

    def each_open(self, family: Family[S]) -> Iterator[tuple[str, S]]:
        """In the order in which they were written last; after a start in that of their names."""
        for thing, entry in list(self._open[family.name].items()):
            yield thing, entry.state

    def count_open(self, family: Family[Any]) -> int:
        return len(self._open[family.name])

    def next_wake(self, *, after: int | None = None) -> int | None:
        """When the first open thing has to be looked at; the first after an instant, if given."""
        return self._wakes.first() if after is None else self._wakes.first_after(after)

    def due(self, now: int) -> list[tuple[Family[Any], str]]:
        """Open things whose instant has come, the earliest first."""
        return [(self._families[name], thing) for name, thing in self._wakes.due(now)]

    async def listed(
        self, family: Family[S], *, group: str | None = None, is_open: bool | None = None,
        before: tuple[int, str] | None = None, limit: int = 50,
    ) -> list[tuple[str, S, StreamCard]]:  # fmt: skip
        """Things of a family, newest first, as they are durable now."""
        await self.durable()
        wanted = StreamFilter(
            family=family.name, group=group, open=is_open, before=before, limit=limit
        )
        cards = self._streams.streams(wanted)
        return [(family.thing(card.stream), family.state_in(card), card) for card in cards]

    # -- changing ----------------------------------------------------------------------------

    @contextmanager
    def change(self) -> Iterator[Change]:
        self._require_sound()
        change = Change(self)
        yield change
        self._take(change)

    def listen(self, listener: Callable[[Changed], None]) -> None:
        """Called for every change, once it is durable."""
        self._listeners.append(listener)

    async def durable(self) -> None:
        """Returns when every block so far is on the disk; `StoreError` where that failed."""
        mark = self.made
        while self._kept < mark:
            self._require_sound()
            if self._writing is None:
                self._begin_write()
            assert self._writing is not None
            try:
                await asyncio.shield(self._writing)
            except Exception as error:
                if isinstance(error, Conflict) or not isinstance(error, StoreError):
                    self._require_sound()  # what the store conflicts with, no caller has done
                raise

    async def forget(
        self, family: Family[Any], before: int, limit: int = 200, group: str | None = None
    ) -> int:
        """Delete things of a family, or of a group of it, that are not open and were last written
        before that instant, with their histories; returns how many. Others have their turn before
        the next ones are asked for."""
        await asyncio.sleep(0)
        while self._batch or self._in_flight:  # events that wait need what they follow
            await self.durable()
        self._require_sound()
        gone = self._streams.forget_streams(family.name, before, limit, group)
        for key in [key for key, entry in self._closed.items() if key[0] == family.name
                    and entry.card.updated_at < before
                    and group in (None, entry.card.group)]:  # fmt: skip
            self._drop_closed(key)
        return gone

    def _take(self, change: Change) -> None:
        if not change.added:
            return
        if change.after != self.made:
            self._require_unchanged(change)
        cards = [
            family.card_of(one.entry.card, one.entry.state, seq=one.seq, at=change.now)
            for (family, _), one in change.added.items()
        ]  # both before anything is changed: what a family says may raise
        events = [_encode(pending.events) for pending in change.added.values()]
        for card, data, ((family, thing), pending) in zip(
            cards, events, change.added.items(), strict=True
        ):
            key = family.name, thing
            self._open[family.name].pop(thing, None)
            self._drop_closed(key)
            self._queue(card, data, pending, change.now)
            self._remember(key, _Entry(card, pending.entry.state))
            self._wakes.put(key, card.wake)
            self._news.append(Changed(family, thing, pending.before, pending.entry.state))
        self.made += 1

    def _require_unchanged(self, change: Change) -> None:
        """Blocks are not to overlap; one that does is refused where it would lose events."""
        for (family, thing), (entry, *_) in change.added.items():
            current = self.entry(family, thing)
            if (current.card.seq if current else 0) != entry.card.seq:
                raise RuntimeError(f"two blocks at once changed {entry.card.stream}")

    def _queue(self, card: StreamCard, data: bytes, pending: _Pending, now: int) -> None:
        """Blocks that wait for the same write become one commit a stream."""
        earlier, count, forgets = self._batch.get(card.stream), len(pending.events), None
        if pending.anew:
            forgets = earlier.expected if earlier else pending.entry.card.seq
        elif earlier is not None:
            data = earlier.events[:-1] + b"," + data[1:]
            count, forgets = earlier.count + count, earlier.forgets
        self._batch[card.stream] = StreamCommit(
            card=card, events=data, count=count, at=now, forgets=forgets
        )

    def _remember(self, key: Key, entry: _Entry) -> _Entry:
        if entry.card.open:
            self._open[key[0]][key[1]] = entry
        else:
            self._closed[key] = entry
            self._closed_bytes += len(entry.card.state)
            self._shrink()
        return entry

    def _shrink(self) -> None:
        """Without those that were not used for the longest. Where the first of these waits to be
        written, so do most: then after the write, instead of a look over all of them each time."""
        while len(self._closed) > CLOSED_KEPT or self._closed_bytes > CLOSED_BYTES:
            key, entry = next(iter(self._closed.items()))
            if entry.card.stream in self._batch or entry.card.stream in self._in_flight:
                return
            self._drop_closed(key)

    def _drop_closed(self, key: Key) -> None:
        entry = self._closed.pop(key, None)
        if entry is not None:
            self._closed_bytes -= len(entry.card.state)

    def _begin_write(self) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._write())
        self._writing.add_done_callback(_seen)

    async def _write(self) -> None:
        """What waits now. What comes meanwhile is another write, so that those who wait for this
        one go on, however much comes."""
        made, news = self.made, self._news
        batch = Batch(streams=list(self._batch.values()))
        self._in_flight = frozenset(self._batch)
        self._batch, self._news = {}, []
        try:
            await self._writer.write(batch, lambda: None)
            await self._writer.drain()
        except BaseException as error:
            self.failure, self._writing = error, None
            raise
        self._kept, self._in_flight, self._writing = made, frozenset(), None
        if self._kept < self.made:
            self._begin_write()
        self._tell(news)

    def _tell(self, news: list[Changed]) -> None:
        for changed in news:
            for listener in self._listeners:
                try:
                    listener(changed)
                except Exception as error:  # a defect of the listener; the state is sound
                    asyncio.get_running_loop().call_exception_handler(
                        {"message": "a listener of the node failed", "exception": error}
                    )

    def _require_sound(self) -> None:
        if self.failure is not None:
            raise StoreError(
                "the node could not write its state and has stopped; start it again",
                code="node_stopped",
            ) from self.failure


def _seen(writing: asyncio.Task[None]) -> None:
    """`failure` has it, also where those who waited are gone."""
    if not writing.cancelled():
        writing.exception()
