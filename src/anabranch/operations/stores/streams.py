"""Are the streams of a node whole? A part of `store check`.

What their events come to is known to the node alone: `anabranch node check` replays them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from anabranch.store.stream_ports import StreamCard, StreamEvents

_events = msgspec.json.Decoder(list[msgspec.Raw])
_state = msgspec.json.Decoder(msgspec.Raw)


def wrong_with_stream(card: StreamCard, rows: Iterable[StreamEvents]) -> str:
    """What is wrong with it, or nothing: its numbers run from 1 to that of its card."""
    last = 0
    for row in rows:
        end = row.first_seq + row.count - 1
        if row.first_seq != last + 1:
            return f"has events {row.first_seq} to {end} where event {last + 1} is expected"
        last = end
        try:
            count = len(_events.decode(row.events))
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return f"has events {row.first_seq} to {end} that cannot be read ({error!s:.120})"
        if count != row.count:
            return f"has {count} events in the row of events {row.first_seq} to {end}"
    if last != card.seq:
        return f"ends at event {last}, and its card says {card.seq}"
    try:
        _state.decode(card.state)
    except (ValueError, RecursionError) as error:
        return f"has a card whose state cannot be read ({error!s:.120})"
    return ""
