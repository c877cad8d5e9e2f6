"""One process that is a node: the order in which it comes and goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.surfaces.http.node.server import NodeServer
from in_loop import in_loop


def made(path: Path) -> NodeFolder:
    folder = NodeFolder(path)
    folder.create(NodeFile(name="one"))
    KeyFolder.create(folder.keys)
    return folder


class Observed(NodeServer):
    """Keeps what was loaded when it began to listen."""

    loaded: dict[str, int]

    async def _listen(self) -> None:
        self.loaded = self.node.entities.open_counts()
        await super()._listen()


@in_loop
async def test_what_is_open_is_read_before_anyone_can_ask(tmp_path: Path) -> None:
    folder = made(tmp_path / "one")
    async with Observed(folder) as first:
        assert first.loaded == {}
        known = first.node.entities.open_counts()
        assert known
    async with Observed(folder) as second:
        assert second.loaded == known


@in_loop
async def test_the_address_stands_in_the_folder_while_it_runs(tmp_path: Path) -> None:
    folder = made(tmp_path / "one")
    async with NodeServer(folder) as server:
        assert folder.url.read_text() == server.url + "\n"
        assert folder.control_token.stat().st_mode & 0o777 == 0o600
    assert not folder.url.exists()


@in_loop
async def test_a_start_that_fails_leaves_the_folder_free(tmp_path: Path) -> None:
    folder = made(tmp_path / "one")
    (folder.path / "authtok").mkdir()
    with pytest.raises(InputError, match="authtok"):
        async with NodeServer(folder):
            pass
    assert not folder.url.exists()
    (folder.path / "authtok").rmdir()
    async with NodeServer(folder) as server:
        assert server.node.entities.failure is None
