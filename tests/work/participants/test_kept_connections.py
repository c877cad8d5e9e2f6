"""Connections to participants are kept where that is safe, and no answer is taken for another."""

from __future__ import annotations

import asyncio
import json
import select
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from anabranch.work.participants import connections
from anabranch.work.participants.book import Book
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.port import BadReply, ParticipantRequest, Unreachable
from hangs import HANG_SECONDS

from ..support import run

JSON = "Content-Type: application/json\r\n"
CERTIFICATES = Path(__file__).parents[2] / "surfaces" / "cli" / "commands" / "tls"


class Service:
    """A server in the loop of the test; `answer` is called for every request of a connection."""

    def __init__(
        self, answer: Callable[[Exchange], Awaitable[None]], tls: ssl.SSLContext | None = None
    ) -> None:
        self._answer = answer
        self.asked: list[tuple[int, str]] = []  # number of the connection, dispatch
        self.ended: list[int] = []  # connections that the other side has ended
        self.connections = 0
        self.most = self.open = 0
        self._changed = asyncio.Condition()
        self.port = 0
        self.tls = tls
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/" if self.tls else f"http://127.0.0.1:{self.port}/"

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_SECONDS), self._changed:
            await self._changed.wait_for(holds)

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                exchange = Exchange(self, reader, writer, number, head)
                self.asked.append((number, exchange.dispatch))
                await self._answer(exchange)
        self.open -= 1
        self.ended.append(number)
        writer.close()
        async with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


class Exchange:
    def __init__(
        self,
        service: Service,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: int,
        head: str,
    ) -> None:
        lines = head.split("\r\n")[1:]
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        self.dispatch = self.headers["idempotency-key"]
        self.number = sum(1 for each, _ in service.asked if each == connection)
        self.connection = connection
        self._reader, self._writer = reader, writer

    async def body(self) -> Any:
        length = int(self.headers["content-length"])
        return json.loads(await self._reader.readexactly(length))

    def named(self, price: int = 1) -> str:
        return json.dumps({"price": price, "dispatch_id": self.dispatch})

    def send(self, text: str | bytes) -> None:
        self._writer.write(text if isinstance(text, bytes) else text.encode())

    def reply(self, body: str, first: str = "HTTP/1.1 200 OK", more: str = "") -> None:
        self.send(response(body, first, more))

    def end(self) -> None:
        self._writer.close()


def response(body: str, first: str = "HTTP/1.1 200 OK", more: str = "") -> str:
    return f"{first}\r\n{JSON}Content-Length: {len(body)}\r\n{more}\r\n{body}"


def chunked(body: str, trailers: str = "") -> str:
    half = len(body) // 2
    chunks = "".join(f"{len(each):x};x=y\r\n{each}\r\n" for each in (body[:half], body[half:]))
    head = f"HTTP/1.1 200 OK\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n"
    return f"{head}{chunks}0\r\n{trailers}\r\n"


def request(dispatch: str, **more: Any) -> ParticipantRequest:
    return ParticipantRequest(
        participant="x",
        dispatch_id=dispatch,
        run_id="run-1",
        step_id="ask",
        service_type="text/summarise",
        **{"input": {}, **more},
    )


class Asker:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def __call__(self, dispatch: str, name: str = "x", **more: Any) -> Any:
        participant = self._book.participant(name)
        assert participant is not None
        async with asyncio.timeout(HANG_SECONDS):
            return await participant.ask(request(dispatch, **more))

    async def close(self) -> None:
        await self._book.close()


@asynccontextmanager
async def meeting(
    answer: Callable[[Exchange], Awaitable[None]],
    *,
    limits: HttpLimits | None = None,
    names: tuple[str, ...] = ("x",),
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Service, Asker]]:
    """A service, and the participants of these names at its one address."""
    service = Service(answer, tls)
    server = await asyncio.start_server(service.meet, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    entries = {
        name: {"url": service.url, "headers": {"Authorization": f"Bearer {name}"}} for name in names
    }
    limits = limits or HttpLimits(kept_seconds=HANG_SECONDS, connect_seconds=HANG_SECONDS)
    asker = Asker(Book({"participants": entries}, limits=limits))
    try:
        yield service, asker
    finally:
        await asker.close()
        service.close()
        server.close()
        await server.wait_closed()


async def friendly(exchange: Exchange) -> None:
    await exchange.body()
    exchange.reply(exchange.named())


def sending(make: Callable[[Exchange], str]) -> Callable[[Exchange], Awaitable[None]]:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        exchange.send(make(exchange))

    return answer


# -- kept ------------------------------------------------------------------------------------

KEPT: dict[str, Callable[[Exchange], str]] = {
    "length": lambda one: response(one.named()),
    "said so": lambda one: response(one.named(), more="Connection: keep-alive\r\n"),
    "chunks": lambda one: chunked(one.named()),
    "trailers": lambda one: chunked(one.named(), "Digest: x\r\nLast: y\r\n"),
    "interim": lambda one: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + response(one.named()),
    "an error that names it": lambda one: response(one.named(), "HTTP/1.1 503 Busy"),
}


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_a_whole_reply_that_names_its_dispatch_leaves_the_connection_for_the_next(
    make: Callable[[Exchange], str],
) -> None:
    async def thrice() -> Service:
        async with meeting(sending(make)) as (service, ask):
            for dispatch in ("d1", "d2", "d3"):
                reply = await ask(dispatch)
                assert reply.get("reply", reply)["dispatch_id"] == dispatch
            return service

    service = run(thrice())
    assert service.asked == [(0, "d1"), (0, "d2"), (0, "d3")]


@pytest.mark.parametrize("known", [True, False])
def test_over_tls_connections_are_kept_too_where_the_certificate_is_known(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of two participants are made at once, and each is used again."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    if known:
        client = ssl.create_default_context(cafile=str(CERTIFICATES / "localhost.pem"))
        monkeypatch.setattr(connections, "_tls", lambda: client)

    async def work() -> None:
        async with meeting(friendly, names=("x", "y"), tls=server) as (service, ask):
            if not known:
                with pytest.raises(Unreachable, match="certificate"):
                    await ask("d1")
                return
            for first, second in (("d1", "d2"), ("d3", "d4")):
                both = await asyncio.gather(ask(first), ask(second, "y"))
                assert [one["dispatch_id"] for one in both] == [first, second]
            assert service.connections == 2

    run(work())


NOT_KEPT: dict[str, Callable[[Exchange], str]] = {
    "names nothing": lambda _: response('{"price": 1}'),
    "a second answer at once": lambda one: 2 * response(one.named()),
    "a byte more": lambda one: response(one.named()) + " ",
    "an empty line more": lambda one: response(one.named()) + "\r\n",
    "connection: close": lambda one: response(one.named(), more="Connection: close\r\n"),
    "connection: other": lambda one: response(one.named(), more="Connection: keep-alive, x\r\n"),
    "upgrade": lambda one: response(one.named(), more="Upgrade: h2c\r\n"),
    "http 1.0": lambda one: response(one.named(), "HTTP/1.0 200 OK"),
    "http 1.0 that would keep": lambda one: response(
        one.named(), "HTTP/1.0 200 OK", "Connection: keep-alive\r\n"
    ),
    "lines without returns": lambda one: response(one.named()).replace("\r\n", "\n"),
    "more behind the chunks": lambda one: chunked(one.named()) + "0\r\n\r\n",
}


@pytest.mark.parametrize("make", NOT_KEPT.values(), ids=NOT_KEPT)
def test_anything_unexpected_ends_the_connection_and_the_next_request_has_another(
    make: Callable[[Exchange], str],
) -> None:
    async def twice() -> Service:
        async with meeting(sending(make)) as (service, ask):
            for dispatch in ("d1", "d2"):
                assert (await ask(dispatch))["price"] == 1
                await service.until(lambda: service.open == 0)
            return service

    service = run(twice())
    assert service.asked == [(0, "d1"), (1, "d2")]


REFUSED: dict[str, tuple[Callable[[Exchange], str], str]] = {
    "half": (lambda one: response(one.named())[:-3], "broken_reply"),
    "half a head": (lambda _: "HTTP/1.1 200 OK\r\nConte", "disconnected"),
    "two lengths": (
        lambda one: response(one.named(), more="Content-Length: 3\r\n"),
        "broken_reply",
    ),
    "a length and chunks": (
        lambda one: response(one.named(), more="Transfer-Encoding: chunked\r\n"),
        "broken_reply",
    ),
    "a header before a colon": (
        lambda one: response(one.named(), more="Content-Length : 1\r\n"),
        "broken_reply",
    ),
    "folded": (lambda one: response(one.named(), more="X: y\r\n z\r\n"), "broken_reply"),
    "switches": (lambda _: "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "broken_reply"),
    "interim for ever": (lambda _: "HTTP/1.1 100 Go on\r\n\r\n" * 20, "broken_reply"),
    "not modified": (lambda _: "HTTP/1.1 304 Not Modified\r\n\r\n", "redirect"),
    "nothing": (lambda _: "HTTP/1.1 204 No Content\r\n\r\n", "empty_reply"),
    "odd chunk": (
        lambda one: chunked(one.named()).replace("\r\n0\r\n", "\r\n-1\r\n"),
        "broken_reply",
    ),
    "long chunk": (lambda one: chunked(one.named()).replace("0\r\n", "x0\r\n"), "broken_reply"),
    "http 2": (lambda one: response(one.named(), "HTTP/2 200 OK"), "broken_reply"),
}


@pytest.mark.parametrize(("make", "code"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("before", [0, 1], ids=["new", "kept"])
def test_a_reply_that_is_none_ends_the_connection_and_is_asked_for_once(
    make: Callable[[Exchange], str], code: str, before: int
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        if exchange.dispatch == "bad":
            exchange.send(make(exchange))
            exchange.end()
        else:
            exchange.reply(exchange.named())

    async def some() -> Service:
        async with meeting(answer) as (service, ask):
            for number in range(before):
                await ask(f"d{number}")
            with pytest.raises(BadReply) as caught:
                await ask("bad")
            assert caught.value.code == code
            assert (await ask("next"))["price"] == 1
            return service

    service = run(some())
    assert [dispatch for _, dispatch in service.asked].count("bad") == 1
    assert service.asked[-1] == (1, "next")


# -- answers that come when nobody asked -----------------------------------------------------


@pytest.mark.parametrize("late", ["answer", "half an answer", "byte", "end"])
def test_what_comes_while_no_request_is_out_ends_the_connection(late: str) -> None:
    exchanges: list[Exchange] = []

    async def answer(exchange: Exchange) -> None:
        exchanges.append(exchange)
        await friendly(exchange)

    async def twice() -> Service:
        async with meeting(answer) as (service, ask):
            await ask("d1")
            whole = response(exchanges[0].named(0))
            sent = {"answer": whole, "half an answer": whole[:20], "byte": "H", "end": ""}[late]
            if sent:
                exchanges[0].send(sent)
            else:
                exchanges[0].end()
            await service.until(lambda: service.ended == [0])
            assert (await ask("d2"))["price"] == 1
            return service

    assert run(twice()).asked == [(0, "d1"), (1, "d2")]


def test_what_waits_unread_on_a_kept_connection_is_seen_before_the_next_request() -> None:
    """The event loop has not turned since it came."""
    exchanges: list[Exchange] = []

    async def answer(exchange: Exchange) -> None:
        exchanges.append(exchange)
        await friendly(exchange)

    async def twice() -> Service:
        async with meeting(answer) as (service, ask):
            await ask("d1")
            participant: Any = ask._book.participant("x")
            exchanges[0].send(response(exchanges[0].named(0)))  # written to the socket at once
            select.select([participant._kept._socket], [], [], HANG_SECONDS)
            assert (await ask("d2"))["price"] == 1
            return service

    assert run(twice()).asked == [(0, "d1"), (1, "d2")]


@pytest.mark.parametrize(
    ("stale", "code"),
    [
        (lambda: response('{"price": 0, "dispatch_id": "d1"}'), "wrong_dispatch"),
        (lambda: response('{"price": 0}'), "unnamed_reply"),
        (lambda: response("0"), "unnamed_reply"),
        (lambda: response('{"price": 0}', "HTTP/1.1 500 Oops"), "unnamed_reply"),
    ],
    ids=["named", "unnamed", "no mapping", "error"],
)
def test_a_second_answer_that_comes_when_the_next_request_is_out_is_not_its_answer(
    stale: Callable[[], str], code: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        if exchange.number:
            exchange.send(stale())
        exchange.reply(exchange.named())

    async def thrice() -> Service:
        async with meeting(answer) as (service, ask):
            await ask("d1")
            with pytest.raises(BadReply) as caught:
                await ask("d2")
            assert caught.value.code == code
            assert (await ask("d3"))["price"] == 1
            return service

    assert run(thrice()).asked == [(0, "d1"), (0, "d2"), (1, "d3")]


def test_one_who_named_its_dispatch_only_at_first_has_no_connection_kept_again() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        exchange.reply('{"price": 1}' if exchange.number else exchange.named())

    async def often() -> Service:
        async with meeting(answer) as (service, ask):
            await ask("d1")
            with pytest.raises(BadReply):
                await ask("d2")
            await ask("d3")
            await ask("d4")
            return service

    assert run(often()).asked == [(0, "d1"), (0, "d2"), (1, "d3"), (2, "d4")]


def test_a_request_that_was_sent_is_not_sent_again_where_a_kept_connection_ends() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        if exchange.number:
            exchange.end()
        else:
            exchange.reply(exchange.named())

    async def twice() -> Service:
        async with meeting(answer) as (service, ask):
            await ask("d1")
            with pytest.raises(BadReply) as caught:
                await ask("d2")
            assert caught.value.code == "disconnected"
            return service

    assert run(twice()).asked == [(0, "d1"), (0, "d2")]


def test_an_answer_before_the_whole_request_was_sent_ends_the_connection() -> None:
    async def answer(exchange: Exchange) -> None:
        exchange.reply(exchange.named())
        await asyncio.sleep(3600)  # the rest of the request is never read

    async def once() -> Service:
        async with meeting(answer) as (service, ask):
            assert (await ask("d1", input={"text": "x" * 30_000_000}))["price"] == 1
            participant: Any = ask._book.participant("x")
            assert participant._kept is None
            return service

    assert run(once()).asked == [(0, "d1")]


def test_one_who_is_no_longer_waited_for_has_its_connection_closed() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        if exchange.dispatch != "d2":
            exchange.reply(exchange.named())

    async def some() -> Service:
        async with meeting(answer) as (service, ask):
            await ask("d1")
            asking = asyncio.ensure_future(ask("d2"))
            while len(service.asked) < 2:
                await asyncio.sleep(0)
            asking.cancel()
            await service.until(lambda: service.ended == [0])
            await ask("d3")
            return service

    assert run(some()).asked == [(0, "d1"), (0, "d2"), (1, "d3")]


# -- whose, how many, how long ---------------------------------------------------------------


def test_a_connection_belongs_to_one_participant_also_at_one_address() -> None:
    async def both() -> Service:
        async with meeting(friendly, names=("x", "y")) as (service, ask):
            for dispatch, name in (("d1", "x"), ("d2", "y"), ("d3", "x"), ("d4", "y")):
                await ask(dispatch, name)
            return service

    assert run(both()).asked == [(0, "d1"), (1, "d2"), (0, "d3"), (1, "d4")]


def test_requests_side_by_side_have_a_connection_each_and_one_is_kept() -> None:
    gate: list[asyncio.Event] = []

    async def answer(exchange: Exchange) -> None:
        await exchange.body()
        await gate[0].wait()
        exchange.reply(exchange.named())

    async def many() -> Service:
        gate.append(asyncio.Event())
        async with meeting(answer) as (service, ask):
            asking = [asyncio.ensure_future(ask(f"d{number}")) for number in range(3)]
            while len(service.asked) < 3:
                await asyncio.sleep(0)
            gate[0].set()
            for number, each in enumerate(asking):
                assert (await each)["dispatch_id"] == f"d{number}"
            await service.until(lambda: service.open == 1)
            return service

    assert run(many()).connections == 3


def test_connections_that_are_kept_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.work.participants.http.connections_max", lambda: 2)
    names = tuple(f"p{number}" for number in range(6))

    async def all_of_them() -> Service:
        async with meeting(friendly, names=names) as (service, ask):
            for turn in range(3):
                asking = [ask(f"{turn}/{name}", name) for name in names]
                assert len(await asyncio.gather(*asking)) == len(names)
            return service

    service = run(all_of_them())
    assert len({dispatch for _, dispatch in service.asked}) == len(service.asked) == 18


def test_a_connection_is_kept_for_a_while_only() -> None:
    async def once() -> None:
        limits = HttpLimits(kept_seconds=0.01, connect_seconds=HANG_SECONDS)
        async with meeting(friendly, limits=limits) as (service, ask):
            await ask("d1")
            await service.until(lambda: service.ended == [0])

    run(once())


def test_closing_the_book_closes_what_is_kept_and_the_next_request_opens_it_again() -> None:
    async def twice() -> Service:
        async with meeting(friendly) as (service, ask):
            await ask("d1")
            await ask.close()
            await service.until(lambda: service.ended == [0])
            await ask("d2")
            return service

    assert run(twice()).asked == [(0, "d1"), (1, "d2")]
