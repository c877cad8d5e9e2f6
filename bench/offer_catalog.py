"""M3: the catalog of a buyer with 100,000 offers of others, and 10,000 that are fetched.

The questions are those of a search for a service, of a provider, and of the whole catalog; each
answers with 100 rows. The offers of the sync are signed, come in pages of 500 from a host that is a
function here, and are checked and written as those of a peer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anabranch.clock import SystemClock
from anabranch.market import OfferCatalog
from anabranch.market.catalog.admission import Admitting, Candidate
from anabranch.market.catalog.listing import CatalogFilter, filter_of
from anabranch.market.catalog.relays import relay_of
from anabranch.market.catalog.routes import Route
from anabranch.market.documents import sign
from anabranch.market.identities import SigningKey, is_signature, signed_bytes
from anabranch.market.node.api import Answer
from anabranch.modules.arca.catalog import CatalogPart
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.kit.host import Host
from anabranch.work.participants.performers import rfc3339
from bench.rows import Row

OFFERS, SERVICES, PROVIDERS = 100_000, 100, 500
QUESTIONS = 2_000
FETCHED, PAGE = 10_000, 500
QUERY_MS, SYNC_SECONDS = 10.0, 5.0
CHECKS = 2_000
DAY = 86_400_000


def _who(number: int) -> str:
    return f"who:{number % PROVIDERS}"


def _offer(number: int, key: SigningKey | None, now: int) -> dict[str, Any]:
    fields = {
        "schema/v": 1,
        "offer/id": f"offer:n{number:06}",
        "created-at": rfc3339(now - DAY),
        "published-at": rfc3339(now - DAY),
        "expires-at": rfc3339(now + DAY * (1 + number % 30)),
        "sequence/no": 1,
        "provider/node-id": key.identity("node") if key else f"node:{number % PROVIDERS}",
        "provider/participant-id": key.identity("participant") if key else _who(number),
        "service/type": f"text/service-{number % SERVICES}",
        "service/description": "a service that is described in a sentence of some length",
        "pricing/amount": number * 7919 % 1_000,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-item",
        "delivery/max-duration-sec": 60,
        "queue/auto-accept": True,
        "queue/max-depth": 4,
        "hybrid": False,
    }
    return sign("service-offer.v1", fields, key) if key else {**fields, "signature": {}}


def _filled(path: Path) -> OfferCatalog:
    """Rows as admissions write them; of offers that nobody has signed, which no query looks at."""
    catalog = OfferCatalog(path, max_rows=OFFERS)
    now, route = catalog.clock.now(), Route(source="node:s", origin="node:s", hops=0)
    candidates = [
        Candidate(offer=one, route=route, offer_id=one["offer/id"])
        for one in (_offer(number, None, now) for number in range(OFFERS))
    ]
    with catalog.file.change() as db:
        admitting = Admitting(
            db, now=now, limits=catalog.limits, known_peers={"node:s"}, trusted=()
        )  # fmt: skip
        admitting.all_of(candidates)
    assert catalog.counts()["observed"] == OFFERS
    return catalog


def _p99(ask: Callable[[int], object], clock: Callable[[], float] = time.perf_counter) -> float:
    taken = []
    for number in range(QUESTIONS):
        begin = clock()
        ask(number)
        taken.append(clock() - begin)
    return sorted(taken)[QUESTIONS * 99 // 100] * 1000


def _questions(folder: Path) -> list[Row]:
    catalog = _filled(folder / "offers.db")
    dice = random.Random(3)
    drawn = [dice.randrange(SERVICES) for _ in range(QUESTIONS)]
    rows = []
    with catalog.file.look() as db:
        sql = "SELECT body FROM offers WHERE rowid BETWEEN ? AND ? + 99"
        raw = _p99(lambda number: db.execute(sql, (number * 40, number * 40)).fetchall())
    asked: list[tuple[str, Callable[[int], CatalogFilter]]] = [
        ("a service", lambda number: filter_of({"service/type": f"text/service-{drawn[number]}"})),
        (
            "a provider",
            lambda number: filter_of({"provider/participant-id": _who(number)}),
        ),
        ("all", lambda _: CatalogFilter()),
    ]
    words = f"100 raw rows by their number: {raw:.2f} ms"
    for name, wanted in asked:
        assert len(catalog.rows(wanted(0))) == 100

        def ask(number: int, wanted: Callable[[int], CatalogFilter] = wanted) -> object:
            return catalog.rows(wanted(number))

        p99, busy = _p99(ask), _p99(ask, time.process_time)
        said = f"{words}; of the processor: {busy:.2f} ms"
        aim = f"≤ {QUERY_MS:g} ms"
        rows.append(Row(f"M3 query {name}, p99", p99, "ms", said, p99 / raw, aim, p99 <= QUERY_MS))
    catalog.close()
    return rows


class _Peer:
    """A host behind which one node has 10,000 offers."""

    def __init__(self, now: int) -> None:
        key = SigningKey.from_seed(b"m" * 32)
        self.node = key.identity("node")
        self.offers = [_offer(number, key, now) for number in range(FETCHED)]
        self._relays = [relay_of(one, self.node, now) for one in self.offers]

    async def __call__(self, _method: str, path: str, body: Any, _query: Mapping[str, str]) -> Any:
        match path.rpartition("/")[2]:
            case "offers.trust.query":
                found = {"node_id": "node:me", "participant_ids": [], "node_ids": body["node_ids"]}
            case "offers.local.query":
                found = {"local_offers": []}
            case "seed.directory.query":
                found = {"items": [{"node_id": self.node}]}
            case "peer.message.dispatch":
                found = {"targets": [{"status": "responded", "payload": self._page(body)}]}
            case _:
                found = {}
        return Answer(body=found)

    def _page(self, body: Mapping[str, Any]) -> dict[str, Any]:
        after = body["payload"]["filter"].get("after", "")
        begin = int(after[-6:]) + 1 if after else 0
        page = self._relays[begin : begin + PAGE]
        more = {"next": page[-1]["offer"]["offer/id"]} if begin + PAGE < FETCHED else {}
        return {"offers": page, **more}


async def _sync(folder: Path) -> list[Row]:
    clock = SystemClock()
    peer = _Peer(clock.now())
    catalog = OfferCatalog(folder / "synced.db", clock=clock, max_rows=FETCHED)
    config = ArcaConfig(peer_sync_offers_max=2 * FETCHED, peer_sync_again_ms=1)
    part = CatalogPart(host=Host(peer), catalog=catalog, clock=clock, config=config)
    rows = []
    for name in ("sync of 10,000 offers", "the same again"):
        begin, busy = time.perf_counter(), time.process_time()
        await part.refresh()
        seconds, busy = time.perf_counter() - begin, time.process_time() - busy
        assert catalog.counts()["observed"] == FETCHED
        checks, checks_busy = _signature_seconds(peer.offers[:CHECKS])
        words = (
            f"{FETCHED:,} checks of a signature alone: {checks:.2f} s; of the processor: "
            f"{busy:.2f} and {checks_busy:.2f} s"
        )
        aim, met = f"≤ {SYNC_SECONDS:g} s", seconds <= SYNC_SECONDS
        rows.append(Row(f"M3 {name}", seconds, "s", words, busy / checks_busy, aim, met))
    catalog.close()
    return rows


def _signature_seconds(offers: list[dict[str, Any]]) -> tuple[float, float]:
    """As many as are fetched, on the wall and of the processor."""
    signer = offers[0]["provider/participant-id"]
    prepared = [(one["signature"], signed_bytes(one)) for one in offers]
    begin, busy = time.perf_counter(), time.process_time()
    assert all(is_signature(signature, data, signer) for signature, data in prepared)
    more = FETCHED / len(offers)
    return (time.perf_counter() - begin) * more, (time.process_time() - busy) * more


async def m3(folder: Path) -> list[Row]:
    """Questions to a large catalog, and a large sync."""
    return [*_questions(folder), *await _sync(folder)]
