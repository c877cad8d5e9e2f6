"""The endpoints of offers and of trusted providers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

import msgspec

from anabranch.market.catalog.listing import QUERY
from anabranch.market.node.api import Answer, Call, Endpoint, Scope

_READERS: tuple[Scope, ...] = ("operator", "module")
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node_id: _Text
    filter: dict[str, Any] = {}
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=300_000)] | None = None


class PushRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node_ids: Annotated[list[_Text], msgspec.Meta(min_length=1, max_length=100)]
    observed: bool = False  # also offers of others, where they may be passed on


class DropRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A participant who provides them, or a node that provides them, sent them or was first to."""

    by: _Text


class TrustRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Either `participant_id`, or a `trusted-provider.v1`; who added it and when, the host says."""

    participant_id: str | None = None
    entry_id: str | None = msgspec.field(default=None, name="entry/participant-id")
    note: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    entry_note: Annotated[str, msgspec.Meta(max_length=1024)] | None = msgspec.field(
        default=None, name="entry/note"
    )


_Names = Annotated[list[_Text], msgspec.Meta(max_length=2000)]


class TrustQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `offers.trust.query`."""

    participant_ids: _Names = []
    node_ids: _Names = []
    schema_version: Literal["v1"] = "v1"
    capability_id: Literal["offers_trust_query"] = "offers_trust_query"


class Handlers(Protocol):
    """Who carries the endpoints out."""

    async def publish(self, call: Call) -> Answer: ...

    async def withdraw(self, call: Call) -> Answer: ...

    async def listed(self, call: Call) -> Answer: ...

    async def show(self, call: Call) -> Answer: ...

    async def fetch(self, call: Call) -> Answer: ...

    async def push(self, call: Call) -> Answer: ...

    async def drop(self, call: Call) -> Answer: ...

    async def trusted(self, call: Call) -> Answer: ...

    async def trust(self, call: Call) -> Answer: ...

    async def distrust(self, call: Call) -> Answer: ...


_DRAFT = {"service/type": "text/summarise", "pricing/amount": 100}


def table(offers: Handlers) -> tuple[Endpoint, ...]:
    return (*_others(offers), *_offers(offers), *_trust(offers))


def _offers(offers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/service-offers",
            scopes=_READERS,
            handler=offers.publish,
            summary="Publish a service-offer.v1; a draft is completed and signed",
            status=201,
            example=_DRAFT,
            errors=(400, 403, 409),
        ),
        Endpoint(
            method="GET",
            path="/v1/service-offers",
            scopes=_READERS,
            handler=offers.listed,
            summary="Offers that this node knows: its own, or those observed at others",
            query=QUERY,
            errors=(400,),
        ),
        Endpoint(
            method="GET",
            path="/v1/service-offers/{offer}",
            scopes=_READERS,
            handler=offers.show,
            summary="One offer, with where it was seen",
            errors=(404,),
        ),
        Endpoint(
            method="POST",
            path="/v1/service-offers/{offer}/withdraw",
            scopes=_READERS,
            handler=offers.withdraw,
            summary="Withdraw an offer of this node: a version with a greater number",
            errors=(403, 404, 409),
        ),
    )


def _others(offers: Handlers) -> tuple[Endpoint, ...]:
    """To and from other nodes."""
    return (
        Endpoint(
            method="POST",
            path="/v1/service-offers/fetch",
            scopes=_READERS,
            handler=offers.fetch,
            summary="Ask a node for its offers, and keep what it answers",
            body=FetchRequest,
            errors=(400, 403, 502, 503),
        ),
        Endpoint(
            method="POST",
            path="/v1/service-offers/push",
            scopes=_READERS,
            handler=offers.push,
            summary="Send the offers of this node to others",
            body=PushRequest,
            errors=(400, 403),
        ),
        Endpoint(
            method="POST",
            path="/v1/service-offers/drop",
            scopes=("operator",),
            handler=offers.drop,
            summary="Drop the offers of others that a participant provides, or a node provides or "
            "sent; the same versions stay away for `forget_seconds`",
            body=DropRequest,
            errors=(400, 404),
        ),
    )


def _trust(offers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="GET",
            path="/v1/trusted-providers",
            scopes=("operator",),
            handler=offers.trusted,
            summary="Participants whose offers are trusted, wherever they come from",
        ),
        Endpoint(
            method="POST",
            path="/v1/trusted-providers",
            scopes=("operator",),
            handler=offers.trust,
            summary="Trust the offers of a participant that come in from now on",
            body=TrustRequest,
            status=201,
            errors=(400,),
        ),
        Endpoint(
            method="DELETE",
            path="/v1/trusted-providers/{participant}",
            scopes=("operator",),
            handler=offers.distrust,
            summary="Trust them no more, from the next time that they come in",
            errors=(404,),
        ),
    )
