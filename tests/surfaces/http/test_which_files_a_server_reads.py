"""A server reads the files of its folders for the holders of tokens, also where no code runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from anabranch.settings import Settings
from anabranch.surfaces.http.serve import Server
from hangs import HANG_SECONDS

from .support import run

GET = """
metadata: {name: gets}
workflow: [{step: start, tool: {kind: artifact, action: get, uri: "{{ workload.uri }}"}}]
"""


async def statuses(server: Server, uris: list[str]) -> dict[str, str]:
    verbs = server.parts.verbs
    ended = {}
    for uri in uris:
        begun = await verbs.start(GET, {"uri": uri})
        state = await verbs.wait(begun)
        ended[uri] = verbs.read.summary(begun, state)["status"]
    return ended


@pytest.mark.parametrize("setting", ["", "elsewhere"])
def test_a_server_reads_beside_its_store_or_where_it_is_told_to(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
        (folder / "data.txt").write_text("data")
    (home / "runs.db.key").write_text("k" * 40)
    monkeypatch.chdir(tmp_path)
    settings = Settings(
        store=str(home / "runs.db"), serve_port=0, files_allowed=setting, no_inline="shell python"
    )

    async def scenario() -> None:
        async with asyncio.timeout(HANG_SECONDS), Server(settings, mounts=()) as server:
            mine, other = str(home / "data.txt"), str(elsewhere / "data.txt")
            secret = [f"{home}/runs.db.key", "/proc/self/environ", str(home / "runs.db")]
            ended = await statuses(server, [mine, other, *secret])
            allowed = {other} if setting else {mine}
            assert {uri for uri, status in ended.items() if status == "completed"} == allowed

    run(scenario())
