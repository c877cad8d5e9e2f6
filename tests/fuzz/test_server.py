"""Bodies that are nearly right, at every route with one: a refusal in JSON, and no traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from anabranch.operations.webhooks.sender import SendResult, WebhookSender
from anabranch.operations.webhooks.signature import sign
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.openapi import PARAMETERS
from anabranch.surfaces.http.routes import API
from hangs import HANG_SECONDS
from seeds import seeds
from surfaces.cli.server_in_thread import served
from surfaces.http.support import playbook, step

from .bend import LEAVES, bend

JSON = {"Content-Type": "application/json"}
SECRET = "a secret of the shop"
HELD = playbook(
    step("ask", "decision", "each", ask="Go on?"),
    step("each", "noop", "paid", loop={"in": [1, 2], "iterator": "n"}),
    step("paid", "wait", event="paid"),
    name="held",
)
FAR = playbook(step("far", "nobody_here", spec={"pool": "gpu"}), name="far")
ROUND = 100  # requests; then there is a new run, and a new job
OPEN = {"rpc_access": "permit", "chain_id": 1}
#: Answers that wait as long as the body says.
WAITING = re.compile(r"/(claim|wait|watch)$")
ROUTES = [each for each in ALL_ROUTES if each.body is not None and not WAITING.search(each.path)]


async def taken(*_what: Any) -> SendResult:
    """Webhooks are made here, too; nobody on the network is asked."""
    return SendResult(200)


class Asked:
    """A server with something of everything, and a connection to it."""

    def __init__(self, connection: HTTPConnection, now: int) -> None:
        self._connection, self._now = connection, now
        self._names = {name: example for name, (_, example) in PARAMETERS.items()}
        self._job: dict[str, str] = {}

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        self._connection.request(method, path, body, headers)
        reply = self._connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else None

    def make(self) -> None:
        """A definition in the catalog, and a credential, a hook, a schedule and a template."""
        self._post("/credentials", {"name": "shop", "type": "secret", "data": SECRET})
        self._post("/catalog", {"definitions": [{"definition": HELD, "path": "quotes"}]})
        for path in ("/triggers", "/schedules", "/templates"):
            (route,) = (each for each in ROUTES if each.path == API + path)
            path_of = {"path": "quotes"} if "path" in route.example else {}
            self._post(path, {**route.example, **path_of})

    def begin(self) -> None:
        """A run that waits for people, and another with a job that a worker has."""
        begun = self._post("/runs", {"definition": HELD})
        self._names |= {"run": begun["run"], "step": "ask", "gate": "ask", "name": "paid"}
        self._post("/runs", {"definition": FAR})
        claim = {"worker": "gpu-1", "max": 100, "wait_seconds": 20}
        job = self._post("/pools/gpu/claim", claim)["tasks"][-1]
        self._job = {**self._names, **{name: str(job[name]) for name in ("run", "job", "attempt")}}

    def _post(self, path: str, body: Any) -> Any:
        status, answer = self.ask("POST", API + path, json.dumps(body).encode(), JSON)
        assert status in (200, 201), answer
        return answer

    def bent(self, random: Random) -> tuple[str, str, bytes, dict[str, str]]:
        """A request that is nearly right."""
        route = random.choice(ROUTES)
        body = bend(random, msgspec.json.encode(route.example), broken=0.1)
        names = self._job if route.path.startswith(f"{API}/jobs/") else self._names
        if random.random() < 0.05:
            names = dict.fromkeys(names, word(random))
        path = route.path.format_map({name: quote(text, safe="%") for name, text in names.items()})
        if names is self._job:
            path += "?worker=gpu-1"
        headers = JSON
        if path.startswith("/hooks/"):
            headers = {**JSON, "Anabranch-Signature": sign(SECRET, body, self._now)}
        return route.method, path, body, headers


def word(random: Random) -> str:
    return str(random.choice(LEAVES)).encode("utf-8", "replace").decode()[:200] or "x"


@contextmanager
def connected() -> Iterator[Asked]:
    with patch.object(WebhookSender, "post", taken), served(":memory:", **OPEN) as server:
        parts = urlsplit(server.url)
        assert parts.hostname is not None
        with closing(HTTPConnection(parts.hostname, parts.port, timeout=HANG_SECONDS)) as made:
            asked = Asked(made, server.parts.engine.clock.now() // 1000)
            asked.make()
            yield asked


def test_every_answer_is_json_and_nothing_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    with connected() as server:
        for number, seed in enumerate(seeds(10_000)):
            if number % ROUND == 0:
                server.begin()
            request = server.bent(Random(f"server {seed}"))
            status, answer = server.ask(*request)
            assert status < 500 or answer["code"] in ("unavailable", "busy"), (
                seed,
                request,
                answer,
            )
            assert status < 400 or answer["status"] == status, (seed, request)
            bugs = [one for one in caplog.records if one.exc_info or "-32603" in str(answer)]
            assert bugs == [], (seed, request)
