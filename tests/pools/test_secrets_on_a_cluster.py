"""Secrets reach the work that needs them, and nothing that a cluster shows or a log keeps."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch.parts import Parts
from anabranch.pools.assignment import ValuesPlace
from anabranch.pools.entry.tools import tools_to_send
from anabranch.work.kinds.callables import default_toolbox
from surfaces.worker.support import playbook, until

from . import cluster_tools
from .entry_support import (
    CLUSTER,
    ChildEntry,
    Dispatch,
    HereEntry,
    child_entry,
    dispatching,
    ended,
    engine,
    run,
)

SECRET = "very-secret-token-4711"
KEYCHAIN = "[{name: far_key, kind: env, variable: FAR_TOKEN}]"
USES = playbook(
    """
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, args: {key: "{{ keychain.far_key }}"}, code: "result = [len(key), key]"}
""",
    keychain=KEYCHAIN,
)
LOUD = playbook(
    """
  - step: far
    spec: {pool: gpu}
    tool: {kind: cluster_loud, args: {key: "{{ keychain.far_key }}"}}
""",
    keychain=KEYCHAIN,
)


def shown(dispatch: Dispatch) -> str:
    """What a cluster may print of its tasks: their names, their arguments and results, and what
    they tell, word by word."""
    told = [(verb, bytes(words)) for verb, words in dispatch.told]
    parts = (dispatch.tickets, dispatch.blobs, dispatch.outcomes, dispatch.answers, told)
    return "\n".join(f"{part!r} {part!s}" for part in parts)


def kept(parts: Parts) -> str:
    """Everything that the engine has recorded."""
    runs = [head["run"] for head in parts.verbs.read.runs()]
    return repr([parts.verbs.read.events(one) for one in runs])


def sent(dispatch: Dispatch) -> bytes:
    return b"".join(map(bytes, dispatch.blobs))


def received(dispatch: Dispatch) -> bytes:
    return b"".join(map(bytes, dispatch.outcomes))


def log_of(entry: ChildEntry | HereEntry) -> str:
    return entry.errors.decode() if isinstance(entry, ChildEntry) else ""


@pytest.mark.parametrize("values", ["cluster", "folder"])
def test_a_keychain_is_resolved_on_the_cluster_and_its_secrets_stay_there(
    values: str, tmp_path: Path
) -> None:
    async def scenario(entry: ChildEntry) -> None:
        place = ValuesPlace(mode=values, url=str(tmp_path) if values == "folder" else "")
        async with engine() as parts, dispatching(parts, entry, place) as dispatch:
            found = await ended(parts, USES)
            assert found["result"] == [len(SECRET), "***"], found
            assert SECRET.encode() not in sent(dispatch) + received(dispatch)
            assert SECRET not in shown(dispatch) + kept(parts)
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert not [file for file in files if SECRET.encode() in file.read_bytes()]

    with child_entry({"FAR_TOKEN": SECRET}) as entry:
        run(scenario(entry))
        assert SECRET not in log_of(entry)


def test_a_secret_that_the_machine_lacks_is_named_and_not_asked_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAR_TOKEN", SECRET)  # of the engine

    async def scenario(entry: ChildEntry) -> None:
        async with engine() as parts, dispatching(parts, entry) as dispatch:
            found = await ended(parts, USES)
            (failure,) = found["failures"]
            assert "FAR_TOKEN" in failure["message"], failure
            assert SECRET.encode() not in sent(dispatch) + received(dispatch)

    with child_entry() as entry:
        run(scenario(entry))


def test_what_work_says_about_its_secret_is_in_no_outcome_and_no_log() -> None:
    """It fails with the secret in its message, and writes it to a log of ours."""
    tools = tools_to_send([cluster_tools.__name__])

    async def scenario(entry: ChildEntry) -> None:
        async with (
            engine(default_toolbox) as parts,
            dispatching(parts, entry, CLUSTER, *tools) as dispatch,
        ):
            found = await ended(parts, LOUD)
            (failure,) = found["failures"]
            assert "cannot use ***" in failure["message"], failure
            assert SECRET.encode() not in received(dispatch)
            assert SECRET not in shown(dispatch) + kept(parts)

    tests = Path(__file__).parent.parent
    with child_entry({"FAR_TOKEN": SECRET}, tests) as entry:
        run(scenario(entry))
    assert "the key is ***" in log_of(entry), "the log was written"
    assert SECRET not in log_of(entry)


def test_a_secret_sealed_for_a_child_travels_inside_the_bytes_and_shows_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_TOKEN", SECRET)  # of the engine, which begins the child
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook("""
  - step: only
    spec: {pool: gpu}
    tool: {kind: python, args: {p: "{{ workload.password }}"}, code: "result = [len(p), p]"}
  - step: another
    spec: {pool: gpu}
    tool: {kind: noop, result: 1}
""")
    )
    text = playbook(
        f"""
  - step: near
    tool:
      kind: playbook
      path: {child}
      args: {{password: "{{{{ keychain.far_key }}}}"}}
      return_step: only
""",
        keychain=KEYCHAIN,
    )

    async def scenario(entry: ChildEntry) -> None:
        async with engine() as parts, dispatching(parts, entry) as dispatch:
            found = await ended(parts, text)
            assert found["result"]["result"] == [len(SECRET), "***"], found
            assert SECRET.encode() in sent(dispatch), "the work has to read it"
            assert SECRET.encode() not in received(dispatch)
            assert SECRET not in shown(dispatch) + kept(parts)

    with child_entry() as entry:
        run(scenario(entry))
        assert SECRET not in log_of(entry)


def test_no_secret_is_in_the_progress_that_is_told(
    here: HereEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_TOKEN", SECRET)
    monkeypatch.setattr(default_toolbox, "_tools", dict(default_toolbox._tools))
    reached, go_on = threading.Event(), threading.Event()

    async def leak(key: str, n: int) -> str:
        if n == 2:
            reached.set()
            while not go_on.is_set():
                await asyncio.sleep(0.005)
        return f"{n}: {key}"

    default_toolbox.add("leaks", leak)
    text = playbook(
        """
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 4, max_concurrent: 1}}
    loop: {in: {range: 4}, iterator: n}
    tool: {kind: leaks, args: {key: "{{ keychain.far_key }}", n: "{{ iter.n }}"}}
""",
        keychain=KEYCHAIN,
    )

    async def scenario() -> None:
        async with engine(default_toolbox) as parts, dispatching(parts, here) as dispatch:
            try:
                name = await parts.verbs.start(text, {})
                await until(reached.is_set)
                here.stop(dispatch.tickets)
                await until(lambda: bool(dispatch.progress))
            finally:
                go_on.set()
            await parts.verbs.wait(name)
            (progress,) = dispatch.progress[:1]
            assert progress.progress["checkpoint"]["results"] == ["0: ***", "1: ***"]
            assert SECRET not in shown(dispatch) + kept(parts)

    run(scenario())


def test_the_token_for_the_server_shows_nowhere(here: HereEntry) -> None:
    async def scenario() -> Any:
        async with engine() as parts:
            place = ValuesPlace(mode="server", url="http://127.0.0.1:9", token=SECRET)
            async with dispatching(parts, here, place) as dispatch:
                await ended(parts, playbook("  - {step: a, spec: {pool: gpu}, tool: {kind: noop}}"))
            assert SECRET.encode() in sent(dispatch)
            assert SECRET not in shown(dispatch) + kept(parts)

    run(scenario())
