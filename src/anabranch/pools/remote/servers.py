"""The servers of a store, as a worker knows them: those it was given, and those they tell of.

Every server offers the jobs of the runs that it owns, so a worker asks all of them for jobs. What
it says of a job goes to the server that owns the run, which need not be the one that gave out the
job: runs move when a server joins, stops or dies. A server that does not own the run names the one
that does, and has done nothing; so a report counts once, however many servers it was brought to.

The token of the worker goes to every server. A URL that was learned is not used if it is weaker
than those that were given (`learned_urls`), and nothing is said of jobs there before that server
has shown that it shares the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import InputError
from anabranch.pools.remote.learned_urls import objection
from anabranch.pools.remote.server_client import (
    CALL_SECONDS,
    RunMoved,
    ServerAway,
    ServerClient,
    ServerRefused,
    plain_url,
)
from anabranch.pools.remote.shapes import ServerAddress, ServerList
from anabranch.pools.services import Key

log = logging.getLogger("anabranch.worker")

T = TypeVar("T")
LOOK_SECONDS = 5.0  # between two looks at who is there
SOON_SECONDS = 0.5  # the same when a server has just gone away
ASK_SECONDS = 5.0  # for one such answer
CLOSE_SECONDS = 90.0  # a server that left may still answer what was asked before
SERVERS_MOST = 256
#: Another server may take what these say of: nothing was done, and this one will not soon.
GONE = frozenset({502, 503, 504})


class Servers:
    """Use it as an async context manager. `worker` is the name under which jobs are claimed."""

    def __init__(
        self, given: Sequence[str], token: str = "", worker: str = "", *, discover: bool = True
    ) -> None:
        if not given:
            raise InputError(
                "which server? give --server URL, or set ANABRANCH_SERVER", code="no_server"
            )
        self.worker = worker
        self._token = token
        self._discover = discover
        self.clients = [self._client(url) for url in dict.fromkeys(map(plain_url, given))]
        self._given = tuple(self.clients)
        self._advertised: dict[str, ServerClient] = {}  # URL that a server tells → its client
        self._homes: dict[Key, ServerClient] = {}  # of the jobs at work
        self._refused: set[str] = set()  # URLs that are not used, each said once
        self._ids: set[str] = set()  # of the servers of the store, as one of them told last
        self._trouble = asyncio.Event()
        self._closing: dict[ServerClient, asyncio.Task[None]] = {}  # those that have left
        self.discovered = not discover  # a server has told of the others
        #: Called when others are asked from now on, and when it is first known who is there.
        self.on_change: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Servers:
        for client in self.clients:
            client.open()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await cancel_and_wait(*self._closing.values())
        for client in (*self.clients, *self._closing):
            await client.close()

    def __str__(self) -> str:
        return ", ".join(client.server for client in self._given)

    @property
    def away_seconds(self) -> float:
        """For how long none of them was there."""
        return min(client.away_seconds for client in self.clients)

    @property
    def answering(self) -> tuple[int, int]:
        """How many of them answer, and how many there are."""
        return sum(not client.away for client in self.clients), len(self.clients)

    # -- what is said of a job ---------------------------------------------------------------

    def lend(self, key: Key, client: ServerClient) -> None:
        """This server has given out the job."""
        self._homes[key] = client

    def forget(self, key: Key) -> None:
        """The job is over."""
        self._homes.pop(key, None)

    def home(self, key: Key) -> ServerClient:
        """Whom to ask about a job: the server that owns its run, as far as is known, or else any
        that answers."""
        known = self._homes.get(key)
        here = known is not None and known in self.clients
        if known is not None and here and not known.away:
            return known
        fallback = known if known is not None and here else self.clients[0]
        return next((client for client in self.clients if not client.away), fallback)

    def moved(self, key: Key, url: str) -> bool:
        """The server at this URL owns the run of the job; False where it is not to be asked."""
        client = self._at(url)
        if client is not None and key in self._homes:
            self._homes[key] = client
        return client is not None

    async def once(
        self,
        key: Key,
        method: str,
        verb: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        seconds: float = CALL_SECONDS,
        **query: Any,
    ) -> bytes:
        """One call about a job, at the server that owns its run. Where a try may have been heard
        no other server is tried: whoever calls has to know that."""
        tried: list[ServerClient] = []
        client: ServerClient | None = self.home(key)
        while True:
            assert client is not None
            tried.append(client)
            path = client.job(key, verb, **query)
            try:
                answer = await client.once(method, path, body, content=content, seconds=seconds)
            except RunMoved as moved:
                client = self._at(moved.server)
                if client is None or client in tried:
                    raise
            except ServerAway as away:
                client = None if away.heard else self._instead(tried, away)
                if client is None:
                    raise
            else:
                if key in self._homes:
                    self._homes[key] = client
                return answer

    async def json(
        self, kind: type[T], key: Key, method: str, verb: str, body: Any = None, **how: Any
    ) -> T:
        answer = await self.once(key, method, verb, body, **how)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            said = f"a server sent an answer that the worker cannot read: {error}"
            raise ServerRefused(said, "answer", 200) from None

    def _instead(self, tried: list[ServerClient], away: ServerAway) -> ServerClient | None:
        if away.status and away.status not in GONE:
            return None
        left = (one for one in self.clients if one not in tried and not one.away)
        return next(left, None)

    # -- who is there ------------------------------------------------------------------------

    async def keep_current(self) -> None:
        """Ask who is there, now and then, and soon after one of them has gone away."""
        while self._discover:
            try:
                async with asyncio.timeout(LOOK_SECONDS if self.discovered else SOON_SECONDS):
                    await self._trouble.wait()
                await asyncio.sleep(SOON_SECONDS)
            except TimeoutError:
                pass
            self._trouble.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Learn who is there from one that answers; each that was given says who it is."""
        if not self._discover:
            return
        before = self.discovered, list(self.clients)
        await self._look()
        if (self.discovered, self.clients) != before:
            self.on_change()

    async def _look(self) -> None:
        unknown = [client for client in self._given if not client.id]
        told = {client: await self._ask(client) for client in unknown}
        self._require_one_store({client: listed for client, listed in told.items() if listed})
        others = [client for client in self.clients if client not in told]
        for client in sorted(others, key=lambda one: one.away):
            if any(told.values()):
                break
            told[client] = await self._ask(client)
        if any(told.values()):
            self.discovered = True
            self._learn([item for listed in told.values() for item in listed])

    async def _ask(self, client: ServerClient) -> Sequence[ServerAddress]:
        try:
            listed = await client.json(ServerList, "GET", "/servers", seconds=ASK_SECONDS)
        except ServerAway:
            return ()
        except ServerRefused as refusal:
            log.debug("%s does not tell of other servers: %s", client.server, refusal)
            self.discovered = True  # a server of before: there are no others
            return ()
        for item in listed.items:
            if item.here:
                client.id = item.id
                self._advertised[plain_url(item.url)] = client
        return listed.items

    def _learn(self, listed: Sequence[ServerAddress]) -> None:
        before = list(self.clients)
        self._ids = {item.id for item in listed}
        for item in listed:
            same = (one for one in self.clients if one.id == item.id)
            known = next(same, None) or self._known(item.url) or self._admit(item.url)
            if known is not None:
                known.id = item.id
        for client in before:
            if client not in self._given and client.id not in self._ids:
                self._drop(client)

    def _require_one_store(self, told: Mapping[ServerClient, Sequence[ServerAddress]]) -> None:
        """What is said of a job of one server may be brought to another: they have to share a
        store. One that has just joined is known to the other, if not the other way round."""
        seen = {client: {item.id for item in listed} for client, listed in told.items()}
        for one, other in combinations(seen, 2):
            if one.id not in seen[other] and other.id not in seen[one]:
                raise InputError(
                    f"{one.server} and {other.server} do not share a store: start a worker for "
                    "each of them",
                    code="servers",
                )

    async def _require_shared_store(self, client: ServerClient) -> None:
        """What listens at a learned URL need not be the server that tells it. One of the same store
        knows a server that this worker knows too."""
        if not self._ids:
            told = [await self._ask(one) for one in self._given]
            self._ids = {item.id for listed in told for item in listed}
        if self._ids.isdisjoint(item.id for item in await client.listed(ASK_SECONDS)):
            raise ServerAway(
                f"{client.server} is not known to share a store with {self}: it is told nothing"
            )

    def _known(self, url: str) -> ServerClient | None:
        """By the URL itself, or as the server that tells this URL of itself."""
        wanted = plain_url(url)
        found = (one for one in self.clients if one.server == wanted)
        known = self._advertised.get(wanted)
        return next(found, known if known in self.clients else None)

    def _at(self, url: str) -> ServerClient | None:
        """The server at this URL, also one that was not heard of yet."""
        if not url:
            return None
        known = self._known(url)
        if known is None and self._discover:
            known = self._admit(url)
            self.on_change()
        return known

    def _admit(self, url: str) -> ServerClient | None:
        """Use a server that was learned of, unless the token must not go there."""
        plain = plain_url(url)
        why = self._objection(plain)
        if why:
            if plain not in self._refused:
                self._refused.add(plain)
                log.warning("the server at %s is not used: %s", plain[:200], why)
            return None
        client = self._client(plain)
        client.check = lambda: self._require_shared_store(client)
        client.open()
        self.clients.append(client)
        log.info("the server at %s is asked for jobs too", plain)
        return client

    def _objection(self, url: str) -> str:
        why = objection(url, [client.server for client in self._given], token=bool(self._token))
        if not why and len(self.clients) >= SERVERS_MOST:
            return f"a worker asks at most {SERVERS_MOST} servers"
        return why

    def _client(self, url: str) -> ServerClient:
        client = ServerClient(url, self._token, self.worker)
        client.on_away = lambda: self._trouble.set()
        return client

    def _drop(self, client: ServerClient) -> None:
        log.info("the server at %s has left", client.server)
        self.clients.remove(client)
        self._advertised = {url: one for url, one in self._advertised.items() if one is not client}
        self._closing[client] = asyncio.get_running_loop().create_task(self._close_later(client))

    async def _close_later(self, client: ServerClient) -> None:
        await asyncio.sleep(CLOSE_SECONDS)
        await client.close()
        del self._closing[client]
