"""A small service for playbooks to talk to: a clinic group with facilities, patients and notices.

It listens on the loopback only. Every run talks to it under a prefix of its own and has its own
memory there, so that runs do not see one another.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

FACILITIES = [
    {"id": "north", "beds": 40},
    {"id": "south", "beds": 25},
    {"id": "harbour", "beds": 60},
]
PATIENTS = {
    "north": [{"id": f"n{number}", "visits": number} for number in range(1, 6)],
    "south": [{"id": f"s{number}", "visits": 2 * number} for number in range(1, 4)],
    "harbour": [],
}
PAGE = 2
SCRIPTS = {
    "beds.sql": "select 40 + 25 as beds;",
    "beds.py": "def main(north, south):\n    return {'beds': north + south}\n",
}
TOKEN = "token-of-the-clinic"


class Memory:
    """What one prefix has seen."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.notices: list[dict[str, Any]] = []


class Clinic(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.memories: defaultdict[str, Memory] = defaultdict(Memory)
        self._prefixes = 0

    def address(self) -> str:
        """A fresh prefix."""
        self._prefixes += 1
        return f"http://127.0.0.1:{self.server_address[1]}/{self._prefixes}"


class Handler(BaseHTTPRequestHandler):
    server: Clinic

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def _answer(self) -> None:
        address = urlsplit(self.path)
        _, prefix, place, *rest = address.path.split("/")
        self.query = dict(parse_qsl(address.query))
        self.memory = self.server.memories[prefix]
        self.prefix = prefix
        length = int(self.headers.get("content-length") or 0)
        self.body = self.rfile.read(length).decode()
        self.memory.calls[address.path] += 1
        self.count = self.memory.calls[address.path]
        answer = getattr(self, f"at_{place}", None)
        if answer is None:
            self._send(404, {"error": f"there is no {place}"})
        else:
            answer(*rest)

    def _send(self, status: int, value: Any, **headers: str) -> None:
        self._send_text(status, json.dumps(value), "application/json", **headers)

    def _send_text(self, status: int, text: str, kind: str, **headers: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(content)

    # -- places ------------------------------------------------------------------------------

    def at_facilities(self, facility: str = "", _patients: str = "") -> None:
        """All facilities, or the patients of one, page by page."""
        if not facility:
            return self._send(200, {"items": FACILITIES})
        if facility not in PATIENTS:
            return self._send(404, {"error": f"there is no facility {facility}"})
        page = int(self.query.get("page", self.query.get("token", "1")))
        offset = int(self.query.get("offset", (page - 1) * PAGE))
        patients = PATIENTS[facility]
        found = patients[offset : offset + PAGE]
        more = page * PAGE < len(patients)
        following = f"/{self.prefix}/facilities/{facility}/patients?page={page + 1}"
        links = {"next": following, "token": page + 1} if more else {"next": None, "token": None}
        self._send(200, {"data": found, "page": page, "more": more, **links})
        return None

    def at_flaky(self, fails: str = "1", status: str = "503") -> None:
        """Fails so many times, then works."""
        if self.count <= int(fails):
            return self._send(int(status), {"error": "come back later"}, Retry_After="0")
        self._send(200, {"calls": self.count})
        return None

    def at_slow(self, seconds: str) -> None:
        time.sleep(float(seconds))
        self._send(200, {"slept": seconds})

    def at_notices(self) -> None:
        """Keeps what is posted, once for each idempotency key."""
        if self.command == "GET":
            return self._send(200, {"notices": self.memory.notices})
        key = self.headers.get("idempotency-key")
        if all(notice["key"] != key for notice in self.memory.notices):
            self.memory.notices.append({"key": key, "text": self.body})
        self._send(201, {"count": len(self.memory.notices)})
        return None

    def at_echo(self) -> None:
        headers = {name.lower(): text for name, text in self.headers.items()}
        self._send(
            200,
            {
                "method": self.command,
                "query": self.query,
                "body": self.body,
                "type": headers.get("content-type"),
                "trace": headers.get("x-trace"),
            },
        )

    def at_script(self, name: str) -> None:
        """Code and SQL, as text."""
        if name not in SCRIPTS:
            return self._send(404, {"error": f"there is no script {name}"})
        content = SCRIPTS[name].encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None

    def at_token(self) -> None:
        fields = dict(parse_qsl(self.body))
        if fields.get("client_secret") != "s3cret-of-the-loader":
            return self._send(401, {"error": "invalid_client"})
        self._send(200, {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600})
        return None

    def at_whoami(self) -> None:
        scheme, _, value = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and value == TOKEN:
            return self._send(200, {"user": "loader", "scheme": "bearer"})
        if scheme.lower() == "basic":
            user = base64.b64decode(value).decode().partition(":")[0]
            return self._send(200, {"user": user, "scheme": "basic"})
        self._send(401, {"error": "who are you?"})
        return None

    def at_scripts(self, name: str) -> None:
        scripts = {"seven.sql": "select 7 as n", "seven.py": "print(7)"}
        self._send_text(200, scripts[name], "text/plain")

    def at_moved(self) -> None:
        self._send(302, {}, Location=f"/{self.prefix}/facilities")


@contextmanager
def open_clinic() -> Iterator[Clinic]:
    with Clinic() as clinic:
        thread = threading.Thread(target=clinic.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield clinic
        finally:
            clinic.shutdown()
            thread.join()
