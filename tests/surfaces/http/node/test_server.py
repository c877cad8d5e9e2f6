"""A node over HTTP: who is let in, what is read of them, and how the process comes and goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from anabranch.errors import AnabranchError, InputError
from anabranch.market.node import status
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.modules import part as modules
from anabranch.market.node.modules.tokens import CONTROL_HEADER
from anabranch.market.node.ports import NodeContext
from anabranch.surfaces.http import table
from anabranch.surfaces.http.io import request_body
from anabranch.surfaces.http.node.server import NodeServer
from hangs import HANG_SECONDS
from in_loop import in_loop

SMALL_BODY = 100_000


class Note(msgspec.Struct, frozen=True):
    text: str


NOTES: Family[Note] = Family("note", Note, Note, lambda _state, event: event)


class TestPart:
    """Endpoints for the operator and for all: one that fails, one that waits and writes."""

    __test__ = False

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.arrived, self.go = asyncio.Event(), asyncio.Event()

    def endpoints(self) -> Sequence[Endpoint]:
        def endpoint(path: str, handler: Any, scope: Any = "operator") -> Endpoint:
            return Endpoint(
                method="POST", path=path, scopes=(scope,), handler=handler, summary="",
                body_bytes=SMALL_BODY,
            )  # fmt: skip

        return [
            endpoint("/v1/echo", self._echo),
            endpoint("/v1/open", self._echo, "open"),
            endpoint("/v1/fails", self._fails),
            endpoint("/v1/waits", self._waits),
        ]

    async def _echo(self, call: Call) -> Answer:
        return Answer(body={"got": call.body})

    async def _fails(self, _call: Call) -> Answer:
        raise LookupError("a defect")

    async def _waits(self, _call: Call) -> Answer:
        self.arrived.set()
        await self.go.wait()
        with self._context.entities.change() as change:
            for number in range(40):  # more than is committed in place
                change.add(NOTES, str(number), Note("x"))
        await self._context.entities.durable()
        return Answer(body={"written": True})

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def wake(self, family: Family[Any], thing: str) -> None: ...


MAKERS = ((modules.make, modules.FAMILIES), (TestPart, (NOTES,)), (status.make, ()))


def folder_in(path: Path, **more: Any) -> NodeFolder:
    folder = NodeFolder(path / "n")
    folder.create(NodeFile(name="n", **more))
    KeyFolder.create(folder.keys, ("node", "participant"))
    return folder


@asynccontextmanager
async def served(folder: NodeFolder) -> AsyncIterator[tuple[NodeServer, aiohttp.ClientSession]]:
    async with (
        asyncio.timeout(HANG_SECONDS),
        NodeServer(folder, MAKERS) as server,
        aiohttp.ClientSession() as session,
    ):
        yield server, session


def operator(server: NodeServer) -> dict[str, str]:
    return {CONTROL_HEADER: server.folder.control_token.read_text()}


HOSTS = {
    "127.0.0.1": 200, "127.0.0.1:80": 200, "localhost:8080": 200, "[::1]": 200, "[::1]:80": 200,
    "127.0.0.2:80": 200, "LOCALHOST": 200, "example.org": 421, "127.0.0.1.example.org:80": 421,
    "10.0.0.1": 421, "localhost.example.org": 421, "": 421, ":80": 421,
}  # fmt: skip


@in_loop
async def test_a_name_of_another_machine_is_refused(tmp_path: Path) -> None:
    async with served(folder_in(tmp_path)) as (server, session):
        for host, status in HOSTS.items():
            async with session.get(f"{server.url}/healthz", headers={"Host": host}) as answer:
                assert (host, answer.status) == (host, status)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_every_address_of_this_machine_alone_can_be_listened_on(host: str, tmp_path: Path) -> None:
    @in_loop
    async def scenario() -> None:
        async with (
            served(folder_in(tmp_path, host=host)) as (server, session),
            session.get(f"{server.url}/readyz") as answer,
        ):
            assert answer.status == 200

    scenario()


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org", "", "10.0.0.1", "::"])
def test_every_other_address_is_refused_by_the_name_of_the_setting(
    host: str, tmp_path: Path
) -> None:
    @in_loop
    async def scenario() -> None:
        with pytest.raises(InputError, match=r"`host` in node\.json"):
            await NodeServer(folder_in(tmp_path, host=host), MAKERS).start()

    scenario()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_refused_by_the_name_of_the_setting(
    port: int, tmp_path: Path
) -> None:
    @in_loop
    async def scenario() -> None:
        with pytest.raises(InputError, match=r"node\.json: .* at `\$\.port`"):
            await NodeServer(folder_in(tmp_path, port=port), MAKERS).start()

    scenario()


@in_loop
async def test_nothing_is_read_of_who_may_not_call(tmp_path: Path) -> None:
    async with served(folder_in(tmp_path)) as (server, session):
        for path, headers, status in (
            ("/v1/echo", {}, 401),
            ("/v1/nothing", {}, 404),
            ("/v1/enact/x", {}, 401),
            ("/healthz", {}, 405),
            ("/v1/echo", {CONTROL_HEADER: "wrong"}, 401),
        ):
            given: Mapping[str, str] = headers
            async with session.post(server.url + path, data=b"[", headers=given) as answer:
                assert (path, answer.status) == (path, status)
                assert (await answer.json(content_type=None))["status"] == status


@in_loop
async def test_a_token_that_stands_twice_is_none(tmp_path: Path) -> None:
    async with served(folder_in(tmp_path)) as (server, session):
        token = operator(server)[CONTROL_HEADER]
        for twice in ([token, token], ["wrong", token], [token, "wrong"]):
            headers = [(CONTROL_HEADER, each) for each in twice]
            async with session.get(f"{server.url}/v1/status", headers=headers) as answer:
                assert answer.status == 401


@in_loop
async def test_the_limit_of_an_endpoint_holds_before_its_body_is_read(tmp_path: Path) -> None:
    async with served(folder_in(tmp_path)) as (server, session):
        large = b'"' + b"x" * SMALL_BODY + b'"'
        async with session.post(f"{server.url}/v1/open", data=large) as answer:
            assert answer.status == 413
            assert answer.headers["Connection"] == "close"
            assert f"{SMALL_BODY:,}" in (await answer.json(content_type=None))["detail"]


@in_loop
async def test_a_large_body_is_parsed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_loop: list[bool] = []
    parse = request_body.parse

    def noted(raw: bytes, *more: Any) -> Any:
        on_the_loop.append(asyncio._get_running_loop() is not None)
        return parse(raw, *more)

    monkeypatch.setattr(table, "parse", noted)
    async with served(folder_in(tmp_path)) as (server, session):
        for length in (10, request_body.LARGE_BYTES + 1):
            data = json.dumps("x" * length)
            url = f"{server.url}/v1/echo"
            async with session.post(url, data=data, headers=operator(server)) as answer:
                assert (await answer.json())["got"] == "x" * length
    assert on_the_loop == [True, False]


@in_loop
async def test_a_defect_is_answered_as_every_problem_is(tmp_path: Path) -> None:
    async with (
        served(folder_in(tmp_path)) as (server, session),
        session.post(f"{server.url}/v1/fails", headers=operator(server)) as answer,
    ):
        assert answer.status == 500
        assert answer.content_type == "application/problem+json"
        assert (await answer.json(content_type=None))["code"] == "internal"


@in_loop
async def test_head_is_get_without_a_body(tmp_path: Path) -> None:
    async with (
        served(folder_in(tmp_path)) as (server, session),
        session.head(f"{server.url}/readyz") as answer,
    ):
        assert (answer.status, await answer.read()) == (200, b"")


@in_loop
async def test_a_request_in_hand_is_answered_before_the_node_closes(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS), aiohttp.ClientSession() as session:
        server = NodeServer(folder_in(tmp_path), MAKERS)
        await server.start()
        part: Any = server.node.parts[1]
        url, headers = f"{server.url}/v1/waits", operator(server)

        async def ask() -> tuple[int, Any]:
            async with session.post(url, headers=headers) as answer:
                return answer.status, await answer.json(content_type=None)

        asked = asyncio.ensure_future(ask())
        await part.arrived.wait()
        stopping = asyncio.ensure_future(server.stop())
        while server.folder.url.exists():
            await asyncio.sleep(0.001)
        part.go.set()
        assert await asked == (200, {"written": True})
        await stopping


@in_loop
async def test_two_nodes_in_one_folder_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with served(folder_in(tmp_path)) as (server, session):
        token = operator(server)
        with pytest.raises(AnabranchError, match=r"by anabranch node \(pid \d+ on "):
            async with NodeServer(server.folder, MAKERS):
                pass
        assert operator(server) == token
        assert server.folder.url.read_text().strip() == server.url
        async with session.get(f"{server.url}/v1/status", headers=token) as answer:
            assert answer.status == 200
        assert server._store is not None
        assert "pid" in (server._store.owner() or ""), "the lock is still its own"
