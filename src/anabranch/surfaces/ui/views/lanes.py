"""The lanes of a timeline as plain data for the page, and what each did in words."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from anabranch.operations.read.timeline import Lane, Timeline
from anabranch.surfaces.ui.views.formatting import span

SEGMENTS_TOLD = 12
PATH_TOLD = 8  # steps of the critical path
KINDS = {
    "queued": "queued", "running": "at work", "retry": "before a retry", "waiting": "waiting",
    "deciding": "decision", "sleeping": "asleep", "parked": "answer from outside", "loop": "loop",
}  # fmt: skip


def lanes_of(timeline: Timeline, skip: int, most: int, base: str) -> dict[str, Any]:
    """Lanes newest last, without the `skip` newest ones; `base` is the page of their run."""
    with timeline.lock:
        lanes = list(timeline.lanes.values())
        end = max(0, len(lanes) - skip)
        chosen = lanes[max(0, end - most) : end]
        path = timeline.critical_path()
        return {
            "path": path,
            "path_words": _path_words(timeline, path),
            "seq": timeline.seq,
            "total": len(lanes) + timeline.dropped,
            "dropped": timeline.dropped,
            "first": timeline.dropped + max(0, end - most) + 1,
            "lanes": [plain_lane(lane, base) for lane in chosen],
        }


def plain_lane(lane: Lane, base: str) -> dict[str, Any]:
    """As the drawing wants it."""
    return {
        "id": lane.id,
        "way": f"{base}/steps/{quote(lane.step, safe='')}?{_which(lane)}",
        "label": lane.label,
        "status": lane.status,
        "start": lane.start,
        "end": lane.end,
        "attempts": lane.attempts,
        "loop": lane.loop,
        "words": _words(lane),
        "segments": [[s.kind, s.start, s.end, s.note[:300], s.good] for s in lane.segments[-200:]],
    }


def _path_words(timeline: Timeline, path: list[str]) -> str:
    """The critical path with what each of it took; of a long one the longest ones."""
    lanes = [timeline.lanes[one] for one in path]
    took = {one.id: one.end - one.start for one in lanes if one.end}
    longest = sorted(took, key=took.__getitem__, reverse=True)[:PATH_TOLD]
    told, left_out = [], False
    for one in lanes:
        if len(lanes) <= PATH_TOLD or one.id in longest or not one.end:
            length = span(took[one.id]) if one.id in took else "until now"
            told.append(f"{one.label} ({length})")
            left_out = False
        elif not left_out:
            told.append("…")
            left_out = True
    return " → ".join(told)


def _which(lane: Lane) -> str:
    """A step run, or a job of one that asks several."""
    return f"token={lane.id}" if lane.id.isdecimal() else f"job={quote(lane.id, safe='')}"


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
