"""A module as a process of its own, for tests: small, and as bad as its first argument says.

    python child_module.py MODE

It knows its endpoint, its tokens and its folders from the environment alone.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
HOME = Path(os.environ["ORBIPLEX_MIDDLEWARE_HOME"])
MODULE = os.environ["ORBIPLEX_MIDDLEWARE_MODULE_ID"]
TOKEN = Path(os.environ["ORBIPLEX_MIDDLEWARE_AUTHTOK_FILE"]).read_text()
HEADER = os.environ["ORBIPLEX_MIDDLEWARE_AUTH_HEADER"]


def report() -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "module_id": "someone-else" if MODE == "lies" else MODULE,
        "input_chains": [
            {"chain": "inbound-peer"},
            {"chain": "inbound-local", "local_routes": ["GET state"]},
        ],
        "host_capability_handlers": [{"capability_id": "test.huge", "invoke_path": "/huge"}],
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        print(format % args, flush=True)

    def do_GET(self) -> None:
        sick = self.path == "/healthz" and (HOME / "sick").exists()
        self.answer(500 if sick else 200, {"status": "ok"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length))
        if self.headers.get(HEADER) != TOKEN:
            self.answer(401, {})
        elif self.path == "/v1/middleware/init":
            self.init()
        elif self.path == "/huge":
            self.answer(200, "x" * 10_000_000)
        else:
            self.invoke(body)

    def init(self) -> None:
        if MODE == "silent":
            time.sleep(3600)
        if MODE == "huge":
            self.answer(200, {"x": "y" * 10_000_000})
        elif MODE == "deep":
            tree = '{"NOT":' * 10_000 + '{"msg":"x"}' + "}" * 10_000
            chains = f'[{{"chain":"pre-input","filter":{tree}}}]'
            self.send(f'{{"schema_version":"v1","module_id":"m","input_chains":{chains}}}'.encode())
        else:
            self.answer(200, report())

    def invoke(self, body: Any) -> None:
        if body.get("msg") == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if body.get("msg") == "leave":
            os._exit(0)
        if body.get("msg") == "hang":
            time.sleep(3600)
        if body.get("msg") == "listen":
            keep.append(listening(0))
        if body.get("msg") == "host":
            answer = ask_host(**body["payload"])
            self.answer(200, {"decision": "return", "reason": "asked", "patch": answer})
            return
        facts = {"pid": os.getpid(), "env": dict(os.environ)}
        patch = {"status": 200, "body": facts} if "method" in body else facts
        self.answer(200, {"decision": "return", "reason": "a test", "patch": patch})

    def answer(self, status: int, body: Any) -> None:
        self.send(json.dumps(body).encode(), status)

    def send(self, data: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def ask_host(path: str, body: Any, token: str = "") -> list[Any]:
    """As a module does: URL, header and token are in the environment."""
    file = Path(os.environ["ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE"])
    request = urllib.request.Request(
        os.environ["ORBIPLEX_HOST_CAPABILITY_BASE_URL"] + path,
        data=json.dumps(body).encode(),
        headers={
            os.environ["ORBIPLEX_HOST_CAPABILITY_AUTH_HEADER"]: token or file.read_text(),
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request) as response:
            return [response.status, json.load(response)]
    except urllib.error.HTTPError as error:
        with error:
            return [error.code, json.load(error)]


keep: list[socket.socket] = []


def listening(port: int) -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", port))
    found.listen()
    return found


def main() -> None:
    print("token", TOKEN, flush=True)  # a module that does not keep its secret
    with (HOME / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if MODE == "crash":
        sys.exit(3)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "own-port":
        keep.append(listening(0))
    port = urlsplit(os.environ["ORBIPLEX_MIDDLEWARE_ENDPOINT"]).port or 0
    host = "0.0.0.0" if MODE == "exposed" else "127.0.0.1"
    if MODE == "elsewhere":
        port = 0
    ThreadingHTTPServer((host, port), Handler).serve_forever()


if __name__ == "__main__":
    main()
