"""What the tests of the HTTP API share: a real server on a loopback port, short playbooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import ClientSession, web

import elsewhere
from anabranch.parts import Parts
from anabranch.runtime.slices import Slices
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.surfaces.http.app import make_application
from anabranch.surfaces.http.io.request_body import Limits
from anabranch.surfaces.http.routes import ACTOR, API, LOCAL
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], seconds: float = HANG_SECONDS) -> T:
    """Runs to the end in a loop of its own, with a limit so that a hang becomes a failure."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


# -- playbooks -------------------------------------------------------------------------------------


def playbook(*workflow: Mapping[str, Any], name: str = "test", **top: Any) -> dict[str, Any]:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name}}
    return {**head, **top, "workflow": list(workflow)}


STEP_KEYS: tuple[str, ...] = ("spec", "loop", "set_ctx")


def step(name: str, kind: str = "noop", *then: str, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {key: more.pop(key) for key in STEP_KEYS if key in more}
    arcs = {"next": {"arcs": [{"step": target} for target in then]}} if then else {}
    return {"step": name, "tool": {"kind": kind, **more}, **arcs, **own}


HELLO = playbook(step("greet", result="hello"), name="hello")
ASKING = playbook(
    step("ask", "decision", "after", ask="Go on?"), step("after", result="went on"), name="asking"
)
FAILING = playbook(step("bad", "python", code="raise ValueError('no')"), name="failing")


def gated() -> dict[str, Any]:
    """Waits at its first step until somebody sets `go` in the context."""
    rules = [{"when": "{{ ctx.go }}", "then": {"allow": True}}]
    held = step("held", "noop", "after", spec={"policy": {"admit": {"rules": rules}}})
    return playbook(held, step("after", result="went on"), name="gated")


def looping(items: int, **spec: Any) -> dict[str, Any]:
    """A loop whose items with a seven at their end fail."""
    loop = {"in": list(range(items)), "iterator": "n", "spec": {"mode": "parallel", **spec}}
    each = step("each", "fail_on_seven", n="{{ iter.n }}", loop=loop)
    each["spec"] = {"policy": {"failure": {"mode": "best_effort"}}}
    return playbook(each, name="looping")


# -- a server --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reply:
    status: int
    json: Any
    headers: Mapping[str, str]
    text: str

    @property
    def code(self) -> str:
        return str(self.json["code"])


class Client:
    """Asks the server and reads everything it says."""

    def __init__(self, session: ClientSession, url: str, parts: Parts, runner: web.AppRunner):
        self.session, self.url, self.parts = session, url, parts
        self.app, self._runner = runner.app, runner

    def unsent(self) -> int:
        """The bytes that wait for somebody to read them."""
        assert self._runner.server is not None
        transports = [one.transport for one in self._runner.server.connections]
        return sum(one.get_write_buffer_size() for one in transports if one is not None)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def ask(self, method: str, path: str, **more: Any) -> Reply:
        address = path if path.startswith("http") else f"{self.url}{API}{path}"
        async with self.session.request(method, address, **more) as response:
            text = await response.text()
            is_json = response.content_type.endswith("json")
            return Reply(response.status, json.loads(text) if is_json else None, response.headers, text)  # fmt: skip  # noqa: E501

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> Reply:
        given = {"json": body} if body is not None else {}
        return await self.ask("POST", path, **given, **more)

    async def start(self, definition: Any, **more: Any) -> str:
        reply = await self.post("/runs", {"definition": definition, **more})
        assert reply.status == 201, reply.text
        return str(reply.json["run"])

    async def ended(self, run: str) -> str:
        """Its status when it has finished."""
        return (await self.parts.engine.wait(run)).status

    async def stands(self, run: str) -> None:
        await self.parts.engine.wait(run, standing=True)


@web.middleware
async def says_who(request: web.Request, handler: Any) -> web.StreamResponse:
    """What the real guards do where no token is asked for."""
    request[ACTOR] = request.headers.get("X-Actor", LOCAL)
    response: web.StreamResponse = await handler(request)
    return response


def toolbox() -> Toolbox:
    tools = Toolbox()

    @tools.tool("fail_on_seven")
    async def fail_on_seven(n: int) -> int:
        if n % 10 == 7:
            raise ValueError(f"{n} ends with a seven")
        return n * 2

    return tools


@asynccontextmanager
async def serving(
    store: str | Path = ":memory:",
    *,
    limits: Limits | None = None,
    tools: Toolbox | None = None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """An engine and the API over it, on a port of the loopback address."""
    chosen, box = elsewhere.moved(Settings(store=str(store), **settings)), tools or toolbox()
    async with elsewhere.owner_beside(chosen, box), served(chosen, box, limits) as client:
        yield client


@asynccontextmanager
async def served(
    chosen: Settings, tools: Toolbox, limits: Limits | None = None
) -> AsyncIterator[Client]:
    kept = open_store(chosen)
    parts = Parts(kept, chosen, tools)
    parts.engine.share_loop(Slices())  # as in any server
    await parts.engine.open()
    app = make_application(parts, chosen, guards=[says_who], limits=limits)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2, lingering_time=0.2)
    try:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with ClientSession() as session:
            yield Client(session, f"http://{host}:{port}", parts, runner)
    finally:
        await runner.cleanup()
        await parts.close(grace_seconds=0)
        kept.close()
