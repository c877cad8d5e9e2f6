"""A module as a process calls its host over HTTP with its token: let in, and let do what it may."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import quick_starts
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.modules import part as modules
from anabranch.market.node.modules.part import ModulesPart
from anabranch.market.node.ports import InboundMessage
from anabranch.surfaces.http.node.server import NodeServer
from free_ports import free_port
from hangs import HANG_SECONDS

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[3] / "market/node/modules/child_module.py"


def folder_with_module(path: Path) -> NodeFolder:
    port = free_port()
    module = {
        "id": "m",
        "auth-token": "X-M-Auth",
        "grants": ["workflow.step.completed.publish"],
        "http": {"endpoint": f"http://127.0.0.1:{port}", "startup_timeout_ms": 60_000},
        "launch": {"executable": sys.executable, "args": ["-S", "-E", str(SCRIPT)]},
    }
    folder = NodeFolder(path)
    folder.create(NodeFile(name="n", modules=(module,)))
    KeyFolder.create(folder.keys, ("node", "participant"))
    return folder


def test_a_module_is_let_in_by_its_token_and_does_what_it_may(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = folder_with_module(tmp_path / "n")
        makers = [(modules.make, modules.FAMILIES)]
        async with NodeServer(folder, makers) as server, asyncio.timeout(HANG_SECONDS):
            part = server.node.context.modules
            assert isinstance(part, ModulesPart)
            await part.settled()

            async def ask(path: str, body: Any, token: str = "") -> tuple[int, Any]:
                payload = {"path": path, "body": body, "token": token}
                message = InboundMessage(
                    msg="host", payload=payload, correlation_id="c", remote_node_id="n"
                )
                status, answer = await part.peer_message(message)
                return status, answer

            note = {
                "schema_version": "v1", "capability_id": "notify_emit",
                "level": "info", "title": "hello",
            }  # fmt: skip
            status, answer = await ask("/v1/module/notify", note)
            assert (status, answer["outcome"]) == (200, "emitted")
            status, answer = await ask("/v1/module/notify", note, "a guess")
            assert (status, answer["code"]) == (401, "unauthorized")
            record = {"record": {"run_id": "run:1", "step_id": "s"}}
            published = "/v1/host/capabilities/workflow.step.completed.publish"
            assert (await ask(published, record))[0] == 200
            status, answer = await ask("/v1/host/capabilities/signer.sign", {})
            assert (status, answer["code"]) == (403, "host_capability_forbidden")
            status, answer = await ask("/v1/modules/m/stop", {})
            assert (status, answer["code"]) == (403, "forbidden")

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it outlives its parent")
def test_a_node_that_is_killed_takes_its_modules_along(tmp_path: Path) -> None:
    folder = folder_with_module(tmp_path / "n")
    command = [sys.executable, "-m", "anabranch", "node", "serve", "--node", str(folder.path)]
    with quick_starts.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as node:
        started = folder.path / "middleware/m/starts"
        wait_for(lambda: started.exists() and started.read_text().endswith("\n"))
        pid = int(started.read_text().split()[0])
        node.send_signal(signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid))


def is_zombie(pid: int) -> bool:
    """Ended; whether its parent, who is not us, has looked is no matter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(done: Any) -> None:
    until = time.monotonic() + HANG_SECONDS
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)
