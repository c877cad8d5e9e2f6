"""The URL that a server tells workers: as it was told, or made of where it listens."""

from __future__ import annotations

import socket

import pytest
from aiohttp import ClientSession

from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.http.serve import Server
from anabranch.surfaces.http.sockets import bind

from .support import run


def advertised(host: str, **given: str) -> str:
    server = Server(Settings(store=":memory:", serve_host=host, **given))  # type: ignore[arg-type]
    server._sockets = bind(host, 0)
    try:
        return server.advertised_url.replace(f":{server._sockets[0].getsockname()[1]}", ":PORT")
    finally:
        for one in server._sockets:
            one.close()


def test_a_server_tells_where_it_listens() -> None:
    assert advertised("127.0.0.1") == "http://127.0.0.1:PORT"


def test_a_server_that_listens_on_all_addresses_tells_the_name_of_its_machine() -> None:
    assert advertised("0.0.0.0") == f"http://{socket.gethostname()}:PORT"


def test_a_server_tells_the_url_that_it_was_given() -> None:
    said = advertised("0.0.0.0", serve_advertise="https://one.example/anabranch/api/v1/")
    assert said == "https://one.example/anabranch"


@pytest.mark.parametrize(
    "url",
    [
        *("one.example", "one.example:8629", "ftp://one.example", "http://", "http://a b"),
        *("http://me@one.example", "http://one.example:0", "http://one.example:99999"),
        *("http://one.example?a=b", "http://one.example#x", "http://[::1", "http://a\nb"),
    ],
)
def test_what_is_no_url_is_refused_before_the_store_is_opened(url: str) -> None:
    async def scenario() -> None:
        server = Server(Settings(store=":memory:", serve_port=0, serve_advertise=url))
        with pytest.raises(InputError, match="serve_advertise"):
            await server.start()
        assert server._store is None
        await server.stop()

    run(scenario())


def test_a_server_on_a_loopback_address_answers_to_the_name_that_it_tells() -> None:
    async def scenario() -> None:
        settings = Settings(
            store=":memory:", serve_port=0, serve_advertise="http://one.example:8629"
        )
        async with Server(settings) as server, ClientSession() as session:
            for host, status in (("one.example:8629", 200), ("two.example:8629", 421)):
                where = f"{server.url}/api/v1/servers"
                async with session.get(where, headers={"Host": host}) as response:
                    assert response.status == status
            async with session.get(f"{server.url}/api/v1/servers") as response:
                body = await response.json()
            assert [one["url"] for one in body["items"]] == ["http://one.example:8629"]

    run(scenario())
