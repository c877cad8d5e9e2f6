"""Answers that are signed, where the book gives the key of a participant.

A signature covers everything in the answer but itself, and the answer names the dispatch that it
is for: an old one cannot be shown again. A no needs no signature, for nothing is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anabranch.work.participants.port import BadReply, ParticipantRequest, is_negative

#: Raises `BadReply` for a reply that must not be used.
Check = Callable[[Any, ParticipantRequest], None]


class Signatures(Protocol):
    def problem_of(self, key: str) -> str:
        """Why this is no key that can be used, or nothing."""
        ...

    def holds(self, document: Mapping[str, Any], key: str) -> bool: ...


def signature_check(name: str, key: str, signatures: Signatures) -> Check:
    def check(reply: Any, request: ParticipantRequest) -> None:
        if is_negative(reply):
            return
        if not isinstance(reply, Mapping) or "signature" not in reply:
            message = f"{name} answered without a signature, and the book gives its key"
            raise BadReply(message, code="unsigned_reply")
        if reply.get("dispatch_id") != request.dispatch_id:
            message = f"{name} signed an answer that does not name its dispatch"
            raise BadReply(message, code="unsigned_dispatch")
        if not signatures.holds(reply, key):
            message = f"the signature of {name} does not hold with the key of the book"
            raise BadReply(message, code="bad_signature")

    return check


def accept(_reply: Any, _request: ParticipantRequest) -> None:
    """Where the book gives no key."""
