"""Large values reach work on a cluster, and those of its results the store, by every way."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.cancel import cancel_and_wait
from anabranch.operations.workers.leases import LeaseClaim
from anabranch.parts import Parts
from anabranch.pools import worker_entry
from anabranch.pools.assignment import Missing, Outcome, ValuesPlace, decode_said
from anabranch.pools.values import packing
from anabranch.pools.values.folder import KEPT_SECONDS
from anabranch.work.kinds.callables import Toolbox
from surfaces.worker.support import playbook, serving, until
from surfaces.worker.test_kinds import tasks

from .entry_support import Dispatch, Entry, HereEntry, dispatching, ended, run

LARGE = 300_000

#: A large result of the engine is the input of the work, and its large result that of the engine.
THERE_AND_BACK = playbook("""
  - step: near
    tool: {kind: python, code: "result = {'text': 'x' * 300_000, 'n': 7}"}
    next: {arcs: [{step: far}]}
  - step: far
    spec: {pool: gpu}
    tool:
      kind: python
      args: {given: "{{ steps.near }}"}
      code: "result = {'text': given['text'][::-1] + 'y', 'n': given['n'] + 1}"
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, result: ["{{ steps.far.text | length }}", "{{ steps.far.n }}"]}
""")
MANY = playbook("""
  - step: near
    tool: {kind: python, code: "result = {'text': 'x' * 300_000}"}
    next: {arcs: [{step: each}]}
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 1, max_concurrent: 1}}
    loop: {in: {range: 8}, iterator: n}
    tool:
      kind: noop
      result: "{{ iter.n + (steps.near.text | length) }}"
""")


@asynccontextmanager
async def dispatched(
    mode: str, entry: Entry, folder: Path, **given: Any
) -> AsyncIterator[tuple[Parts, Dispatch]]:
    """An engine whose pool keeps its values in this place."""
    async with serving(**given) as server:
        place = ValuesPlace(
            mode=mode, url={"server": server.url, "folder": str(folder)}.get(mode, "")
        )
        async with dispatching(server.parts, entry, place) as dispatch:
            yield server.parts, dispatch


@pytest.mark.parametrize("mode", ["cluster", "folder", "server"])
def test_large_values_go_there_and_come_back(entry: Entry, mode: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with dispatched(mode, entry, tmp_path) as (parts, dispatch):
            found = await ended(parts, THERE_AND_BACK)
            assert found["result"] == [LARGE + 1, 8], found
            carried = sum(map(len, dispatch.blobs)), sum(map(len, dispatch.outcomes))
            if mode == "cluster":
                assert min(carried) > LARGE
            else:
                assert max(carried) < LARGE // 10, "only refs travel"

    run(scenario())


@pytest.mark.parametrize("mode", ["cluster", "folder", "server"])
def test_a_checkpoint_or_result_that_is_large_is_kept_for_the_run(
    entry: Entry, mode: str, tmp_path: Path
) -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool:
      - {name: put, kind: artifact, action: put, data: "{{ workload.rows }}"}
      - {kind: artifact, action: get, uri: "{{ put.uri }}"}
      - {kind: noop, result: "{{ [_prev | length, put.uri] }}"}
    next: {arcs: [{step: near}]}
  - step: near
    tool:
      - {kind: artifact, action: get, uri: "{{ steps.far[1] }}"}
      - {kind: noop, result: "{{ _prev | length }}"}
""")

    async def scenario() -> None:
        async with dispatched(mode, entry, tmp_path) as (parts, _dispatch):
            found = await ended(parts, text, rows=[{"n": n, "t": "x" * 100} for n in range(2000)])
            assert found["result"] == 2000, found

    run(scenario())


def test_a_value_travels_once_to_a_process_and_not_with_every_job(here: HereEntry) -> None:
    async def scenario() -> None:
        async with dispatched("cluster", here, Path()) as (parts, dispatch):
            found = await ended(parts, MANY)
            assert found["status"] == "completed", found
            heavy = [blob for blob in dispatch.blobs if len(blob) > LARGE]
            assert len(dispatch.tickets) == 8
            assert len(heavy) == 1
            light = sum(len(blob) for blob in dispatch.blobs) - len(heavy[0])
            assert light < 8 * 5000, "definition and names travel once as well"

    run(scenario())


def test_a_process_that_lost_its_parts_asks_for_them(here: HereEntry) -> None:
    async def scenario() -> None:
        async with dispatched("cluster", here, Path()) as (parts, dispatch):
            await ended(parts, MANY)
            worker_entry.close()  # another process in its place
            found = await ended(parts, MANY)
            assert found["status"] == "completed", found
            assert any(isinstance(one, Missing) for one in dispatch.answers)
            assert len([one for one in dispatch.answers if isinstance(one, Outcome)]) == 16

    run(scenario())


def test_values_are_copied_to_the_folder_once_and_come_back_when_they_are_lost(
    here: HereEntry, tmp_path: Path
) -> None:
    def files() -> list[Path]:
        return [one for one in tmp_path.rglob("*") if one.is_file()]

    async def scenario() -> None:
        async with dispatched("folder", here, tmp_path) as (parts, dispatch):
            await ended(parts, MANY)
            (file,) = files()
            written = file.stat().st_mtime_ns
            file.write_bytes(b"damaged")
            os.utime(file, ns=(written, written))
            worker_entry.close()  # what it kept in memory is gone
            found = await ended(parts, MANY)
            assert found["status"] == "completed", found
            assert any(isinstance(one, Missing) for one in dispatch.answers)
            await until(lambda: not dispatch.running)
            long_ago = time.time() - 2 * KEPT_SECONDS
            os.utime(files()[0], (long_ago, long_ago))
            assert await dispatch.packer.sweep() == 1
            assert files() == []

    run(scenario())


# -- what needs the engine -------------------------------------------------------------------

RESULTS = playbook("""
  - step: each
    spec: {loop_mode: fanout, fanout: {shard_size: 5}}
    loop: {in: {range: 12}, iterator: n}
    tool: {kind: noop, result: "{{ iter.n }}"}
    next: {arcs: [{step: far}]}
  - step: far
    spec: {pool: gpu}
    tool:
      - {kind: artifact, action: get, uri: "{{ steps.each.refs }}"}
      - {kind: noop, result: "{{ _prev }}"}
""")


@pytest.fixture
def child_file(tmp_path: Path) -> str:
    file = tmp_path / "child.yaml"
    file.write_text(playbook("  - {step: only, tool: {kind: noop, result: 5}}"))
    return str(file)


def test_work_that_asks_a_server_reads_results_and_begins_children(
    entry: Entry, child_file: str, tmp_path: Path
) -> None:
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: playbook, path: {child_file}, return_step: only}}
""")

    async def scenario() -> None:
        async with dispatched("server", entry, tmp_path) as (parts, _dispatch):
            assert (await ended(parts, RESULTS))["result"]["results"] == list(range(12))
            found = await ended(parts, text)
            assert found["result"]["result"] == 5, found

    run(scenario())


@pytest.mark.parametrize("mode", ["cluster", "folder"])
def test_what_needs_the_engine_fails_with_a_word_on_what_to_set(
    entry: Entry, mode: str, child_file: str, tmp_path: Path
) -> None:
    children = playbook(f"""
  - {{step: far, spec: {{pool: gpu}}, tool: {{kind: playbook, path: {child_file}, wait: true}}}}
""")
    payload = tasks(
        "{kind: noop}",
        "{kind: artifact, action: get, uri: \"anabranch:sha256:{{ '0' * 64 }}\"}",
    )
    keychain = playbook(
        """
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, args: {key: "{{ keychain.far_key }}"}, code: "result = len(key)"}
""",
        keychain="[{name: far_key, kind: credential, credential: no_such_one}]",
    )

    async def failure(parts: Parts, text: str) -> str:
        found = await ended(parts, text)
        assert found["status"] == "failed", found
        (fault,) = found["failures"]
        assert not fault["retryable"]
        return str(fault["message"])

    async def scenario() -> None:
        async with dispatched(mode, entry, tmp_path / "values") as (parts, _dispatch):
            assert "values=server" in await failure(parts, RESULTS)
            assert "values=server" in await failure(parts, children)
            if mode == "cluster":
                assert "values=server" in await failure(parts, payload)
            assert "values=server" in await failure(parts, keychain)

    run(scenario())


def test_a_server_that_gave_the_job_to_another_ends_the_work(here: HereEntry) -> None:
    toolbox = Toolbox()

    async def scenario() -> None:
        async with serving(toolbox=toolbox) as server:
            place = ValuesPlace(mode="server", url=server.url)
            dispatch = Dispatch(server.parts, here, place, [])
            await server.start(THERE_AND_BACK)
            claimed = await dispatch.api.claim("gpu", "gpu@test:1", wait_seconds=20.0)
            (leased,) = claimed.tasks
            names = dispatch.packer.names(claimed.runs[leased.run])
            out = LeaseClaim(*leased.id, "gpu@test:1")
            blob = await dispatch.packer.pack("far-1", out, leased, names)
            await dispatch.api.release(out, "its lease ran out")
            said = decode_said(await here.perform(blob, lambda _verb, _words: None))
            assert isinstance(said, Outcome)
            assert said.verb == "release"

    run(scenario())


def test_the_folder_is_swept_while_the_engine_lives(
    here: HereEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "SWEEP_SECONDS", 0.01)

    async def scenario() -> None:
        async with dispatched("folder", here, tmp_path) as (parts, dispatch):
            await ended(parts, MANY)
            (file,) = [one for one in tmp_path.rglob("*") if one.is_file()]
            long_ago = time.time() - 2 * KEPT_SECONDS
            sweeping = asyncio.ensure_future(dispatch.packer.keep_swept())
            os.utime(file, (long_ago, long_ago))
            await until(lambda: not file.exists())
            await cancel_and_wait(sweeping)
        async with dispatched("cluster", here, tmp_path) as (_parts, dispatch):
            await dispatch.packer.keep_swept()  # there is nothing to sweep

    run(scenario())
