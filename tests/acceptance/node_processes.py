"""Nodes as real processes on loopback, the module of docs/node.md, and questions to them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import quick_starts
from anabranch.market.node.check import StreamCheck, check_streams
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.modules.tokens import CONTROL_HEADER
from anabranch.market.node.parts import all_families
from anabranch.store.sqlite.store import SqliteStore
from free_ports import free_port
from hangs import HANG_SECONDS

from .pages import part

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "node.md"


class Answered(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]


class NodeProcess:
    """A node in its folder, over all its processes. Its port stays the same."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder = NodeFolder(folder)
        self.port = more.pop("port", None) or free_port()
        self.folder.create(NodeFile(name=folder.name, port=self.port, **more))
        keys = KeyFolder.create(self.folder.keys)
        self.node_id = keys.identities()["node"]
        self.participant_id = keys.identities()["participant"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: quick_starts.Popen[bytes] | None = None
        self.deaths = 0

    def start(self, *plan: str) -> None:
        """Returns when it listens. `plan` says at which commit it is killed (`mortal_node`)."""
        self.launch(*plan)
        self.await_start()

    def launch(self, *plan: str) -> None:
        (self.folder.path / "armed").unlink(missing_ok=True)
        program = [str(HERE / "mortal_node.py"), str(self.folder.path), *plan]
        plain = ["-m", "anabranch", "node", "serve", "--json", "--node", str(self.folder.path)]
        with (self.folder.path / "log").open("ab") as log:
            self.process = quick_starts.Popen(
                [sys.executable, *(program if plan else plain)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def await_start(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        with self.process.stdout as out:
            assert out.readline(), (self.folder.path / "log").read_text()

    def arm(self) -> None:
        """From now on commits count."""
        (self.folder.path / "armed").touch()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(HANG_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """In order; it ends with exit status 0."""
        assert self.process is not None
        self.process.send_signal(number)
        assert self.process.wait(HANG_SECONDS) == 0, (self.folder.path / "log").read_text()

    def revive(self) -> bool:
        """Start it again where it was killed; whether it was."""
        if self.process is None or self.process.poll() is None:
            return False
        assert self.process.returncode == -9, (self.folder.path / "log").read_text()
        self.deaths += 1
        self.start()
        return True

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answered:
        """As the operator, unless `headers` are given. Raises `OSError` without an answer."""
        if headers is None:
            headers = {CONTROL_HEADER: self.folder.control_token.read_text()}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_SECONDS)
        try:
            link.request(method, path, data, dict(headers))
            answer = link.getresponse()
            raw = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            link.close()
        return Answered(answer.status, json.loads(raw) if raw else None, dict(answer.headers))

    def surely(self, method: str, path: str, body: Any = None) -> Answered:
        """Ask until there is an answer, of this process or the next one."""
        end = time.monotonic() + HANG_SECONDS
        while True:
            try:
                return self.ask(method, path, body)
            except OSError:
                assert time.monotonic() < end, f"{self.folder.path.name} does not answer"
                if not self.revive():
                    time.sleep(0.05)

    def items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.surely("GET", f"{path}?limit=500").body["items"]
        return items

    def check(self) -> StreamCheck:
        """What `anabranch node check` finds in a node that is stopped."""
        store = SqliteStore(self.folder.store)
        try:
            assert store.node_streams is not None
            return check_streams(store.node_streams, all_families())
        finally:
            store.close()


def wait_until(is_so: Callable[[], Any], *nodes: NodeProcess) -> Any:
    """What it comes to once it is so; nodes that were killed meanwhile are started again."""
    end = time.monotonic() + HANG_SECONDS
    while not (found := is_so()):
        assert time.monotonic() < end, "it never came to that"
        for node in nodes:
            node.revive()
        time.sleep(0.05)
    return found


def summaries(folder: Path) -> dict[str, Any]:
    """The executor of the module of the page, with another port; it also writes its pid."""
    blocks = re.findall(r"```python\n(.*?)```", part(PAGE.read_text(encoding="utf-8")), re.DOTALL)
    (program,) = blocks
    first = 'Path(os.environ["ORBIPLEX_MIDDLEWARE_HOME"], "pid").write_text(str(os.getpid()))\n'
    serving = "ThreadingHTTPServer(("
    assert program.count(serving) == 1
    file = folder / "summaries.py"
    file.write_text(program.replace(serving, first + serving), encoding="utf-8")
    return {
        "id": "summaries",
        "launch": {"executable": sys.executable, "args": [str(file)]},
        "http": {"endpoint": f"http://127.0.0.1:{free_port()}", "health_interval_ms": 200},
        "restart_policy": {"max_restarts": 100},
        "auth-token": "X-Summaries-Authtok",
        "grants": ["artifact.delivery.send"],
        "acceptors": [
            {
                "acceptor_id": "summaries.orders",
                "artifact_schema": "service-order.dispatch.request.v1",
            }
        ],
    }


class Market(NamedTuple):
    """Three nodes: a seed directory, a provider with a module, a buyer."""

    seed: NodeProcess
    provider: NodeProcess
    buyer: NodeProcess


#: So that what was interrupted goes on soon.
QUICK = {"retry_seconds_min": 0.1, "retry_seconds_max": 0.5}


def market(folder: Path) -> Market:
    seed = NodeProcess(folder / "seed")
    common: dict[str, Any] = {
        "seeds": (seed.url,), "delivery": QUICK, "peers": {"backoff_max_ms": 300},
        "directory": {"sync_ms": 500},
    }  # fmt: skip
    provider = NodeProcess(folder / "provider", modules=(summaries(folder),), **common)
    buyer = NodeProcess(folder / "buyer", **common)
    return Market(seed, provider, buyer)


def end(nodes: Market) -> None:
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            node.kill()
