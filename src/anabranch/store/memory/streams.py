"""The streams of a node, in dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock

from anabranch.store.checks import birth_of, card_refusal, streams_refusal
from anabranch.store.stream_ports import StreamCard, StreamCommit, StreamEvents, StreamFilter


class MemoryStreams:
    def __init__(self, opened: Callable[[], RLock]) -> None:
        self._open = opened  # the lock of the store, as long as that is open
        self._cards: dict[str, StreamCard] = {}
        self._events: dict[str, list[StreamEvents]] = {}

    def check(self, commits: Sequence[StreamCommit]) -> None:
        """Raises `Conflict` where a stream does not end just before its commit."""
        refused = streams_refusal(commits, self._cards.get)
        if refused is not None:
            raise refused

    def apply(self, commits: Sequence[StreamCommit]) -> None:
        for commit in commits:
            card = commit.card
            self._cards[card.stream] = card
            if commit.forgets is not None:
                self._events.pop(card.stream, None)
            row = StreamEvents(card.seq - commit.count + 1, commit.count, commit.at, commit.events)
            self._events.setdefault(card.stream, []).append(row)

    def stream(self, name: str) -> StreamCard | None:
        with self._open():
            return self._cards.get(name)

    def streams(self, wanted: StreamFilter) -> list[StreamCard]:
        with self._open():
            found = [card for card in self._cards.values() if _fits(card, wanted)]
        found.sort(key=lambda card: (card.created_at, card.stream), reverse=True)
        return found[: max(wanted.limit, 0)]

    def open_streams(self, after: str = "", limit: int = 1000) -> list[StreamCard]:
        with self._open():
            found = [card for name, card in self._cards.items() if card.open and name > after]
        return sorted(found, key=lambda card: card.stream)[: max(limit, 0)]

    def stream_names(self, after: str = "", limit: int = 1000) -> list[str]:
        with self._open():
            return sorted(name for name in self._cards if name > after)[: max(limit, 0)]

    def stream_events(
        self, name: str, after: int = 0, limit: int | None = None
    ) -> list[StreamEvents]:
        with self._open():
            rows = self._events.get(name, ())
            found = [row for row in rows if row.first_seq + row.count - 1 > after]
        return found if limit is None else found[: max(limit, 0)]

    def renew_cards(self, cards: Sequence[StreamCard]) -> None:
        with self._open():
            for card in cards:
                kept = self._cards.get(card.stream)
                if kept is None or birth_of(kept) != birth_of(card) or kept.seq != card.seq:
                    raise card_refusal(card)
            self._cards.update({card.stream: card for card in cards})

    def forget_streams(
        self, family: str, before: int, limit: int = 1000, group: str | None = None
    ) -> int:
        wanted = StreamFilter(family=family, group=group, open=False)
        with self._open():
            old = sorted(
                (card.updated_at, name)
                for name, card in self._cards.items()
                if card.updated_at < before and _fits(card, wanted)
            )[: max(limit, 0)]
            for _, name in old:
                del self._cards[name], self._events[name]
        return len(old)


def _fits(card: StreamCard, wanted: StreamFilter) -> bool:
    return (
        card.family == wanted.family
        and (wanted.group is None or card.group == wanted.group)
        and (wanted.open is None or card.open == wanted.open)
        and (wanted.before is None or (card.created_at, card.stream) < wanted.before)
    )
