"""From the bytes of a reply to plain JSON that can be recorded, or to the reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.work.participants.port import BadReply
from anabranch.work.values.json_check import MAX_DEPTH, too_deep
from anabranch.work.values.texts import clip

_decode = msgspec.json.Decoder().decode
_REASON = 120
_NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def parsed(data: bytes, place: str) -> Any:
    try:
        reply = _decode(data)
    except _NOT_JSON as error:
        message = f"{place} answered with no JSON: {clip(str(error), _REASON)}"
        raise BadReply(message, code="not_json") from None
    if too_deep(data, reply):
        message = f"{place} answered with JSON nested deeper than {MAX_DEPTH}"
        raise BadReply(message, code="too_deep")
    return reply


def refusal(status: int, reason: str | None, data: bytes) -> dict[str, Any]:
    """An error status is a no, with whatever JSON it says about it."""
    message = clip(f"HTTP {status} {reason or ''}".strip(), _REASON)
    reply: dict[str, Any] = {
        "status": "error",
        "error": {"code": f"http_{status}", "message": message},
    }
    try:
        said = _decode(data)
    except _NOT_JSON:
        return reply
    return reply if said is None or too_deep(data, said) else {**reply, "reply": said}


def names_dispatch(reply: Any, asked: str) -> bool:
    """It says which question it answers, and that is ours; also inside of an error status."""
    if not isinstance(reply, Mapping):
        return False
    if reply.get("dispatch_id") == asked:
        return True
    said = reply.get("reply")
    return isinstance(said, Mapping) and said.get("dispatch_id") == asked


def check_dispatch(reply: Any, asked: str, place: str) -> None:
    """A reply that names a dispatch names ours; otherwise it answers another question."""
    named = reply.get("dispatch_id") if isinstance(reply, Mapping) else None
    if named is not None and named != asked:
        message = f"{place} answered another dispatch: {clip(str(named), _REASON)}"
        raise BadReply(message, code="wrong_dispatch")
