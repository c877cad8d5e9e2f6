"""Keys from fixed seeds, and passports made with them."""

from __future__ import annotations

from typing import Any

from anabranch.clock import ManualClock
from anabranch.market.directory import PassportDirectory
from anabranch.market.identities import SigningKey
from anabranch.market.passports import NOT_SIGNED, issue_passport
from anabranch.work.participants.book import Book
from anabranch.work.participants.port import ParticipantQuery

NOW = 1_770_000_000_000  # 2026-02-02T02:40:00Z
ISSUED, EXPIRES = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
CAPABILITY = "offer-catalog"


def key(number: int) -> SigningKey:
    return SigningKey.from_seed(bytes([number]) * 32)


ISSUER, NODE, STRANGER = key(1), key(2), key(3)


def node(number: int) -> str:
    return key(number).identity("node")


def participant(number: int) -> str:
    return key(number).identity("participant")


def passport(number: int = 2, issuer: SigningKey = ISSUER, **changes: Any) -> dict[str, Any]:
    """A passport of node `number`; `changes` are signed too."""
    times = {name: changes.pop(name) for name in ("issued_at", "expires_at") if name in changes}
    document = issue_passport(
        issuer,
        node(number),
        changes.pop("capability_id", CAPABILITY),
        **{"issued_at": ISSUED, "expires_at": EXPIRES, **times},
    )
    if changes:
        document = issuer.sign({**document, **changes}, NOT_SIGNED)
    return document


def directory(clock: ManualClock | None = None, **config: Any) -> PassportDirectory:
    """A directory that has been read."""
    given = {"issuers": [ISSUER.identity("participant")], "passports": [], **config}
    people = given.pop("participants", {})
    opened = PassportDirectory(
        Book({"participants": people, "directory": given}), clock or ManualClock(NOW)
    )
    opened.sync()
    return opened


def holders(found: PassportDirectory, capability: str = CAPABILITY, **more: Any) -> list[str]:
    return found.find(ParticipantQuery(resolve="capability", capability_id=capability, **more))
