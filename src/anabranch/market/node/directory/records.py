"""What the directory keeps, as things that events change.

A revocation is there for good, unless the operator drops it; an advertisement until its time is
over or it makes room for others, and a registration until its passport expires or its node has no
advertisement any more.
`number` is the place of a document in the order in which this directory took them, for those who
ask what is new.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from anabranch.market.node.entities import Family

Document = dict[str, Any]


# -- advertisements --------------------------------------------------------------------------


class AdvertisementTaken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    advertisement: Document
    sequence: int
    number: int
    expires_at: int | None = None  # None: taken by a version in which they never expired
    source: str = ""  # the network that it came from
    trusted: bool = False  # somebody whom this node trusts vouches for the node


class AdvertisementEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """It made room for others, or the operator dropped it. Its number stays for a while."""

    reason: Literal["expired", "crowded", "dropped"]
    at: int


class Advertisement(msgspec.Struct, frozen=True, kw_only=True):
    """The newest one of a node."""

    advertisement: Document
    sequence: int
    number: int
    expires_at: int | None = None
    source: str = ""
    trusted: bool = False
    ended: str = ""
    ended_at: int = 0


def _advertise(
    state: Advertisement | None, event: AdvertisementTaken | AdvertisementEnded
) -> Advertisement:
    if isinstance(event, AdvertisementTaken):
        return Advertisement(
            advertisement=event.advertisement,
            sequence=event.sequence,
            number=event.number,
            expires_at=event.expires_at,
            source=event.source,
            trusted=event.trusted,
        )
    assert state is not None
    return msgspec.structs.replace(state, ended=event.reason, ended_at=event.at)


ADVERTISEMENTS = Family(
    "seed-advertisement",
    Advertisement,
    AdvertisementTaken | AdvertisementEnded,
    _advertise,
    is_open=lambda state: not state.ended,
    wake=lambda state: state.expires_at,
    begins_anew=lambda event: isinstance(event, AdvertisementTaken),
)


# -- registrations ---------------------------------------------------------------------------


class CapabilityRegistered(msgspec.Struct, frozen=True, kw_only=True, tag="registered"):
    passport: Document
    sequence: int
    expires_at: int | None
    at: int
    endorsement: Document | None = None
    published: int = 0  # the advertisement that it came with; 0: not known
    signed: bool = False  # the number


class RegistrationEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The passport has expired, was revoked, or the advertisement of the node has ended. The number
    of the last registration stays."""

    reason: Literal["expired", "revoked", "unadvertised"]


class EndorsementDropped(msgspec.Struct, frozen=True, kw_only=True, tag="unendorsed"):
    """What its node has signed since takes the room."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    passport: Document
    sequence: int
    expires_at: int | None
    at: int
    endorsement: Document | None = None
    published: int = 0  # the advertisement that it came with; 0: not known
    signed: bool = False  # the number
    ended: str = ""

    @property
    def node_id(self) -> str:
        return str(self.passport["node_id"])

    @property
    def capability_id(self) -> str:
        return str(self.passport["capability_id"])


def _register(
    state: Registration | None,
    event: CapabilityRegistered | RegistrationEnded | EndorsementDropped,
) -> Registration:
    if isinstance(event, CapabilityRegistered):
        return Registration(
            passport=event.passport,
            sequence=event.sequence,
            expires_at=event.expires_at,
            at=event.at,
            endorsement=event.endorsement,
            published=event.published,
            signed=event.signed,
        )
    assert state is not None
    if isinstance(event, EndorsementDropped):
        return msgspec.structs.replace(state, endorsement=None)
    return msgspec.structs.replace(state, ended=event.reason)


REGISTRATIONS = Family(
    "seed-capability",
    Registration,
    CapabilityRegistered | RegistrationEnded | EndorsementDropped,
    _register,
    is_open=lambda state: not state.ended,
    wake=lambda state: state.expires_at,
    group=lambda state: state.node_id,
    begins_anew=lambda event: isinstance(event, CapabilityRegistered),
)


def registration_of(node_id: str, capability_id: str) -> str:
    return f"{node_id}/{capability_id}"


# -- revocations -----------------------------------------------------------------------------


class RevocationTaken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    revocation: Document
    number: int
    source: str  # the seed it came from; "" for this node
    registered: bool = False  # the passport that it revokes was registered here


class RevocationDropped(msgspec.Struct, frozen=True, kw_only=True, tag="dropped"):
    """The operator wants its room for others."""


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    revocation: Document
    number: int
    source: str
    registered: bool = False
    dropped: bool = False


def _revoke(state: Revocation | None, event: RevocationTaken | RevocationDropped) -> Revocation:
    if isinstance(event, RevocationTaken):
        return Revocation(
            revocation=event.revocation,
            number=event.number,
            source=event.source,
            registered=event.registered,
        )
    assert state is not None
    return msgspec.structs.replace(state, dropped=True)


#: By the digest of the document: anyone can write any id into one.
REVOCATIONS = Family(
    "passport-revocation",
    Revocation,
    RevocationTaken | RevocationDropped,
    _revoke,
    is_open=lambda state: not state.dropped,
)


# -- what this node issued and says of itself ------------------------------------------------


class PassportKept(msgspec.Struct, frozen=True, kw_only=True, tag="kept"):
    passport: Document
    mine: bool  # held by this node
    renew_at: int | None = None  # issued anew then; None: it is not


class PassportRevoked(msgspec.Struct, frozen=True, kw_only=True, tag="revoked"):
    pass


class OwnPassport(msgspec.Struct, frozen=True, kw_only=True):
    """One that this node holds, or that its participant issued for another node."""

    passport: Document
    mine: bool
    renew_at: int | None = None
    revoked: bool = False


def _keep(state: OwnPassport | None, event: PassportKept | PassportRevoked) -> OwnPassport:
    if isinstance(event, PassportKept):
        return OwnPassport(passport=event.passport, mine=event.mine, renew_at=event.renew_at)
    assert state is not None
    return msgspec.structs.replace(state, revoked=True, renew_at=None)


OWN_PASSPORTS = Family(
    "own-passport",
    OwnPassport,
    PassportKept | PassportRevoked,
    _keep,
    is_open=lambda state: state.mine and not state.revoked,
    wake=lambda state: state.renew_at,
    group=lambda state: "held" if state.mine else "issued",
)


class SequenceUsed(msgspec.Struct, frozen=True, kw_only=True, tag="used"):
    sequence: int


class OwnSequence(msgspec.Struct, frozen=True, kw_only=True):
    """The last number under which this node published something; a higher one is never taken
    back, so no directory takes an old document of it for a new one."""

    sequence: int


def _use(_state: OwnSequence | None, event: SequenceUsed) -> OwnSequence:
    return OwnSequence(sequence=event.sequence)


OWN_SEQUENCE = Family("own-sequence", OwnSequence, SequenceUsed, _use, is_open=lambda _state: True)
SEQUENCE = "sequence"  # the one thing of that family

FAMILIES: tuple[Family[Any], ...] = (
    ADVERTISEMENTS, REGISTRATIONS, REVOCATIONS, OWN_PASSPORTS, OWN_SEQUENCE,
)  # fmt: skip
