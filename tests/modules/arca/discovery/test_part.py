"""The catalog of Arca with a host that tests decide about: hostile answers, floods, and what hosted
runs find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from anabranch.clock import ManualClock
from anabranch.errors import InputError
from anabranch.market import OfferCatalog
from anabranch.market.identities import SigningKey
from anabranch.market.node.api import Answer
from anabranch.market.node.errors import NodeError
from anabranch.modules.arca.catalog import CatalogPart
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.discovery.admitter import (
    OF_A_PEER_MAX,
    RESERVED,
    WAITING_MAX,
    Admitter,
)
from anabranch.modules.arca.discovery.peers import (
    CAPABILITIES,
    PEERS_MAX,
    STRANGERS_SECONDS,
    PeerCatalogs,
)
from anabranch.modules.arca.discovery.remote_query import RemoteQueryBody
from anabranch.modules.kit.host import Host, HostUnavailable
from anabranch.modules.kit.http_host import CALLS_MAX
from anabranch.modules.kit.module import PeerMessage
from hangs import HANG_SECONDS
from market.node.offers.support import (
    ME,
    OTHER,
    PEER,
    START,
    STRANGER,
    numbered,
    offer,
    relay,
)
from virtual import run_virtually

KNOWN = {PEER.node_id, OTHER.node_id}


class FakeHost:
    """Knows two nodes, trusts nobody; what peers answer is set by tests."""

    def __init__(self) -> None:
        self.local: list[dict[str, Any]] = []
        self.peer: Callable[[Mapping[str, Any]], Any] = lambda _request: None
        self.asked: list[str] = []
        both: list[dict[str, Any]] = [{"node_id": PEER.node_id}, {"node_id": ME.node_id}]
        self.holders = {"offer-catalog": both}
        self.is_away = False
        self.wait = asyncio.Event()
        self.wait.set()

    async def __call__(
        self, _method: str, path: str, body: Any, _query: Mapping[str, str]
    ) -> Answer:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if self.is_away:
            raise HostUnavailable("it is away")
        await self.wait.wait()
        match name:
            case "offers.trust.query":
                known = [one for one in body["node_ids"] if one in KNOWN]
                return Answer(
                    body={"node_id": ME.node_id, "participant_ids": [], "node_ids": known}
                )
            case "offers.local.query":
                rows = [
                    {"offer": one, "source_node_id": ME.node_id, "queue": {"saturated": False}}
                    for one in self.local
                ]
                return Answer(body={"local_offers": rows})
            case "seed.directory.query":
                items = self.holders.get(body["query"]["capability_id"], [])
                return Answer(body={"items": items})
            case "peer.session.establish":
                return Answer(body={"status": "established", "session_id": "session:1"})
        outcome = {"node_id": PEER.node_id, "status": "responded"}
        return Answer(body={"targets": [{**outcome, "payload": self.peer(body["payload"])}]})


class Desk:
    def __init__(self, **config: Any) -> None:
        self.host = FakeHost()
        self.clock = ManualClock(START)
        self.catalog = OfferCatalog(clock=self.clock, max_rows=100_000)
        self.part = CatalogPart(
            host=Host(self.host),
            catalog=self.catalog,
            clock=self.clock,
            config=ArcaConfig(**config),
        )

    def push(self, payload: Any, source: str = PEER.node_id) -> Any:
        message = PeerMessage("offer-catalog.push", payload, "c1", source)
        return asyncio.run(self.part.received(message))["patch"]

    def source(self) -> Mapping[str, Any]:
        (found,) = self.catalog.facts.sources()
        return found


# -- who is asked ----------------------------------------------------------------------------


def test_those_that_the_host_trusts_are_asked_whatever_strangers_there_are() -> None:
    desk = Desk()
    strangers = [{"node_id": f"node:{number}", "trusted": False} for number in range(PEERS_MAX)]
    desk.host.holders = {
        CAPABILITIES[0]: [{"node_id": PEER.node_id, "trusted": True}, *strangers],
        CAPABILITIES[-1]: [{"node_id": OTHER.node_id, "trusted": True}],
    }
    catalogs = PeerCatalogs(
        host=Host(desk.host),
        admitter=Admitter(Host(desk.host), desk.catalog),
        catalog=desk.catalog,
        clock=desk.clock,
        settings=ArcaConfig(),
    )
    known = asyncio.run(catalogs.known())
    assert known[:3] == [PEER.node_id, OTHER.node_id, "node:0"]
    assert len(known) == PEERS_MAX


def test_strangers_who_answer_late_hold_up_no_round_and_all_have_their_turn() -> None:
    """A thousand of them made a round, and the step that waited for it, take hours."""

    class Late(FakeHost):
        async def __call__(
            self, method: str, path: str, body: Any, query: Mapping[str, str]
        ) -> Answer:
            if path.endswith("peer.message.dispatch"):
                named = body["destination"]["node_id"]
                await asyncio.sleep(0 if named == PEER.node_id else 9)
            return await super().__call__(method, path, body, query)

    host = Late()
    strangers: list[dict[str, Any]] = [{"node_id": f"node:{n}"} for n in range(300)]
    host.holders = {CAPABILITIES[0]: [{"node_id": PEER.node_id, "trusted": True}, *strangers]}
    host.peer = lambda request: {"query_id": request["query_id"], "offers": []}
    catalog = OfferCatalog(clock=ManualClock(START))
    catalogs = PeerCatalogs(
        host=Host(host), admitter=Admitter(Host(host), catalog), catalog=catalog,
        clock=ManualClock(START), settings=ArcaConfig(),
    )  # fmt: skip

    async def scenario() -> None:
        loop, asked = asyncio.get_running_loop(), set[str]()
        for _ in range(4):
            begun = loop.time()
            found = await catalogs.sync()
            assert loop.time() - begun < STRANGERS_SECONDS + 60
            assert found.pop(PEER.node_id) == "ok"
            asked |= found.keys()
        assert len(asked) == len(strangers)

    run_virtually(scenario())


# -- answers of peers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "peer_answer"),
        ([], "peer_answer"),
        ({"query_id": "another"}, "peer_answer"),
        ({"error": {"code": "busy"}}, "peer_answer"),
        ({"offers": {}}, "schema"),
        ({"offers": [{}] * 501}, "too_many_offers"),
    ],
)
def test_an_answer_that_is_none_is_told_and_changes_nothing(payload: Any, reason: str) -> None:
    desk = Desk()
    desk.host.peer = lambda _request: payload
    asyncio.run(desk.part.refresh())
    assert desk.source()["status"] == "failed"
    assert desk.source()["reason"].startswith(f"{reason}:")
    assert desk.catalog.counts() == {"local": 0, "observed": 0, "hidden": 0}


def test_a_peer_whose_pages_lead_nowhere_is_left() -> None:
    desk, requests = Desk(), []

    def answer(request: Mapping[str, Any]) -> Any:
        requests.append(request["filter"])
        return {"offers": [relay()], "next": "offer:summaries"}

    desk.host.peer = answer
    asyncio.run(desk.part.refresh())
    assert [one.get("after") for one in requests] == [None, "offer:summaries"]
    assert desk.source()["status"] == "ok"


def test_an_older_peer_is_never_asked_for_a_page() -> None:
    desk, requests = Desk(), []

    def answer(request: Mapping[str, Any]) -> Any:
        requests.append(request["filter"])
        return {"offers": [relay()]}

    desk.host.peer = answer
    asyncio.run(desk.part.refresh())
    assert [set(one) for one in requests] == [{"active_only", "limit"}]


def test_what_has_expired_on_the_way_is_no_complaint() -> None:
    desk = Desk()
    gone = {**offer(), "expires-at": "2026-06-09T00:00:00Z"}
    desk.host.peer = lambda _request: {"offers": [relay(gone), relay()]}
    asyncio.run(desk.part.refresh())
    assert (desk.source()["stored"], desk.source()["rejected"]) == (1, 0)
    assert desk.catalog.facts.diagnostics() == []


# -- floods ----------------------------------------------------------------------------------


def test_a_message_with_too_many_offers_is_refused_before_anything_is_looked_at() -> None:
    desk = Desk()
    answer = desk.push({"offers": [relay()] * 50_000})
    assert answer["status"] == "refused"
    assert answer["error"]["code"] == "too_many_offers"
    assert desk.host.asked == []
    assert desk.catalog.counts() == {"local": 0, "observed": 0, "hidden": 0}


def test_messages_that_come_faster_than_they_are_admitted_are_refused() -> None:
    async def scenario() -> None:
        host = FakeHost()
        admitter = Admitter(Host(host), OfferCatalog(clock=ManualClock(START)))
        host.wait.clear()
        taken = [
            asyncio.ensure_future(admitter.unasked([relay()], PEER.node_id))
            for _ in range(OF_A_PEER_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(InputError) as caught:
            await admitter.unasked([relay()], PEER.node_id)
        assert caught.value.code == "busy"
        host.wait.set()
        statuses = [found[0].status for found in await asyncio.gather(*taken)]
        assert statuses == ["stored", *["stale"] * (OF_A_PEER_MAX - 1)]

    asyncio.run(scenario())


@pytest.mark.parametrize("payload", [None, 7, "x", [], {}, {"offers": []}, {"other": 1}])
def test_a_message_without_offers_changes_nothing(payload: Any) -> None:
    desk = Desk()
    assert desk.push(payload)["counts"] == {"stored": 0, "stale": 0, "rejected": 0}


def test_a_host_that_is_away_is_told_to_the_peer() -> None:
    desk = Desk()
    desk.host.is_away = True
    assert desk.push(relay())["error"]["code"] == "host_unavailable"
    assert desk.catalog.counts()["hidden"] == 0


# -- what hosted runs find -------------------------------------------------------------------


def test_offers_are_found_the_cheapest_first_and_by_dotted_keys() -> None:
    desk = Desk()
    nested = {"constraints/input": {"language": "en"}}
    for keys, name, more in (
        (PEER, "b", {"pricing/amount": 3, **nested}),
        (PEER, "a", {"pricing/amount": 3}),
        (OTHER, "c", {"pricing/amount": 1, "service/type": "text/translate"}),
        (STRANGER, "unseen", {"pricing/amount": 0}),
    ):
        document = offer(keys, **{"offer/id": f"offer:{name}", **more})
        answer = desk.push(relay(document, keys), keys.node_id)
        assert answer["counts"]["stored"] == 1
    own = offer(ME, **{"offer/id": "offer:own", "pricing/amount": 9})
    desk.host.local = [own]
    asyncio.run(desk.part.refresh())

    def found(**wanted: Any) -> str:
        rows = desk.part.offers(**{"service_type": "", **wanted})
        return " ".join(one["offer/id"].removeprefix("offer:") for one in rows)

    assert found() == "c a b own"
    assert found(service_type="text/summarise") == "a b own"
    assert found(provider=OTHER.participant_id) == "c"
    assert found(filter={"service_type": "text/translate"}) == "c"
    assert found(filter={"constraints/input.language": "en"}) == "b"
    assert found(filter={"pricing/amount": 3, "provider/participant-id": "x"}) == ""
    assert desk.part.offer("offer:own") == own
    assert desk.part.offer("offer:unseen") is None


def test_a_refresh_raises_nothing_and_asks_peers_no_more_than_allowed() -> None:
    desk = Desk(peer_sync_again_ms=1_000)
    desk.host.peer = lambda _request: {"offers": []}
    desk.host.is_away = True
    asyncio.run(desk.part.refresh())
    desk.host.is_away = False
    for _ in range(3):
        asyncio.run(desk.part.refresh())
    assert desk.host.asked.count("peer.message.dispatch") == 1
    desk.clock.advance_to(START + 1_000)
    asyncio.run(desk.part.refresh())
    assert desk.host.asked.count("peer.message.dispatch") == 2


# -- peers that want to do harm --------------------------------------------------------------

UNNAMED: list[Any] = [
    {"relay/origin-node-id": []},
    {"relay/origin-node-id": {"a": 1}, "offer": {"provider/participant-id": []}},
    {"offer": {"provider/participant-id": {}, "offer/id": []}},
]


def test_parties_that_are_no_names_are_rejected_with_their_relay() -> None:
    desk = Desk()
    assert desk.push({"offers": [*UNNAMED, relay()]})["counts"] == {
        "stored": 1,
        "stale": 0,
        "rejected": 3,
    }


def test_a_peer_that_always_has_one_more_page_is_left() -> None:
    """Whatever it has on its pages: nothing, something wrong, or the same again."""
    contents: list[list[Any]] = [[], [{}], [relay()]]
    for offers in contents:
        desk, numbers = Desk(peer_sync_offers_max=1000), iter(range(1000))

        def answer(_request: Any, offers: Any = offers, numbers: Any = numbers) -> Any:
            return {"offers": offers, "next": f"offer:{next(numbers):09}"}

        desk.host.peer = answer
        asyncio.run(desk.part.refresh())
        assert desk.source()["status"] == "partial"
        assert "pages" in desk.source()["reason"]


def test_a_peer_that_takes_its_time_for_every_page_is_left() -> None:
    desk, pages = Desk(peer_sync_timeout_ms=1000), []

    def answer(_request: Any) -> Any:
        pages.append(1)
        desk.clock.advance_to(desk.clock.now() + 900)
        name = f"offer:{len(pages):09}"
        return {"offers": [relay(numbered(PEER, name, 1))], "next": name}

    desk.host.peer = answer
    asyncio.run(desk.part.refresh())
    assert desk.source()["status"] == "partial"
    assert len(pages) < 20


@pytest.mark.parametrize("following", ["x" * 1000, ["offer:a"], {"offer": "a"}, 7])
def test_what_is_no_place_in_a_list_is_not_asked_for(following: Any) -> None:
    desk, requests = Desk(), []

    def answer(request: Mapping[str, Any]) -> Any:
        requests.append(request["filter"])
        return {"offers": [relay()], "next": following}

    desk.host.peer = answer
    asyncio.run(desk.part.refresh())
    assert len(requests) == 1


def test_a_round_that_fails_is_told_and_the_next_one_comes() -> None:
    """A defect is no reason never to ask again."""

    async def play() -> None:
        desk, told, asked = Desk(peer_sync_interval_sec=1), [], asyncio.Event()
        desk.host.peer = lambda _request: {"offers": [relay()]}
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, said: told.append(said["exception"]))
        sync = desk.part._peers.sync

        async def fails_once() -> dict[str, str]:
            if not told:
                raise KeyError("defect")
            asked.set()
            return await sync()

        desk.part._peers.sync = fails_once  # type: ignore[method-assign]
        await desk.part.start()
        async with asyncio.timeout(HANG_SECONDS):
            await asked.wait()
        await desk.part.close()
        assert [type(one) for one in told] == [KeyError]

    asyncio.run(play())


def test_a_flood_of_pushes_does_not_keep_out_what_was_asked_for() -> None:
    async def play() -> None:
        host = FakeHost()
        admitter = Admitter(Host(host), OfferCatalog(clock=ManualClock(START)))
        host.wait.clear()
        nodes = [f"node:{number}" for number in range(WAITING_MAX + 5)]
        flood = [asyncio.ensure_future(admitter.unasked([{}], node)) for node in nodes]
        await asyncio.sleep(0)
        asked = asyncio.ensure_future(admitter.admit([relay()], PEER.node_id))
        await asyncio.sleep(0)
        host.wait.set()
        found = await asyncio.gather(*flood, return_exceptions=True)
        places = WAITING_MAX - WAITING_MAX // RESERVED
        assert sum(isinstance(one, InputError) for one in found) == len(nodes) - places
        assert (await asked)[0].status == "stored"

    asyncio.run(play())


def test_strangers_that_push_leave_places_to_nodes_that_the_host_trusts() -> None:
    """Four keys had all of them, and pushes of others were refused until the next round."""

    async def play() -> None:
        host = FakeHost()
        admitter = Admitter(Host(host), OfferCatalog(clock=ManualClock(START)))
        host.wait.clear()
        flood = [
            asyncio.ensure_future(admitter.unasked([{}], f"node:{number % 8}"))
            for number in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        trusted = asyncio.ensure_future(admitter.unasked([relay()], PEER.node_id, trusted=True))
        await asyncio.sleep(0)
        host.wait.set()
        await asyncio.gather(*flood, return_exceptions=True)
        assert (await trusted)[0].status == "stored"

    asyncio.run(play())


def test_one_peer_that_pushes_much_leaves_room_for_others() -> None:
    async def play() -> None:
        host = FakeHost()
        admitter = Admitter(Host(host), OfferCatalog(clock=ManualClock(START)))
        host.wait.clear()
        flood = [
            asyncio.ensure_future(admitter.unasked([{}], STRANGER.node_id))
            for _ in range(WAITING_MAX)
        ]
        other = asyncio.ensure_future(admitter.unasked([relay()], PEER.node_id))
        await asyncio.sleep(0)
        host.wait.set()
        found = await asyncio.gather(*flood, return_exceptions=True)
        refused = [one for one in found if isinstance(one, InputError)]
        assert {one.code for one in refused} == {"busy"}
        assert (await other)[0].status == "stored"

    asyncio.run(play())


# -- remote queries --------------------------------------------------------------------------


def answer_of(query: str, *names: str) -> PeerMessage:
    relays = [relay(numbered(PEER, f"offer:{name}", 1)) for name in names]
    payload = {"query_id": query, "offers": relays}
    return PeerMessage("offer-catalog.fetch.response", payload, "c1", PEER.node_id)


def test_a_peer_that_answers_a_query_again_and_again_takes_no_more_room() -> None:
    async def play() -> None:
        desk = Desk()
        desk.host.peer = lambda _request: {"offers": []}
        body = RemoteQueryBody(node_ids=[PEER.node_id])
        name = (await desk.part.queries.ask(body))["query_id"]
        for number in range(6):
            names = [f"{number}-{one}" for one in range(200)]
            await desk.part.received(answer_of(name, *names))
            await desk.part.received(answer_of(name, *names))
        assert len(desk.part.queries._queries[name].offers) <= 500
        assert len(desk.part.queries.find(name)["offers"]) == 100

    asyncio.run(play())


def test_queries_that_nobody_answers_leave_the_host_free_for_other_work() -> None:
    async def play() -> None:
        desk, waiting = Desk(), []
        forever = asyncio.Event()
        call = desk.host

        async def host(method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
            if path.endswith("peer.message.dispatch"):
                waiting.append(path)
                await forever.wait()
            return await call(method, path, body, query)

        part = CatalogPart(
            host=Host(host), catalog=desk.catalog, clock=desk.clock, config=ArcaConfig()
        )
        nodes = [SigningKey.from_seed(bytes([one]) * 32).identity("node") for one in range(200)]
        body = RemoteQueryBody(node_ids=nodes, timeout_ms=1)
        for _ in range(10):
            assert (await part.queries.ask(body))["status"] == "timeout"
        assert len(waiting) < CALLS_MAX
        with pytest.raises(NodeError) as caught:
            await part.queries.ask(body)
        assert (caught.value.status, caught.value.code) == (503, "busy")
        await part.close()

    asyncio.run(play())
