"""What people ask Dator, at its port and as local routes of its node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from anabranch.clock import Clock
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.modules.dator.book import Book
from anabranch.modules.dator.config import offer_of
from anabranch.modules.dator.offers import Offers
from anabranch.modules.dator.pushes import Pushes
from anabranch.modules.dator.requests import Request
from anabranch.modules.dator.tasks import Tasks
from anabranch.modules.dator.work import Work
from anabranch.work.participants.performers import rfc3339

ENDED_SHOWN = 50
INPUT_SHOWN = 4096  # bytes of an input in a list; hundreds of requests may be open
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class Decide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request: _Text
    reason: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class WithdrawOffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    offer_id: _Text


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: dict[str, Any] = {}
    push: bool = False  # also send it to all who follow the offers


class Routes:
    def __init__(
        self,
        *,
        clock: Clock,
        offers: Offers,
        pushes: Pushes,
        book: Book,
        work: Work,
        tasks: Tasks,
    ) -> None:
        self._clock = clock
        self._offers = offers
        self._pushes = pushes
        self._book = book
        self._work = work
        self._tasks = tasks

    def local_routes(self) -> list[str]:
        return [f"{one.method} {one.path.removeprefix('/v1/')}" for one in self.endpoints()]

    def endpoints(self) -> Sequence[Endpoint]:
        rows: list[tuple[str, str, Any, str, Any, tuple[int, ...]]] = [
            ("GET", "dator/offers", self._list_offers, "Offers of this module", None, ()),
            ("GET", "dator/queue", self._list_queue,
             "Requests: those that are open, and the last ones that have ended", None, (503,)),
            ("GET", "dator/requests/{request}", self._show,
             "One open request, with its whole input", None, (404, 409)),
            ("POST", "dator/queue/accept", self._accept,
             "Take an order that waits for a decision", Decide, (404, 409, 503)),
            ("POST", "dator/queue/reject", self._reject,
             "Reject an order that waits for a decision", Decide, (404, 409, 503)),
            ("POST", "participant/service-offers", self._publish,
             "Publish an offer that is not in the configuration", dict[str, Any], (400, 409, 503)),
            ("POST", "participant/service-offers/withdraw", self._withdraw,
             "Withdraw such an offer", WithdrawOffer, (404, 409, 503)),
            ("POST", "offers/snapshot", self._snapshot,
             "All offers of this node as relays", Snapshot | None, (400, 503)),
        ]  # fmt: skip
        return [
            Endpoint(
                method=method,
                path=f"/v1/{path}",
                scopes=("operator",),
                handler=handler,
                summary=summary,
                body=body,
                errors=errors,
            )
            for method, path, handler, summary, body, errors in rows
        ]

    async def _list_offers(self, _call: Call) -> Answer:
        return Answer(body={"items": self._offers.views()})

    async def _list_queue(self, _call: Call) -> Answer:
        ended = await self._book.ended(ENDED_SHOWN)
        items = [one.view(INPUT_SHOWN) for one in self._book]
        return Answer(body={"items": items, "ended": ended})

    async def _show(self, call: Call) -> Answer:
        return Answer(body=self._found(call.params["request"]).view())

    async def _accept(self, call: Call) -> Answer:
        return await self._decide(call, accept=True)

    async def _reject(self, call: Call) -> Answer:
        return await self._decide(call, accept=False)

    async def _decide(self, call: Call, *, accept: bool) -> Answer:
        wanted = msgspec.convert(call.body, Decide)
        key = self._found(wanted.request).key
        decided = self._work.decide(
            key, accept=accept, actor=call.caller.actor or "operator", reason=wanted.reason
        )
        return Answer(body=(await self._tasks.to_the_end(decided)).view())

    def _found(self, name: str) -> Request:
        found = self._book.named(name)
        if len(found) > 1:
            said = f"{len(found)} requests have the id {name[:200]!r}: name one by its own id"
            raise NodeError(409, "ambiguous_request", said)
        if not found:
            raise NodeError(404, "unknown_request", f"no open request is {name[:200]!r}")
        return found[0]

    async def _publish(self, call: Call) -> Answer:
        found = await self._tasks.to_the_end(self._offers.add(offer_of(call.body)))
        return Answer(status=201 if found["status"] == "stored" else 200, body=found)

    async def _withdraw(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, WithdrawOffer)
        return Answer(body=await self._tasks.to_the_end(self._offers.remove(wanted.offer_id)))

    async def _snapshot(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body or {}, Snapshot)
        relays = await self._pushes.relays(wanted.filter)
        body: dict[str, Any] = {
            "node_id": self._pushes.node_id,
            "taken_at": rfc3339(self._clock.now()),
            "offers": relays,
        }
        if wanted.push:
            body["pushed"] = await self._pushes.send(relays)
        return Answer(body=body)
