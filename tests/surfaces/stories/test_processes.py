"""Nodes of a story as processes: they wait at an arrow where they are told to, and nothing of them
outlives the story."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.surfaces.stories.arrows import Hold, When
from anabranch.surfaces.stories.free_ports import free_ports
from anabranch.surfaces.stories.processes import NodeAway, NodeProcess, StoryFailed, until
from hangs import HANG_SECONDS

pytestmark = pytest.mark.slow

OFFER = {
    "offer/id": "offer:x", "service/type": "text/x", "service/description": "x",
    "pricing/amount": 1, "pricing/currency": "ORC",
}  # fmt: skip
#: A story that starts a node and then hears nothing more.
STORY = """
import asyncio, sys
from pathlib import Path
import aiohttp
from anabranch.market.node.folder import NodeFolder
from anabranch.surfaces.stories.processes import NodeProcess

async def main():
    async with aiohttp.ClientSession() as session:
        node = NodeProcess(NodeFolder(sys.argv[1]), session)
        node.start()
        await node.ready()
        print(node.pid, flush=True)
        await asyncio.sleep(100_000)

asyncio.run(main())
"""


@asynccontextmanager
async def one_node(path: Path) -> AsyncIterator[NodeProcess]:
    async with aiohttp.ClientSession() as session:
        file = NodeFile(name="one", port=free_ports(1)[0])
        node = NodeProcess.create(NodeFolder(path / "one"), file, {}, session)
        try:
            yield node
        finally:
            await node.stop()


def is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_node_is_started_asked_and_stopped_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with one_node(tmp_path) as node:
            node.start()
            await node.ready()
            assert (await node.ask("GET", "/v1/status"))["node_id"] == node.node_id
            pid = node.pid
            assert await node.stop() == 0
            assert is_gone(pid)
            with pytest.raises(NodeAway):
                await node.ask("GET", "/v1/status")

    asyncio.run(scenario())


@pytest.mark.parametrize(("when", "published"), [("before", 0), ("after", 1)])
def test_a_node_that_is_killed_at_an_arrow_has_it_on_its_disk_or_not(
    tmp_path: Path, when: When, published: int
) -> None:
    async def scenario() -> None:
        async with one_node(tmp_path) as node:
            node.start(held=True)
            await node.ready()
            node.hold(Hold("offer", when))
            publishing = asyncio.ensure_future(node.ask("POST", "/v1/service-offers", OFFER))
            await until(lambda: _is(node.is_held), HANG_SECONDS, "the arrow")
            assert not publishing.done(), "nothing leaves a node that waits"
            await node.kill()
            node.release()
            with pytest.raises(NodeAway):
                await publishing
            await node.revive()
            assert len(await node.items("/v1/service-offers", of="offers")) == published
            assert node.deaths == 1

    asyncio.run(scenario())


def test_a_node_that_is_let_go_goes_on_from_the_arrow(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with one_node(tmp_path) as node:
            node.start(held=True)
            await node.ready()
            node.hold(Hold("offer", "after"))
            publishing = asyncio.ensure_future(node.ask("POST", "/v1/service-offers", OFFER))
            await until(lambda: _is(node.is_held), HANG_SECONDS, "the arrow")
            node.release()
            assert (await publishing)["status"] == "stored"
            await until(lambda: _is(not node.is_held), HANG_SECONDS, "it to go on")

    asyncio.run(scenario())


def test_a_node_that_cannot_start_fails_the_story_with_what_it_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with one_node(tmp_path) as node:
            (node.folder.path / "node.json").write_text('{"name": "one", "ports": 1}')
            node.start()
            with pytest.raises(StoryFailed, match=r"does not start[\s\S]*ports"):
                await node.ready()

    asyncio.run(scenario())


def test_a_story_that_is_killed_takes_its_nodes_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with one_node(tmp_path):
            pass

    asyncio.run(scenario())
    command = [sys.executable, "-c", STORY, str(tmp_path / "one")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as story:
        assert story.stdout is not None
        pid = int(story.stdout.readline())
        assert not is_gone(pid)
        os.kill(story.pid, signal.SIGKILL)
    end = time.monotonic() + HANG_SECONDS
    while not is_gone(pid):
        assert time.monotonic() < end, "the node outlives its story"
        time.sleep(0.02)


async def _is(value: bool) -> bool:
    return value
