"""What rules call is public, unless the operator allows more."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

import anabranch
from anabranch.settings import Settings
from dialects.xrc729.orchestrations import orchestration, step


def test_the_api_calls_of_rules_reach_this_machine_only_where_the_operator_allows_it() -> None:
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.path)
        return web.json_response({"a": "yes"})

    def called(url: str, **settings: Any) -> Any:
        extract = {"a": {"type": "string", "value": "resp.a", "default": "no"}}
        call = {"name": "x", "method": "GET", "contentType": "json"}
        rule = {"payload": {}, "apiCalls": [{**call, "urlTemplate": url, "extractMap": extract}]}
        done = anabranch.run(
            orchestration(A1=step(rule="A")), rules={"A": rule}, settings=Settings(**settings)
        )
        return done.steps["A1"]["result"]

    async def scenario() -> None:
        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            url = f"http://{host}:{port}/own"
            assert (await asyncio.to_thread(called, url))["a"] == "no"
            assert seen == []
            allowed = await asyncio.to_thread(called, url, rule_addresses="public 127.0.0.1")
            assert allowed["a"] == "yes"
        finally:
            await runner.cleanup()

    asyncio.run(scenario())
