"""Requests that are nearly right, at every route: a refusal in JSON, and no traceback.

First their bodies; then what stands above them, sent over a socket as it is: no client would.
"""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from random import Random
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest

from anabranch.operations.webhooks.sender import SendResult, WebhookSender
from anabranch.operations.webhooks.signature import sign
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.openapi import PARAMETERS
from anabranch.surfaces.http.routes import API, Query, Route
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
#: … or go on for ever.
ENDLESS = re.compile(r"/(stream|drain)$")
ROUTES = [each for each in ALL_ROUTES if each.body is not None and not WAITING.search(each.path)]
HEADED = [
    each for each in ALL_ROUTES if not (WAITING.search(each.path) or ENDLESS.search(each.path))
]
#: Right ones of the headers that a server looks at; `%s` is where it is.
HEADERS: dict[str, tuple[bytes, ...]] = {
    "Origin": (b"http://%s", b"null"),
    "Content-Encoding": (b"identity", b"gzip"),
    "Content-Type": (b"application/json", b"application/json; charset=utf-8"),
    "Accept": (b"application/json", b"text/html,*/*;q=0.8"),
    "If-None-Match": (b'"0"', b'W/"a", "b"', b"*"),
    "Idempotency-Key": (b"order-17",),
    "Authorization": (b"Bearer anb_k3f9x2m7q1ab_0", b"Basic YTpi"),
    "Cookie": (b"anabranch=a; anabranch_form=b",),
    "Sec-Fetch-Site": (b"same-origin", b"none"),
    "X-Forwarded-For": (b"127.0.0.1, ::1",),
    "traceparent": (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",),
    "Anabranch-Signature": (b"t=1,v1=00",),
}
HEAD_BYTES = 8000  # about what a server reads of a line
LINE_ENDS = re.compile(rb"[\r\n]")
#: Refusals of 500 and more that are no bugs; `hook_secret` where the credential is gone.
AWAY = ("unavailable", "busy", "hook_secret")


async def taken(*_what: Any) -> SendResult:
    """Webhooks are made here, too; nobody on the network is asked."""
    return SendResult(200)


class Asked:
    """A server with something of everything, and a connection to it."""

    def __init__(self, connection: HTTPConnection, now: int) -> None:
        self._connection, self._now = connection, now
        self._place = connection.host, connection.port
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

    def headed(self, random: Random) -> bytes:
        """The bytes of a request whose path, query or headers are nearly right."""
        route = random.choice(HEADED)
        names = self._job if route.path.startswith(f"{API}/jobs/") else self._names
        path = route.path.format_map({name: quote(text, safe="%") for name, text in names.items()})
        target = path.encode()
        if random.random() < 0.2:
            target = bend(random, target, broken=1.0)
        if route.query and random.random() < 0.7:
            target += b"?" + self._query(random, route)
        body = msgspec.json.encode(route.example) if route.body is not None else b""
        lines = [
            b"%s %s HTTP/1.1" % (route.method.encode(), _in_one_line(target)),
            b"Host: %s:%d" % (self._place[0].encode(), self._place[1]),
            b"Connection: close",
            b"Content-Length: %d" % len(body),
            *self._headers(random),
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def _query(self, random: Random, route: Route) -> bytes:
        chosen = random.sample(route.query, random.randint(1, min(3, len(route.query))))
        pairs = [(each.name, self._parameter(random, each)) for each in chosen]
        query = urlencode(pairs).encode()
        return bend(random, query, broken=1.0) if random.random() < 0.5 else query

    def _parameter(self, random: Random, query: Query) -> bytes:
        if query.name == "cursor":
            values = bend(random, b'[1760000000000,"run-7"]')
            return base64.urlsafe_b64encode(values * random.choice((1, 1, 1, 500)))
        right = query.example or query.default or random.choice(query.choices or ("1",))
        text = str(right).encode()
        return bend(random, text, broken=1.0) if random.random() < 0.5 else text

    def _headers(self, random: Random) -> Iterator[bytes]:
        for name in random.sample(list(HEADERS), random.randint(1, 3)):
            text = random.choice(HEADERS[name])
            if b"%s" in text:
                text = text % b"%s:%d" % (self._place[0].encode(), self._place[1])
            if random.random() < 0.7:
                text = bend(random, text, broken=1.0)
            yield name.encode() + b": " + LINE_ENDS.sub(b" ", text)

    def send(self, request: bytes) -> tuple[int, Any]:
        """The status, and the answer where it is JSON; 0 where a head was too long to be read to
        its end, so that nothing of the refusal came through."""
        answer = b""
        with (
            socket.create_connection(self._place, HANG_SECONDS) as made,
            suppress(ConnectionError),
        ):
            made.sendall(request)
            while part := made.recv(1 << 16):
                answer += part
        if not answer:
            assert len(request) > HEAD_BYTES, request
            return 0, None
        head, _, body = answer.partition(b"\r\n\r\n")
        is_json = re.search(rb"(?i)content-type: application/(problem.)?json", head)
        return int(head.split(b" ", 2)[1]), json.loads(body) if body and is_json else None


def _in_one_line(target: bytes) -> bytes:
    """What ends the target of a request early would only be another request."""
    return LINE_ENDS.sub(b"%0A", target).replace(b" ", b"%20")


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


def test_whatever_stands_above_a_body_is_answered_and_nothing_is_a_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with connected() as server:
        for number, seed in enumerate(seeds(10_000)):
            if number % ROUND == 0:
                server.begin()
            request = server.headed(Random(f"heads {seed}"))
            status, answer = server.send(request)
            assert status < 500 or (answer or {}).get("code") in AWAY, (seed, request, answer)
            assert answer is None or status < 400 or answer["status"] == status, (seed, request)
            bugs = [one for one in caplog.records if one.exc_info or one.levelname == "ERROR"]
            assert bugs == [], (seed, request)
