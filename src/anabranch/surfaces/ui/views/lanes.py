"""The lanes of a timeline as plain data for the page, and what each did in words."""

from __future__ import annotations

from typing import Any

from anabranch.operations.read.timeline import Lane, Timeline
from anabranch.surfaces.ui.views.formatting import span

SEGMENTS_TOLD = 12
KINDS = {
    "queued": "queued", "running": "at work", "retry": "before a retry", "waiting": "waiting",
    "deciding": "decision", "sleeping": "asleep", "parked": "answer from outside", "loop": "loop",
}  # fmt: skip


def lanes_of(timeline: Timeline, skip: int, most: int) -> dict[str, Any]:
    """Lanes newest last, without the `skip` newest ones."""
    with timeline.lock:
        lanes = list(timeline.lanes.values())
        end = max(0, len(lanes) - skip)
        chosen = lanes[max(0, end - most) : end]
        return {
            "seq": timeline.seq,
            "total": len(lanes) + timeline.dropped,
            "dropped": timeline.dropped,
            "first": timeline.dropped + max(0, end - most) + 1,
            "lanes": [_plain(lane) for lane in chosen],
        }


def _plain(lane: Lane) -> dict[str, Any]:
    return {
        "id": lane.id,
        "label": lane.label,
        "status": lane.status,
        "start": lane.start,
        "end": lane.end,
        "attempts": lane.attempts,
        "words": _words(lane),
        "segments": [[s.kind, s.start, s.end, s.note[:300], s.good] for s in lane.segments[-200:]],
    }


def _words(lane: Lane) -> str:
    """What it did, for those who do not see the bars."""
    some = lane.segments[-SEGMENTS_TOLD:]
    told = ["…"] if len(some) < len(lane.segments) else []
    for one in some:
        word = KINDS[one.kind] + ("" if one.good else ", failed")
        took = span(one.end - one.start) if one.end else "until now"
        note = f" ({one.note[:120]})" if one.note else ""
        told.append(f"{word} {took}{note}")
    return "; ".join(told)
