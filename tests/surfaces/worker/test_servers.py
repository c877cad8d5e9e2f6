"""How a worker learns of servers, which of them it trusts, and whom it asks about a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.operations.workers.claims import Claimed
from anabranch.pools.remote import server_client
from anabranch.pools.remote.server_client import RunMoved, ServerAway, ServerRefused
from anabranch.pools.remote.server_services import ServerServices
from anabranch.pools.remote.servers import SERVERS_MOST, Servers
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.settings import Settings
from anabranch.surfaces.worker.claimer import Terms
from anabranch.surfaces.worker.worker import Worker
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

from .support import ONE, run, serving, until, working

NOWHERE = "http://127.0.0.1:1"
KEY = ("r", "1.0", 1)


class Fake:
    """A server that tells what it is told to tell, and notes what it hears of jobs."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.others: list[dict[str, Any]] = []
        self.heard: list[str] = []
        self.tokens: set[str] = set()
        self.hangs_up = False
        self.answer: tuple[int, dict[str, Any]] = (200, {"accepted": True})

    async def servers(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization", ""))
        own = {"id": self.name, "url": self.url, "here": True}
        return web.json_response({"items": [own, *self.others]})

    async def job(self, request: web.Request) -> web.Response:
        self.heard.append(request.match_info["verb"])
        if self.hangs_up and request.transport is not None:
            request.transport.abort()
        status, body = self.answer
        return web.json_response(body, status=status)

    def listed(self) -> dict[str, Any]:
        return {"id": self.name, "url": self.url, "here": False}

    def moved_to(self, url: str) -> None:
        self.answer = 421, {"code": "run_elsewhere", "detail": "another has it", "server": url}


@asynccontextmanager
async def fake(name: str) -> AsyncIterator[Fake]:
    application = web.Application()
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    made = Fake("", name)
    application.router.add_get("/api/v1/servers", made.servers)
    application.router.add_post("/api/v1/jobs/{run}/{job}/{attempt}/{verb}", made.job)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


def urls(servers: Servers) -> list[str]:
    return [client.server for client in servers.clients]


def test_servers_that_one_tells_of_are_used_and_forgotten_when_it_tells_of_them_no_more() -> None:
    async def scenario() -> None:
        async with fake("a") as a, fake("b") as b, Servers([a.url], "secret") as servers:
            changes: list[list[str]] = []
            servers.on_change = lambda: changes.append(urls(servers))
            a.others = [b.listed()]
            await servers.refresh()
            assert urls(servers) == [a.url, b.url]
            await servers.refresh()
            a.others = b.others = []
            await servers.refresh()
            assert urls(servers) == [a.url]
            assert changes == [[a.url, b.url], [a.url]]
            assert servers.discovered
            assert a.tokens == {"Bearer secret"}

    run(scenario())


def test_a_server_that_was_started_again_at_its_url_is_the_same_one() -> None:
    async def scenario() -> None:
        async with fake("a") as a, Servers([a.url]) as servers:
            a.others = [{"id": "b1", "url": NOWHERE, "here": False}]
            await servers.refresh()
            (_, before) = servers.clients
            a.others = [{"id": "b2", "url": NOWHERE + "/", "here": False}]
            await servers.refresh()
            assert servers.clients[1] is before
            assert before.id == "b2"

    run(scenario())


def test_a_server_known_by_another_address_is_not_asked_twice() -> None:
    """The address that a worker was given need not be the one that the server tells."""

    async def scenario() -> None:
        async with fake("a") as a, fake("b") as b, Servers([a.url, b.url]) as servers:
            a.others = [{"id": "b", "url": "http://b.example:8629", "here": False}]
            b.others = [{"id": "a", "url": "http://a.example:8629", "here": False}]
            real, b.url = b.url, "http://b.example:8629"
            await servers.refresh()
            assert urls(servers) == [a.url, real]
            servers.lend(KEY, servers.clients[0])
            a.moved_to("http://b.example:8629")
            await servers.once(KEY, "POST", "report", {})
            assert (a.heard, b.heard) == (["report"], ["report"])

    run(scenario())


@pytest.mark.parametrize(
    ("given", "told", "why"),
    [
        ("https://a.example", "http://b.example", "not https"),
        ("https://a.example", "http://127.0.0.1:8629", "not https"),
        ("http://a.example", "ftp://b.example", "no URL of a server"),
        ("http://a.example", "http://someone@b.example", "no URL of a server"),
        ("http://a.example", "http://b.example/?to=c", "no URL of a server"),
        ("http://a.example", "b.example:8629", "no URL of a server"),
        ("http://a.example", "http://[::1", "no URL of a server"),
        ("http://a.example", "http://b.example:99999", "no URL of a server"),
        ("http://127.0.0.1:8629", "http://b.example:8629", "in clear"),  # given is a tunnel
        ("http://localhost:8629", "http://10.0.0.2:8629", "in clear"),
        ("http://a.example", "http://127.0.0.1:8629", "loopback"),
        ("http://a.example", "http://localhost:8629", "loopback"),
        ("http://a.example", "http://[::1]:8629", "loopback"),
        ("http://a.example", "http://0.0.0.0:8629", "loopback"),
        ("https://a.example", "https://127.0.0.1:8629", "loopback"),
    ],
)
def test_the_token_never_goes_to_a_url_that_is_weaker_or_none(
    given: str, told: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Servers([given], "secret") as servers:
            servers.lend(KEY, servers.clients[0])
            for _ in range(2):
                assert not servers.moved(KEY, told)
            assert urls(servers) == [given]

    run(scenario())
    (said,) = (one.getMessage() for one in caplog.records if "is not used" in one.getMessage())
    assert why in said


@pytest.mark.parametrize(
    ("given", "token", "told"),
    [
        ("http://127.0.0.1:8701", "secret", "http://127.0.0.1:8702"),
        ("http://127.0.0.1:8701", "secret", "https://b.example"),
        ("http://127.0.0.1:8701", "", "http://b.example"),
        ("http://a.example", "secret", "http://b.example"),
    ],
)
def test_a_url_as_strong_as_the_given_one_is_used(given: str, token: str, told: str) -> None:
    async def scenario() -> None:
        async with Servers([given], token) as servers:
            assert servers.moved(KEY, told)

    run(scenario())


def test_nothing_is_said_of_jobs_to_a_server_of_another_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At a loopback URL that a server on another machine tells of itself, any other may listen."""

    async def scenario() -> None:
        async with fake("a") as a, fake("foreign") as foreign, Servers([a.url]) as servers:
            a.others = [{"id": "b", "url": foreign.url, "here": False}]
            await servers.refresh()
            learned = servers.clients[1]
            with pytest.raises(ServerAway, match="share a store") as away:
                await learned.once("POST", "/jobs/r/1.0/1/claim", {})
            assert not away.value.heard
            servers.lend(KEY, learned)
            await servers.once(KEY, "POST", "report", {})
            assert (a.heard, foreign.heard) == (["report"], [])
            foreign.others = [a.listed()]  # another one was started there meanwhile
            await learned.once("POST", "/jobs/r/1.0/1/claim", {})
            assert foreign.heard == ["claim"]

    run(scenario())
    assert caplog.text.count("share a store") == 1


def test_a_secure_url_may_be_learned_from_any_server() -> None:
    async def scenario() -> None:
        async with Servers(["http://a.example"]) as servers:
            assert servers.moved(KEY, "https://b.example/")
            assert urls(servers) == ["http://a.example", "https://b.example"]

    run(scenario())


def test_without_discovery_only_the_given_servers_are_asked() -> None:
    async def scenario() -> None:
        async with fake("a") as a, fake("b") as b:
            a.others = [b.listed()]
            a.moved_to(b.url)
            async with Servers([a.url], discover=False) as servers:
                await servers.refresh()
                assert urls(servers) == [a.url]
                with pytest.raises(RunMoved):
                    await servers.once(KEY, "POST", "report", {})
                assert b.heard == []

    run(scenario())


def test_there_is_a_bound_on_servers() -> None:
    async def scenario() -> None:
        async with Servers(["http://a.example"]) as servers:
            for number in range(2 * SERVERS_MOST):
                servers.moved(KEY, f"http://b{number}.example")
            assert len(servers.clients) == SERVERS_MOST

    run(scenario())


def test_servers_that_do_not_share_a_store_are_refused() -> None:
    async def scenario() -> None:
        async with (
            serving() as one,
            serving() as other,
            Servers([one.url, other.url]) as servers,
        ):
            with pytest.raises(InputError, match="do not share a store"):
                await servers.refresh()

    run(scenario())


def test_a_server_on_a_file_lists_itself_alone() -> None:
    async def scenario() -> None:
        async with serving(serve_advertise="http://a.example:8629") as server:
            status, listed = await server.ask("GET", "/servers")
            (one,) = listed["items"]
            assert (status, one["url"], one["here"]) == (200, "http://a.example:8629", True)
            async with working(server.url) as worker:
                name = await server.start(ONE)
                await server.parts.verbs.wait(name)
                assert urls(worker._servers) == [server.url]

    run(scenario())


# -- whom to ask about a job -----------------------------------------------------------------------


def test_a_report_follows_the_run_to_its_owner_and_stays_there() -> None:
    async def scenario() -> None:
        async with fake("a") as a, fake("b") as b, Servers([a.url]) as servers:
            servers.lend(KEY, servers.clients[0])
            b.others = [a.listed()]
            a.moved_to(b.url)
            await servers.once(KEY, "POST", "progress", {})
            await servers.once(KEY, "POST", "report", {})
            assert (a.heard, b.heard) == (["progress"], ["progress", "report"])

    run(scenario())


def test_what_was_not_heard_by_a_server_that_is_gone_is_brought_to_another() -> None:
    async def scenario() -> None:
        async with fake("a") as a, Servers([a.url]) as servers:
            a.others = [{"id": "b", "url": NOWHERE, "here": False}]
            await servers.refresh()
            servers.lend(KEY, servers.clients[1])
            await servers.once(KEY, "POST", "report", {})
            assert a.heard == ["report"]
            assert servers.home(KEY) is servers.clients[0]

    run(scenario())


def test_while_no_server_has_taken_a_run_over_its_worker_is_told_to_wait() -> None:
    async def scenario() -> None:
        async with fake("a") as a, Servers([a.url]) as servers:
            servers.lend(KEY, servers.clients[0])
            for owner in ("", a.url):  # none, or the very one that says so
                a.moved_to(owner)
                with pytest.raises(ServerAway):
                    await servers.once(KEY, "POST", "report", {})
            assert a.heard == ["report", "report"]  # and nobody is asked in a circle
            assert servers.away_seconds == 0  # a server that says so answers

    run(scenario())


def test_what_may_have_been_heard_is_brought_to_no_other_server_in_the_same_try() -> None:
    """Or a report that counted would look like one that was refused."""

    async def scenario() -> None:
        async with fake("a") as a, fake("b") as b, Servers([a.url]) as servers:
            a.others = [b.listed()]
            await servers.refresh()
            servers.lend(KEY, servers.clients[1])
            b.hangs_up = True
            with pytest.raises(ServerAway) as away:
                await servers.once(KEY, "POST", "report", {})
            assert away.value.heard
            assert (a.heard, b.heard) == ([], ["report"])
            await servers.once(KEY, "POST", "report", {})  # the next try goes to one that answers
            assert a.heard == ["report"]

    run(scenario())


def test_a_url_that_cannot_be_reached_is_said_once_and_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.01, 0.05))
    caplog.set_level(logging.INFO, "anabranch.worker")

    async def scenario() -> None:
        async with serving() as server, working(server.url) as worker:
            await until(lambda: worker._servers.discovered)
            assert worker._servers.moved(KEY, NOWHERE)
            for _ in range(3):
                name = await server.start(ONE)
                await server.parts.verbs.wait(name)
            await asyncio.sleep(0.3)  # several tries
            assert worker._servers.answering in ((1, 2), (1, 1))

    run(scenario())
    said = [one.getMessage() for one in caplog.records if "cannot be reached" in one.getMessage()]
    assert len(said) == 1
    assert NOWHERE in said[0]


def test_what_the_first_claim_was_given_goes_back_where_its_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the job would wait for the end of its lease."""
    answered = asyncio.Event()
    ask = server_client.ServerClient.json

    async def ask_late(client: server_client.ServerClient, *given: Any, **more: Any) -> Any:
        answer = await ask(client, *given, **more)
        if given[0] is Claimed and answer.tasks and not answered.is_set():
            answered.set()
            await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(server_client.ServerClient, "json", ask_late)

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            async with working(server.url, lease_seconds=3600) as worker:
                await answered.wait()
                assert worker._servers.moved(KEY, NOWHERE)
                async with asyncio.timeout(HANG_SECONDS):
                    await server.parts.verbs.wait(name)

    run(scenario())


def test_a_server_that_refuses_the_worker_ends_it_only_when_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.01, 0.05))

    async def scenario() -> None:
        async with fake("a") as a:  # it has no pools: 404
            async with serving() as server, working(server.url) as worker:
                await until(lambda: worker._servers.discovered)
                _, listed = await server.ask("GET", "/servers")
                a.others = [{**listed["items"][0], "here": False}]
                assert worker._servers.moved(KEY, a.url)
                await until(lambda: "refuses this worker" in caplog.text)
                name = await server.start(ONE)
                await server.parts.verbs.wait(name)
            async with Servers([a.url]) as servers:
                environment = TaskEnvironment(ServerServices(servers), Settings(), Toolbox())
                with pytest.raises(ServerRefused):
                    await Worker(servers, environment, Terms(pool="gpu")).run()
                await environment.close()

    run(scenario())


def test_a_worker_with_once_ends_also_where_the_claim_is_answered_before_the_list_of_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with serving() as server, Servers([server.url], worker="w") as servers:
            asked = servers._ask
            environment = TaskEnvironment(ServerServices(servers), Settings(), Toolbox())
            worker = Worker(servers, environment, Terms(pool="gpu", once=True))

            async def late(client: server_client.ServerClient) -> Any:
                dry = [claimer.dry and claimer.known for claimer, _ in worker._claimers.values()]
                return await asked(client) if dry and all(dry) else ()

            monkeypatch.setattr(servers, "_ask", late)
            async with asyncio.timeout(HANG_SECONDS):
                await worker.run()
            await environment.close()

    run(scenario())
