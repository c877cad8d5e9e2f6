"""What it is to ask a participant, and how its reply is taken.

A participant answers with JSON. It may say no; it may talk nonsense; it may not be there. These are
three different things: a *negative* answer is an answer that cannot be used, nonsense is taken for
one and says so, and one who cannot be reached leaves the count of those who were asked. A fourth is
our own: where we have no means left to ask, nobody is blamed and nobody leaves the count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.errors import AnabranchError

#: What a reply says in `status` when it is no answer to the question; some say more after it
#: (`rejected-invalid-request`).
NEGATIVE = (
    *("no_offer_available", "error", "failed", "rejected", "declined", "refused"),
    *("unavailable", "not_available", "unsupported"),
)
_SAYS_NO = re.compile(rf"(?:{'|'.join(NEGATIVE)})(?:[^a-z0-9].*)?|no", re.DOTALL)


class ParticipantRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to one participant."""

    participant: str
    dispatch_id: str
    run_id: str
    step_id: str
    service_type: str
    input: Any
    idempotency_key: str = ""  # another one than the dispatch where a redrive asks again
    filter: Mapping[str, Any] | None = None
    respond_by: str = ""  # RFC 3339; empty: there is no time limit
    capability_id: str = ""  # for decision sources
    timeout_seconds: float | None = None  # how long the answer is of use, if that is known
    decides: bool = False  # a no is a verdict: an error status is none
    #: What is ordered, where the step says it: an offer, how many units, what it may cost at most.
    offer: Mapping[str, Any] | None = None
    request_units: int = 1
    max_amount: int | None = None
    currency: str = ""

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        fields = msgspec.to_builtins(self)
        fields["filter"] = fields["filter"] or None
        del fields["participant"], fields["timeout_seconds"], fields["decides"]
        if self.idempotency_key == self.dispatch_id:
            del fields["idempotency_key"]
        shown = {k: v for k, v in fields.items() if k not in _UNSAID or v != _UNSAID[k]}
        return {"schema_version": "v1", **shown}


#: What a request leaves out where it is this.
_UNSAID: Mapping[str, Any] = {
    "idempotency_key": "",
    "filter": None,
    "respond_by": "",
    "capability_id": "",
    "offer": None,
    "request_units": 1,
    "max_amount": None,
    "currency": "",
}


class Unreachable(AnabranchError):
    """Nobody is there."""


class BadReply(AnabranchError):
    """Somebody is there, and what came back is no answer. `code` says what it was."""


class CannotAsk(AnabranchError):
    """It is not them, it is us: no descriptors, no ports. It may be better later."""


class Participant(Protocol):
    async def ask(self, request: ParticipantRequest) -> Any:
        """The reply as plain JSON. Raises `Unreachable`, `BadReply` or `CannotAsk`; being cancelled
        means that the answer is no longer wanted, and whatever was opened for it is closed."""
        ...


class ParticipantQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a step looks for."""

    resolve: str
    capability_id: str = ""
    task_type: str = ""
    service_type: str = ""
    participants: Sequence[str] = ()
    filter: Mapping[str, Any] | None = None
    limit: int | None = None
    one: bool = False  # the best one is wanted, not all of them
    order: str = ""  # `least_recently_asked`: whose turn it is, before the limit cuts
    offer: Mapping[str, Any] | None = None  # the one that is ordered


class NotKnown(AnabranchError):
    """The directory has not been read; it may be later."""

    code = "directory_unread"


class Directory(Protocol):
    def find(self, query: ParticipantQuery) -> list[str]:
        """Participants in a fixed order, from what is known here and now. Raises `InputError`
        where the question is wrong, and `NotKnown` where it cannot be answered now."""
        ...

    def why_nobody(self, query: ParticipantQuery) -> str:
        """Why it finds nobody for that question: what is missing, or does not count."""
        ...


def is_negative(reply: Any) -> bool:
    """Whether a reply says no, by its `status` or by an `error`, whatever the other says.

    What is no mapping is an answer: some answer with a number.
    """
    if not isinstance(reply, Mapping):
        return reply is None
    if reply.get("error"):
        return True
    status = reply.get("status")
    return isinstance(status, str) and _SAYS_NO.fullmatch(status.strip().lower()) is not None


def nonsense(error: BadReply) -> dict[str, Any]:
    """What stands in the place of an answer that was none."""
    return {"status": "error", "error": {"code": error.code, "message": error.message}}
