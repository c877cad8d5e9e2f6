"""A server with pools, in this process: an engine, the HTTP application on a free port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import ClientSession, web

from anabranch.parts import Parts
from anabranch.pools.remote.server_services import ServerServices
from anabranch.pools.remote.servers import Servers
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.ports import Store
from anabranch.surfaces.http.app import make_application
from anabranch.surfaces.worker.claimer import Terms
from anabranch.surfaces.worker.worker import Worker
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

SECONDS = HANG_SECONDS
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(SECONDS):
            return await work

    return asyncio.run(limited())


async def until(fits: Callable[[], bool], seconds: float = HANG_SECONDS) -> None:
    """Until it is so; a test that waits in vain fails."""
    async with asyncio.timeout(seconds):
        while not fits():
            await asyncio.sleep(0.005)


def playbook(steps: str, **more: str) -> str:
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: pooled}\n"
    return (
        head + "".join(f"{key}: {value}\n" for key, value in more.items()) + "workflow:\n" + steps
    )


ONE = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, args: {n: 20}, code: "result = n + 1"}
""")

LOOP = playbook("""
  - step: each
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {shard_size: 10, max_concurrent: 4, reducers: {total: sum}}
    loop: {in: "{{ workload.items }}", iterator: n}
    tool:
      kind: noop
      result: "{{ iter.n * 2 }}"
      spec: {policy: {rules: [{else: {then: {do: continue, set_shared: {total: "{{ iter.n }}"}}}}]}}
    next: {arcs: [{step: sum}]}
  - step: sum
    tool: {kind: noop, result: "{{ steps.each.shared.total }}"}
""")


class Server:
    """An engine with its HTTP application."""

    def __init__(self, parts: Parts, url: str) -> None:
        self.parts = parts
        self.url = url
        self.api = f"{url}/api/v1"
        self.session = ClientSession()

    async def start(self, text: str, **given: Any) -> str:
        return await self.parts.verbs.start(text, given)

    async def ask(self, method: str, path: str, body: Any = None, **how: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.api + path, json=body, **how) as response:
            content = await response.read()
            return response.status, msgspec.json.decode(content) if content else None

    async def claim(self, pool: str = "gpu", **body: Any) -> Any:
        status, claimed = await self.ask(
            "POST", f"/pools/{pool}/claim", {"worker": "w1", "max": 10, **body}
        )
        assert status == 200, claimed
        for task in claimed["tasks"]:
            task["worker"] = body.get("worker", "w1")  # who has it, for what is said of it
        return claimed

    async def say(self, task: Mapping[str, Any], verb: str, body: Any = None) -> tuple[int, Any]:
        return await self.ask("POST", self.job(task, verb), body if body is not None else {})

    def job(self, task: Mapping[str, Any], verb: str) -> str:
        who = quote(task.get("worker", "w1"), safe="")
        return f"/jobs/{task['run']}/{task['job']}/{task['attempt']}/{verb}?worker={who}"

    async def good(self, task: Mapping[str, Any], verb: str, body: Any = None) -> Any:
        status, answer = await self.say(task, verb, body)
        assert status == 200, answer
        return answer

    async def refused(self, task: Mapping[str, Any], verb: str, body: Any = None) -> str:
        status, answer = await self.say(task, verb, body)
        assert status == 409, answer
        assert answer["detail"]
        assert answer["hint"]
        return str(answer["code"])

    def state(self, name: str) -> Any:
        return self.parts.engine.state(name)


@asynccontextmanager
async def serving(
    store: Store | Path | None = None, *, toolbox: Toolbox | None = None, **given: Any
) -> AsyncIterator[Server]:
    path = str(store) if isinstance(store, Path) else ":memory:"
    settings = replace(Settings(store=path, grace_seconds=1.0), **given)
    opened = open_store(settings) if store is None or isinstance(store, Path) else store
    parts = Parts(opened, settings, toolbox or Toolbox())
    await parts.engine.open()
    runner = web.AppRunner(make_application(parts, settings), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server = Server(parts, f"http://127.0.0.1:{port}")
    try:
        yield server
    finally:
        await server.session.close()
        await parts.close()
        await runner.cleanup()
        opened.close()


@asynccontextmanager
async def working(
    *urls: str, pool: str = "gpu", toolbox: Toolbox | None = None, **terms: Any
) -> AsyncIterator[Worker]:
    """A worker in this process, as long as the block lasts."""
    settings = terms.pop("settings", None) or Settings()
    async with Servers(urls, worker=terms.pop("name", "w1")) as servers:
        environment = TaskEnvironment(ServerServices(servers), settings, toolbox or Toolbox())
        chosen = Terms(**{"pool": pool, "grace_seconds": 1.0, **terms})
        worker = Worker(servers, environment, chosen)
        day = asyncio.ensure_future(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await day
            await environment.close()
