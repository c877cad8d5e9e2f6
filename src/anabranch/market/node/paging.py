"""Lists in pages: what a caller asks for, and the answer with the place where the next begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from anabranch.market.node.api import Answer
from anabranch.market.node.errors import NodeError
from anabranch.store.stream_ports import StreamCard

LIMIT, LIMIT_MAX = 50, 500
_Instant = Annotated[int, msgspec.Meta(ge=0, le=2**62)]  # a store holds no more than 64 bits
_cursors = msgspec.json.Decoder(tuple[_Instant, str])


class Page(msgspec.Struct, frozen=True):
    limit: int
    before: tuple[int, str] | None
    is_open: bool | None


def page_of(query: Mapping[str, str]) -> Page:
    """Reads `limit`, `before` and `open`."""
    return Page(
        whole_number(query, "limit", LIMIT, least=1, most=LIMIT_MAX),
        read_cursor(query["before"]) if "before" in query else None,
        _read_flag(query, "open"),
    )


def paged(rows: Sequence[tuple[Any, StreamCard]], page: Page) -> Answer:
    """`next` is there where more may follow."""
    body: dict[str, Any] = {"items": [item for item, _card in rows]}
    if len(rows) == page.limit:
        body["next"] = cursor_of(rows[-1][1])
    return Answer(body=body)


def whole_number(
    query: Mapping[str, str], name: str, default: int, *, least: int, most: int
) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise NodeError(400, "bad_query", f"`{name}` is a number from {least} to {most}")
    return int(text)


def _read_flag(query: Mapping[str, str], name: str) -> bool | None:
    text = query.get(name)
    if text not in (None, "true", "false"):
        raise NodeError(400, "bad_query", f"`{name}` is true or false")
    return None if text is None else text == "true"


def cursor_of(card: StreamCard) -> str:
    """The place after this one."""
    data = msgspec.json.encode([card.created_at, card.stream])
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_cursor(text: str) -> tuple[int, str]:
    """Raises `NodeError`."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return _cursors.decode(data)
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        raise NodeError(400, "bad_query", "`before` is the `next` of an earlier page") from None
