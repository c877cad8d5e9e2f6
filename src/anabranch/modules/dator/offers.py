"""Offers: those of the configuration and of the participant, published and kept true.

The host signs and keeps them; this part says what they are. An offer is published again when it
says something else, when its time runs out, and now and then when its queue has changed; one that
is no longer wanted is withdrawn. `dator-offer` records what was published under which numbers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.market.documents.shapes import moment
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ids import derived
from anabranch.modules.dator.config import OFFERS_MAX, DatorConfig, OfferConfig
from anabranch.modules.dator.drafts import content_of, is_same, offer_id_of
from anabranch.modules.dator.pushes import Pushes
from anabranch.modules.dator.requests import SKEW_MS, Unacceptable
from anabranch.modules.dator.tasks import RETRY_FIRST, RETRY_MAX
from anabranch.modules.dator.versions import KeptOffer, Origin, Version, terms_of
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable, quoted
from anabranch.work.participants.performers import rfc3339

logger = logging.getLogger("anabranch.module")

RECORDS = "dator-offer"
FORGET_SECONDS = 86_400  # after which offers that were withdrawn are not shown any more
CHECK_SECONDS = 600.0  # between two looks at what the host has
TURN_SECONDS = 0.1  # at least, between two looks at what is due
STALE_TRIES = 3


class Offers:
    """`depth` says how many orders an offer has waiting."""

    def __init__(
        self,
        *,
        host: Host,
        clock: Clock,
        config: DatorConfig,
        pushes: Pushes,
        depth: Callable[[str], int],
    ) -> None:
        self._host = host
        self._clock = clock
        self._config = config
        self._pushes = pushes
        self._depth = depth
        self.node_id = ""
        self._kept: dict[str, KeptOffer] = {}
        self._published: dict[str, Mapping[str, Any]] = {}  # as the host has them
        self._looked_at: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()

    # -- what others ask ---------------------------------------------------------------------

    def terms(self, order: Mapping[str, Any], now: int) -> OfferConfig:
        """What an order was promised. Raises `Unacceptable`."""
        kept = self._kept.get(order["offer/id"])
        published = self._published.get(order["offer/id"])
        if kept is None or published is None:
            raise Unacceptable("this node has no such offer", code="offer-not-found")
        grace_ms = self._config.superseded_grace_sec * 1000
        return terms_of(kept, published, order, now, grace_ms)

    def depth_changed(self) -> None:
        self._wake.set()

    def service_types(self) -> list[str]:
        return sorted({offer.service_type for offer, _ in self._wanted().values()})

    def views(self) -> list[dict[str, Any]]:
        wanted = self._wanted()
        return [
            self._view(name) if name in self._kept else self._pending(name, *wanted[name])
            for name in sorted({*self._kept, *wanted})
        ]

    def _view(self, name: str) -> dict[str, Any]:
        kept, published = self._kept[name], self._published.get(name)
        if kept.offer is not None and published is None and name not in self._problems:
            return self._pending(name, kept.offer, kept.origin)
        shown: dict[str, Any] = {
            "offer/id": name,
            "origin": kept.origin,
            "status": "withdrawn" if kept.offer is None else "published",
            "depth": self._depth(name),
            "offer": published,
        }
        if kept.offer is not None:
            shown["role"] = kept.offer.dispatch.capability_id
        if name in self._problems:
            shown |= {"status": "refused", "problem": self._problems[name]}
        return shown

    def _pending(self, name: str, offer: OfferConfig, origin: str) -> dict[str, Any]:
        """One that is published as soon as the host takes it, or why it is not."""
        shown = {
            "offer/id": name,
            "origin": origin,
            "status": "pending",
            "depth": self._depth(name),
            "offer": None,
            "role": offer.dispatch.capability_id,
        }
        refused = {"status": "refused", "problem": self._problems.get(name, "")}
        return shown | refused if name in self._problems else shown

    # -- the loop ----------------------------------------------------------------------------

    async def load(self) -> None:
        """What was published before. Raises `HostUnavailable`."""
        rows = await self._host.records(RECORDS)
        found = [msgspec.convert(row["payload"], KeptOffer) for row in rows]
        self._kept = {one.offer_id: one for one in found}

    async def run(self) -> None:
        """Keep the offers true, until it is cancelled."""
        retry = RETRY_FIRST
        while True:
            try:
                seconds = await self.settle()
                retry = RETRY_FIRST
            except HostUnavailable as error:
                logger.info("offers are published later: %s", error.message)
                seconds, retry = retry, min(retry * 2, RETRY_MAX)
            await asyncio.sleep(TURN_SECONDS)  # however often the queue changes
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            self._wake.clear()

    async def settle(self) -> float:
        """Publish and withdraw what is due; how many seconds later to look again."""
        async with self._lock:
            wanted = self._wanted()
            due = [await self._ensure(name, *offered) for name, offered in wanted.items()]
            for name, kept in list(self._kept.items()):
                if name not in wanted:
                    ended = self._forget if kept.offer is None else self._withdraw
                    await self._guarded(name, ended(kept))
            return min([CHECK_SECONDS, *due])

    def _is_long_gone(self, kept: KeptOffer) -> bool:
        """Whether no order from it could be taken any more."""
        seconds = max(self._config.superseded_grace_sec, FORGET_SECONDS)
        return self._clock.now() > kept.versions[-1].at + seconds * 1000

    def _configured(self) -> dict[str, OfferConfig]:
        return {offer_id_of(one, self.node_id): one for one in self._config.offers}

    def _wanted(self) -> dict[str, tuple[OfferConfig, Origin]]:
        wanted: dict[str, tuple[OfferConfig, Origin]] = {
            name: (offer, "config") for name, offer in self._configured().items()
        }
        for name, kept in self._kept.items():
            if kept.origin == "participant" and kept.offer is not None:
                wanted.setdefault(name, (kept.offer, "participant"))
        return wanted

    async def _ensure(self, name: str, offer: OfferConfig, origin: Origin) -> float:
        """One offer; how many seconds later it is due again."""
        now = self._clock.now()
        is_ahead = False
        if self._must_look(name, now):
            if not await self._guarded(name, self._look(name)):
                self._looked_at[name] = now
                return CHECK_SECONDS
            self._problems.pop(name, None)
            is_ahead = self._is_ahead(name, now)
        elif name in self._problems:
            return CHECK_SECONDS
        wait = self._wait(name, offer, origin, self._clock.now())
        if wait > 0 and not is_ahead:
            return wait
        if not await self._guarded(name, self._publish(name, offer, origin)):
            return CHECK_SECONDS
        return self._wait(name, offer, origin, self._clock.now())

    def _must_look(self, name: str, now: int) -> bool:
        """Now and then, and where the clock was set back."""
        looked_at = self._looked_at.get(name)
        return looked_at is None or not 0 <= now - looked_at < CHECK_SECONDS * 1000

    def _is_ahead(self, name: str, now: int) -> bool:
        """Whether the offer is from a clock that was set back since: nobody takes it before."""
        published = self._published.get(name)
        return published is not None and (moment(published["published-at"]) or 0) > now + SKEW_MS

    def _wait(self, name: str, offer: OfferConfig, origin: Origin, now: int) -> float:
        """Seconds until this offer must be published again; 0 where it is due."""
        kept, published = self._kept.get(name), self._published.get(name)
        if kept is None or (kept.offer, kept.origin) != (offer, origin) or published is None:
            return 0
        if not is_same(content_of(offer, self.node_id), published):
            return 0
        begun, ends = moment(published["published-at"]) or 0, moment(published["expires-at"]) or 0
        due = [ends - (ends - begun) // 3]
        if published.get("queue/current-depth", 0) != self._depth(name):
            due.append(begun + int(self._config.depth_interval_sec * 1000))
        return max(0.0, (min(due) - now) / 1000)

    async def _look(self, name: str) -> None:
        """What the host has under this id; the offers of others are none of ours."""
        row = await self._host.find(f"/v1/service-offers/{quoted(name)}")
        self._looked_at[name] = self._clock.now()
        if row is not None and row.get("source") == "local":
            self._published[name] = row["offer"]
        else:
            self._published.pop(name, None)

    async def _guarded(self, name: str, work: Any) -> bool:
        """What the host refuses is told to the operator, and tried again much later."""
        try:
            await work
        except HostRefused as error:
            logger.warning("%s is refused: %s", name, error.message)
            if self._problems.get(name) != error.message:
                self._problems[name] = error.message
                await self._tell_refused(name, error)
            return False
        return True

    async def _tell_refused(self, name: str, error: HostRefused) -> None:
        title, key = (
            f"The offer {name[:120]} is refused",
            derived("offer-refused", name, error.code),
        )
        try:
            await self._host.notify("error", title, error.message, key=key)
        except HostRefused as refused:
            logger.warning("the operator was not told: %s", refused.message)

    # -- one offer -----------------------------------------------------------------------------

    async def _publish(self, name: str, offer: OfferConfig, origin: Origin) -> Mapping[str, Any]:
        for _ in range(STALE_TRIES):
            before = self._published.get(name)
            number = int(before["sequence/no"]) + 1 if before else 1
            await self._keep(name, offer, number, origin)
            try:
                found = await self._host.ask(
                    "POST", "/v1/service-offers", self._draft(name, number)
                )
            except HostRefused as error:
                if error.code != "stale-sequence":
                    raise
                await self._look(name)
                continue
            published: Mapping[str, Any] = found.body["offer"]
            self._published[name] = published
            self._problems.pop(name, None)
            if before is None or not is_same(content_of(offer, self.node_id), before):
                self._pushes.push([published])
            return published
        raise HostUnavailable(f"{name} is published by others, too", code="offer_contested")

    async def _keep(
        self, name: str, offer: OfferConfig | None, number: int, origin: Origin
    ) -> None:
        """Write down what is published under this number, before it is."""
        before = self._kept.get(name) or KeptOffer(offer_id=name, origin=origin)
        kept = msgspec.structs.replace(before, origin=origin)
        last = kept.versions[-1] if kept.versions else None
        if last is None or last.offer != offer or last.sequence > number:
            version = Version(sequence=number, at=self._clock.now(), offer=offer)
            kept = kept.followed_by(version)
        if kept != before:
            await self._host.put_record(RECORDS, name, msgspec.to_builtins(kept))
        self._kept[name] = kept

    def _draft(self, name: str, number: int) -> dict[str, Any]:
        offer = self._kept[name].offer
        assert offer is not None
        draft = {
            **content_of(offer, self.node_id),
            "offer/id": name,
            "sequence/no": number,
            "queue/current-depth": self._depth(name),
        }
        if self._config.offer_valid_sec is not None:
            ends = self._clock.now() + self._config.offer_valid_sec * 1000
            draft["expires-at"] = rfc3339(ends)
        return draft

    async def _withdraw(self, kept: KeptOffer) -> Mapping[str, Any] | None:
        """A version of its own, unless it has expired meanwhile."""
        name = kept.offer_id
        await self._look(name)
        found = None
        if name in self._published:
            try:
                path = f"/v1/service-offers/{quoted(name)}/withdraw"
                found = (await self._host.ask("POST", path)).body["offer"]
                self._published[name] = found
            except HostRefused as error:
                if error.code not in ("offer-expired", "offer-not-found"):
                    raise
        last = kept.versions[-1].sequence + 1
        await self._keep(name, None, int(found["sequence/no"]) if found else last, kept.origin)
        self._problems.pop(name, None)
        if found is not None:
            self._pushes.push([found])
        return found

    async def _forget(self, kept: KeptOffer) -> None:
        """A withdrawn offer takes no room for ever."""
        if not self._is_long_gone(kept):
            return
        await self._host.delete_record(RECORDS, kept.offer_id)
        for known in (self._kept, self._published, self._looked_at, self._problems):
            known.pop(kept.offer_id, None)

    # -- offers of the participant -------------------------------------------------------------

    async def add(self, offer: OfferConfig) -> dict[str, Any]:
        """Publish an offer that is not in the configuration. Raises `NodeError`."""
        name = offer_id_of(offer, self.node_id)
        async with self._lock:
            before = self._kept.get(name)
            if name in self._configured():
                raise NodeError(409, "offer-configured", f"{name} is in the configuration")
            offered = sum(one.offer is not None for one in self._kept.values())
            if (before is None or before.offer is None) and offered >= OFFERS_MAX:
                raise NodeError(409, "catalog-full", f"there are {OFFERS_MAX} offers already")
            await self._look(name)
            if self._wait(name, offer, "participant", self._clock.now()) > 0:
                return {"status": "unchanged", "offer": self._published[name]}
            try:
                published = await self._publish(name, offer, "participant")
            except HostRefused as error:
                await self._put_back(name, before)
                raise NodeError(error.status, error.code, error.message) from None
            return {"status": "stored", "offer": published}

    async def _put_back(self, name: str, before: KeptOffer | None) -> None:
        if before is None:
            self._kept.pop(name, None)
            await self._host.delete_record(RECORDS, name)
        else:
            self._kept[name] = before
            await self._host.put_record(RECORDS, name, msgspec.to_builtins(before))

    async def remove(self, name: str) -> dict[str, Any]:
        """Withdraw an offer that was added. Raises `NodeError`."""
        async with self._lock:
            kept = self._kept.get(name)
            if kept is None:
                said = f"no offer {name[:200]!r} was published here"
                raise NodeError(404, "offer-not-found", said)
            if name in self._configured():
                said = f"{name} is in the configuration; remove it there"
                raise NodeError(409, "offer-configured", said)
            if kept.offer is None:
                return {"status": "unchanged", "offer": self._published.get(name)}
            try:
                return {"status": "withdrawn", "offer": await self._withdraw(kept)}
            except HostRefused as error:
                raise NodeError(error.status, error.code, error.message) from None
