"""Admitting a request: once for its id and its order, before anything follows from it.

The same request again is `already-present`; another one under its id, or another request for its
order, is rejected. A queue that is full says `retryable` where the work goes on by itself, and
`rejected` where an operator decides, which may take long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anabranch.clock import Clock
from anabranch.market.documents.shapes import moment
from anabranch.market.node.door import Door, weigh_artifact
from anabranch.modules.dator.book import Book
from anabranch.modules.dator.config import DatorConfig, OfferConfig
from anabranch.modules.dator.offers import Offers
from anabranch.modules.dator.requests import (
    SKEW_MS,
    Arrived,
    Request,
    Unacceptable,
    read_arrived,
    require_timely,
)
from anabranch.modules.kit.host import HostRefused, HostUnavailable

RESERVED = 4  # one of so many places is for buyers whom the host trusts


class Admission:
    """`begin` is told of every request that was admitted."""

    def __init__(
        self,
        *,
        book: Book,
        offers: Offers,
        clock: Clock,
        config: DatorConfig,
        begin: Callable[[Request], None],
    ) -> None:
        self._book = book
        self._offers = offers
        self._clock = clock
        self._config = config
        self._begin = begin
        self._door = Door()

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, Any]:
        try:
            read = partial(read_arrived, invoke, self._config)
            arrived = await self._door.read(read, _weight_of(invoke))
            if (known := self._book.get(arrived.key)) is not None:
                return _again(arrived, known.digest)
            if self._book.is_arriving(arrived.key) or self._book.is_arriving(arrived.order_key):
                return _said("retryable", "being-admitted")
            # Two requests for one order are decided about one after the other, too.
            with self._book.arriving(arrived.key), self._book.arriving(arrived.order_key):
                return await self._admit(arrived)
        except Unacceptable as error:
            return _said("rejected", error.code)
        except (HostUnavailable, HostRefused) as error:
            return _said("retryable", error.code)

    async def _admit(self, arrived: Arrived) -> dict[str, Any]:
        done = await self._book.done(arrived.key)
        if done is not None:
            return _again(arrived, done["digest"])
        owner = await self._book.request_of_order(arrived.order_key)
        if owner not in (None, arrived.key):
            raise Unacceptable("the order came with another request", code="order-conflict")
        if owner is not None and (found := await self._book.unheard(arrived.key)) is not None:
            return self._go_on(arrived, found)
        now = self._clock.now()
        require_timely(arrived, now, self._config.remember_sec * 1000)
        offer = self._offers.terms(arrived.order, now)
        request = _request(arrived, offer, now)
        if not request.fits_a_record:
            raise Unacceptable("no record can hold the request", code="request-too-large")
        if full := self._fullness(offer, request, trusted=arrived.trusted):
            return full
        self._book.take_place(request.key, request.offer_id, request.buyer)  # before others come
        if owner is None:
            await self._book.claim(arrived.order_key, arrived.key)
        self._begin(await self._book.put(request))
        return _said("accepted", "")

    def _go_on(self, arrived: Arrived, found: Request) -> dict[str, Any]:
        """The host kept the record of a request, and its answer was lost: it has its place."""
        if found.digest != arrived.digest:
            return _again(arrived, found.digest)
        self._begin(self._book.remember(found))
        return _said("accepted", "")

    def _fullness(
        self, offer: OfferConfig, request: Request, *, trusted: bool
    ) -> dict[str, Any] | None:
        """How a request is put off for which there is no room. Anyone can make keys: a quarter of
        the places is for buyers whom the host trusts."""
        of_buyer = self._book.of_buyer(request.buyer)
        most = _share(self._config.max_open, trusted=trusted)
        if len(self._book) >= most or of_buyer >= self._config.max_of_a_buyer:
            return _said("retryable", "dator-full")
        if self._book.depth(request.offer_id) >= _share(offer.queue_max_depth, trusted=trusted):
            status = "retryable" if offer.queue_auto_accept else "rejected"
            return _said(status, "queue-saturated")
        return None


def _weight_of(invoke: Mapping[str, Any]) -> int:
    artifact = invoke.get("artifact")
    return weigh_artifact(artifact.get("bytes/base64") if isinstance(artifact, Mapping) else "")


def _request(arrived: Arrived, offer: OfferConfig, now: int) -> Request:
    document, order = arrived.document, arrived.order
    return Request(
        key=arrived.key,
        request_id=document["request_id"],
        order_id=order["order/id"],
        buyer=order["buyer/node-id"],
        digest=arrived.digest,
        offer_id=order["offer/id"],
        service_type=document["service_type"],
        dispatch=offer.dispatch,
        run_id=document["workflow/run-id"],
        phase_id=document["workflow/phase-id"],
        stages=arrived.stages,
        state="admitted" if offer.queue_auto_accept else "waiting",
        admitted_at=now,
        # An honest order has no later deadline than its offer gives, but for the clock.
        deadline=min(
            moment(document["delivery_deadline"]) or 0,
            now + offer.delivery_max_duration_sec * 1000 + SKEW_MS,
        ),
        document=document,
    )


def _share(most: int, *, trusted: bool) -> int:
    return most if trusted else most - most // RESERVED


def _again(arrived: Arrived, digest: str) -> dict[str, Any]:
    if digest != arrived.digest:
        raise Unacceptable("another request came under this id", code="request-conflict")
    return _said("already-present", "")


def _said(status: str, reason: str) -> dict[str, Any]:
    return {"status": status, **({"reason": reason} if reason else {})}
