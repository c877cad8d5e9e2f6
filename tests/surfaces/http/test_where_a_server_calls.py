"""A server that other machines reach does not call its own machine for the holders of tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from anabranch.operations.access.tokens import AccessControl
from anabranch.settings import Settings
from anabranch.surfaces.http import serve
from hangs import HANG_SECONDS

from .support import run

CALLS = """
metadata: {name: calls}
workflow: [{step: start, tool: {kind: http, url: "{{ workload.url }}"}}]
"""


@pytest.mark.parametrize(
    ("loopback", "setting", "status"),
    [
        (True, "", "completed"),
        (True, "public", "failed"),
        (False, "", "failed"),
        (False, "loopback", "completed"),
    ],
)
def test_a_server_for_others_does_not_call_its_own_machine_unless_told(
    loopback: bool, setting: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "is_loopback", lambda _address: loopback)
    monkeypatch.setattr(AccessControl, "has_admin", lambda _self: True)
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.path)
        return web.json_response({})

    async def scenario() -> None:
        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        settings = Settings(store=str(tmp_path / "store.db"), serve_port=0, http_addresses=setting)
        try:
            async with asyncio.timeout(HANG_SECONDS), serve.Server(settings, mounts=()) as server:
                verbs = server.parts.verbs
                begun = await verbs.start(CALLS, {"url": f"http://{host}:{port}/own"})
                state = await verbs.wait(begun)
                assert verbs.read.summary(begun, state)["status"] == status
        finally:
            await runner.cleanup()
        assert seen == (["/own"] if status == "completed" else [])

    run(scenario())
