"""A server that tells others a loopback URL says so where others are on other machines."""

from __future__ import annotations

import asyncio
import socket

import pytest

from anabranch.settings import Settings
from anabranch.store.ports import Store
from anabranch.surfaces import loopback
from anabranch.surfaces.http.serve import Server
from anabranch.work.network.loopback import is_loopback_url
from hangs import HANG_SECONDS
from shared_store import PARTITIONS, fresh_schema

ELSEWHERE = "there-is-no-such-machine"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8629", True),
        ("http://127.8.9.10", True),
        ("http://LOCALHOST:8629", True),
        ("http://localhost.:8629", True),
        ("http://a.localhost", True),
        ("https://[::1]:8629/path", True),
        ("http://[::ffff:127.0.0.1]", True),
        ("http://0.0.0.0:8629", True),
        ("http://10.0.0.1:8629", False),
        ("https://localhost.example", False),
        ("https://anabranch.example", False),
        ("", False),
    ],
)
def test_loopback_urls_are_told_from_others(url: str, here: bool) -> None:
    assert is_loopback_url(url) is here


def joins(store: Store, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server of the same store, on a machine of this name."""
    assert store.cluster is not None
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: machine)
        store.cluster.join("other", "http://127.0.0.1:8629", HANG_SECONDS)


def test_a_server_that_tells_a_loopback_url_warns_once_a_server_elsewhere_has_joined(
    postgres: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.store.factory import open_store

    monkeypatch.setattr(loopback, "LOOK_SECONDS", 0.02)
    settings = Settings(store=fresh_schema(postgres), store_partitions=PARTITIONS, serve_port=0)

    async def work() -> None:
        async with asyncio.timeout(HANG_SECONDS), Server(settings) as server:
            beside, other = open_store(settings), open_store(settings)
            try:
                joins(beside, socket.gethostname(), monkeypatch)
                member = server.parts.engine.member
                assert member is not None
                while len(member.membership.servers) < 2:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.1)  # several looks
                assert "serve_advertise" not in caplog.text
                joins(other, ELSEWHERE, monkeypatch)  # on the event loop: it is patched meanwhile
                while "serve_advertise" not in caplog.text:
                    await asyncio.sleep(0.02)
            finally:
                beside.close()
                other.close()

    asyncio.run(work())
    (said,) = (one.getMessage() for one in caplog.records if "serve_advertise" in one.getMessage())
    assert ELSEWHERE in said
