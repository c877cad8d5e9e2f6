"""Two nodes that serve in a thread, one a seed of the other, and what tests ask of them."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from aiohttp import ClientResponse, ClientSession, CookieJar

from anabranch.market.node.api import OPERATOR, Call, Caller
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.modules import part as modules_part
from anabranch.market.node.modules.part import HostCall
from anabranch.market.node.modules.transport import InProcessModule
from anabranch.market.node.node import MakePart
from anabranch.market.node.parts import standard_parts
from anabranch.market.node.ports import NodeContext
from anabranch.modules.kit.entries import executor_entry
from anabranch.surfaces.http.node.server import NodeServer
from free_ports import free_port
from hangs import HANG_SECONDS

from ..support import eventually
from .fake_arca import FakeArca

T = TypeVar("T")


class Served:
    """One node with its pages."""

    def __init__(self, server: NodeServer, run: Any) -> None:
        self.server, self._run = server, run
        self.url = server.url
        self.node_id = server.node.context.signer.node_id
        self.participant_id = server.node.context.signer.participant_id

    @property
    def token(self) -> str:
        return self.server.folder.control_token.read_text()

    def say(self, module: str, path: str, body: Any) -> Any:
        """As a module of the node."""
        caller = Caller("module", module=module, actor=module)
        call = Call(method="POST", path=path, caller=caller, body=body)
        answer = self._run(self.server.node.handle(call))
        assert answer.status < 400, answer.body
        return answer.body

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        call = Call(method=method, path=path, caller=OPERATOR, body=body, query=query)
        answer = self._run(self.server.node.handle(call))
        assert answer.status < 400, answer.body
        return answer.body


MakeModule = Callable[[HostCall], InProcessModule]


def hosting(arca: MakeModule | None) -> list[MakePart]:
    """The parts of a node; its module `arca` is what this makes."""

    def make(context: NodeContext) -> modules_part.ModulesPart:
        made = modules_part.make(context)
        if arca is not None:
            made.attach("arca", arca(made.host_for("arca")))
        return made

    return [
        (make if one is modules_part.make else one, families) for one, families in standard_parts()
    ]


class TwoNodes:
    """`provider` is the seed of `buyer`; both serve until the end."""

    def __init__(
        self,
        folder: Path,
        names: tuple[str, str] = ("provider", "buyer"),
        modules: Any = (),
        arca: FakeArca | None = None,
        hosted: MakeModule | None = None,
        **buyer: Any,
    ) -> None:
        """`modules` are programs at the provider. `arca` stands in for Arca at the buyer, whose
        configuration has these sections; `hosted` makes the real one for both nodes."""
        self._sections, self._hosted = buyer, hosted
        self._folder, self._names, self._modules = folder, names, tuple(modules)
        self._arca = arca
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[NodeServer] = []

    def __enter__(self) -> TwoNodes:
        self._thread.start()
        own = executor_entry("arca", in_process=True)
        real = (own,) if self._hosted else ()
        modules = (*self._modules, *real)
        self.provider = self._start("provider", self._names[0], self._hosted, modules=modules)
        fake = ({**own, "acceptors": []},) if self._arca else real
        offers = {"federation": [self.provider.node_id]}  # no stranger to the buyer
        sections = {"offers": offers, **self._sections}
        sections |= {"modules": fake, "seeds": (self.provider.url,)}
        arca = self._arca
        make = (lambda _host: arca) if arca else self._hosted
        self.buyer = self._start("buyer", self._names[1], make, **sections)
        return self

    def _start(self, folder: str, name: str, arca: MakeModule | None, **more: Any) -> Served:
        made = NodeFolder(self._folder / folder)
        made.create(NodeFile(name=name, **more))
        KeyFolder.create(made.keys)
        server = NodeServer(made, hosting(arca))
        self.call(server.start())
        self._servers.append(server)
        return Served(server, self.call)

    def __exit__(self, *_exc: object) -> None:
        for server in reversed(self._servers):
            self.call(server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(HANG_SECONDS)


def words(markup: str) -> str:
    """What a person reads of it."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def section(markup: str, name: str) -> str:
    """The section with this id, as markup."""
    found = re.search(f'<section[^>]* id="{re.escape(name)}".*?</section>', markup, re.DOTALL)
    assert found is not None, name
    return found[0]


def links(markup: str) -> list[str]:
    return [html.unescape(one) for one in re.findall('href="([^"]*)"', markup)]


class Browser:
    """Requests as a browser sends them, over one jar of cookies."""

    def __init__(self, nodes: TwoNodes, node: Served) -> None:
        self._call, self.node = nodes.call, node
        self._session = nodes.call(self._opened())

    async def _opened(self) -> ClientSession:
        return ClientSession(cookie_jar=CookieJar(unsafe=True))

    def close(self) -> None:
        self._call(self._session.close())

    def send(self, method: str, path: str, **more: Any) -> tuple[ClientResponse, str]:
        async def sent() -> tuple[ClientResponse, str]:
            url = f"{self.node.url}{path}"
            async with self._session.request(method, url, allow_redirects=False, **more) as found:
                return found, await found.text()

        return self._call(sent())

    def secret(self, path: str = "/login") -> str:
        found = re.search('name="csrf" value="([^"]+)"', self.send("GET", path)[1])
        assert found is not None
        return found[1]

    def post(self, path: str, fields: dict[str, str], **headers: str) -> tuple[ClientResponse, str]:
        data = urlencode(fields)
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, data=data, headers={**kind, **headers})

    def page(self, path: str) -> str:
        found, text = self.send("GET", path)
        assert found.status == 200, (path, found.status, words(text))
        return text

    def fill(self, at: str, path: str, **fields: str) -> tuple[ClientResponse, str]:
        """Send a form that stands on the page `at`."""
        return self.post(path, {"csrf": self.secret(at), **fields})

    def sign_in(self) -> ClientResponse:
        fields = {"csrf": self.secret(), "token": self.node.token, "next": "/ledger"}
        return self.post("/login", fields)[0]


CHILD = Path(__file__).parents[3] / "market/node/modules/child_module.py"


def module_config(name: str, executable: str = sys.executable) -> dict[str, Any]:
    port = free_port()
    return {
        "id": name,
        "auth-token": "X-M-Auth",
        "grants": ["workflow.step.completed.publish"],
        "http": {"endpoint": f"http://127.0.0.1:{port}", "startup_timeout_ms": 60_000},
        "launch": {"executable": executable, "args": ["-S", "-E", str(CHILD)]},
    }


OFFER = {
    "offer/id": "offer:summaries",
    "service/type": "text/summarise",
    "service/description": "A summary of a text",
    "pricing/amount": 250,
    "confirmation/mode": "self-confirmed",
}


def trade(nodes: TwoNodes, offer: dict[str, Any], amount: int = 10_000) -> None:
    """The buyer knows the offer of the provider, and has money."""
    nodes.provider.ask("POST", "/v1/service-offers", offer)
    trusted = {"participant_id": nodes.provider.participant_id}
    nodes.buyer.ask("POST", "/v1/trusted-providers", trusted)
    nodes.buyer.ask("POST", "/v1/service-offers/fetch", {"node_id": nodes.provider.node_id})
    nodes.buyer.ask("POST", "/v1/ledger/top-up", {"amount": amount})


def place(nodes: TwoNodes, offer_id: str, **more: Any) -> str:
    """An order of the buyer that the provider has received; its execution."""
    placed = nodes.buyer.ask("POST", "/v1/orders", {"offer_id": offer_id, **more})
    eventually(lambda: request_for(nodes, placed["order_id"]))
    execution: str = placed["execution_id"]
    return execution


def request_for(nodes: TwoNodes, order_id: str) -> str:
    """The request in the inbox of the provider, "" while there is none."""
    waiting = nodes.provider.ask("GET", "/v1/inbox", open="true")["items"]
    return next((one["id"] for one in waiting if one["order/id"] == order_id), "")


def answer(nodes: TwoNodes, execution: str, body: dict[str, Any]) -> None:
    """By the provider; returns when the buyer has the result."""
    order_id = execution.replace("execution:", "order:")
    nodes.provider.ask("POST", f"/v1/inbox/{request_for(nodes, order_id)}/answer", body)
    assert eventually(lambda: state_of(nodes, execution) not in ("dispatched", "dispatch_prepared"))


def state_of(nodes: TwoNodes, execution: str) -> str:
    state: str = nodes.buyer.ask("GET", f"/v1/executions/{execution}")["state"]
    return state
