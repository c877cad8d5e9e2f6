"""How pages say things: instants, spans, amounts, JSON, and how a status looks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from anabranch.net.picture import LOOKS

#: From the first of them on; what follows decides how many of them, and none is tried twice.
_JOINTS = re.compile(r"(?<![_/.:-])[_/.:-]+(?=\w)")

#: The statuses of a run in the order in which people ask for them.
STATUSES = (
    "queued", "running", "waiting", "paused", "completed", "partial", "failed", "step_timeout",
    "deadline_exceeded", "cancelled",
)  # fmt: skip
_RUN_LOOKS: Mapping[str, str] = {
    "queued": "waiting",
    "running": "active",
    "waiting": "waiting",
    "paused": "waiting",
    "completed": "done",
    "partial": "partial",
    "failed": "failed",
    "step_timeout": "failed",
    "deadline_exceeded": "failed",
    "cancelled": "quiet",
}
_MORE_LOOKS: Mapping[str, str] = {
    "succeeded": "done",
    "pending": "plain",
    "complete": "done",
    "closed": "done",
    "impossible": "failed",
    "expired": "failed",
    "filled": "done",
    "lost": "failed",
    "open": "active",
    "error": "failed",
    "warning": "waiting",
    "note": "plain",
    "up": "done",
    "odd": "waiting",
    "down": "failed",
    "on": "done",
    "ended": "quiet",
    "ok": "done",
    "warn": "waiting",
    "bad": "failed",
    "other key": "failed",
    "no key": "failed",
    "active": "done",
    "draining": "waiting",
    "drained": "quiet",
    "connecting": "waiting",
    "away": "waiting",
    "unfit": "failed",
    "reused": "done",
    "put off": "waiting",
    "put back": "waiting",
    "timed out": "failed",
    "stopping": "waiting",
    "stopped": "quiet",
    "abandoned": "failed",
    "busy": "active",
    "idle": "done",
    "silent": "failed",
}
JSON_SHOWN = 64 * 1024


def look(status: str) -> str:
    """The class of a status: what colour it has."""
    return _RUN_LOOKS.get(status) or _MORE_LOOKS.get(status) or LOOKS.get(status, "plain")


def instant(milliseconds: int | None) -> str:
    """For people, to the second; an instant no calendar has comes out as its number."""
    if not milliseconds:
        return ""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def machine_instant(milliseconds: int | None) -> str:
    """As RFC 3339, for the `datetime` of a time element."""
    if not milliseconds:
        return ""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(milliseconds: float | None) -> str:
    """A length of time in at most two units."""
    if milliseconds is None:
        return ""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, name in units:
        if whole >= size:
            parts.append(f"{whole // size} {name}")
            whole %= size
    return " ".join(parts[:2])


def amount(number: int | None) -> str:
    return "unknown" if number is None or number < 0 else f"{number:,}"


class ShownJson(NamedTuple):
    """A value as text; `size` is how many characters the whole of it has."""

    text: str
    size: int

    @property
    def cut(self) -> bool:
        return len(self.text) < self.size


def shown_json(value: Any, most: int = JSON_SHOWN) -> ShownJson:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return ShownJson(text[:most], len(text))


def short_json(value: Any, most: int = 200) -> str:
    """On one line, and no longer than that."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else text[: most - 1] + "…"


def capitalize_first(text: str) -> str:
    """As a sentence begins; the rest of it stays as it is."""
    return text[:1].upper() + text[1:]


def breakable(text: str) -> Markup:
    """A name that breaks between its words where it is too long for its line."""
    return Markup(_JOINTS.sub(r"\g<0><wbr>", str(escape(text))))


def is_web_address(url: str) -> bool:
    """Whether a browser may be sent there; anything else is only shown."""
    return url.startswith(("http://", "https://"))
