"""`anabranch.Client`: one program, at an engine in this process and at a server."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch import (
    AnabranchError,
    Client,
    DefinitionError,
    Engine,
    InputError,
    NotFound,
    RunResult,
)
from anabranch.operations.definitions.prepare import prepare
from hangs import HANG_SECONDS

from .cli.server_in_thread import served

Any_ = Engine | Client
HEAD: dict[str, Any] = {
    "apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "order"},
}  # fmt: skip
HELLO = {
    **HEAD,
    "workload": {"who": "you"},
    "workflow": [{"step": "greet", "tool": {"kind": "noop", "result": "hi {{ workload.who }}"}}],
}
GATE = {
    **HEAD,
    "workflow": [
        {"step": "ask", "tool": {"kind": "decision", "ask": "Ship?", "actors": ["kim"]},
         "next": {"arcs": [{"step": "ship"}]}},
        {"step": "ship", "tool": {"kind": "noop", "result": "shipped"}},
    ],
}  # fmt: skip
HELD = {
    **HEAD,
    "workflow": [
        {"step": "held", "tool": {"kind": "noop", "result": "{{ ctx.go }}"},
         "spec": {"policy": {"admit": {"rules": [
             {"when": "{{ ctx.go }}", "then": {"allow": True}}]}}}},
    ],
}  # fmt: skip
SIGNAL = {**HEAD, "workflow": [{"step": "w", "tool": {"kind": "wait", "event": "paid"}}]}
FAILS = {
    **HEAD,
    "workflow": [{"step": "boom", "tool": {"kind": "python", "code": "raise OSError"}}],
}


@asynccontextmanager
async def at_an_engine(folder: Path) -> AsyncIterator[Any_]:
    async with Engine(folder / "engine.db") as engine:
        yield engine


@asynccontextmanager
async def at_a_server(folder: Path) -> AsyncIterator[Any_]:
    with served(folder / "server.db") as server:
        async with Client(server.url, actor="ann") as client:
            yield client


Place = Callable[[Path], Any]
Program = Callable[[Any_, Path], Awaitable[Any]]


def done(place: Place, program: Program, folder: Path) -> Any:
    async def whole() -> Any:
        async with asyncio.timeout(HANG_SECONDS), place(folder) as engine:
            return await program(engine, folder)

    return asyncio.run(whole())


def plain(result: RunResult) -> Any:
    """Without what differs from run to run."""
    text = json.dumps({name: getattr(result, name) for name in RunResult.__dataclass_fields__})
    return json.loads(text.replace(result.run, "RUN"))


# -- programs ---------------------------------------------------------------------------------


async def hello(engine: Any_, folder: Path) -> Any:
    file = folder / "hello.json"
    file.write_text(json.dumps(HELLO))
    sources = (HELLO, json.dumps(HELLO), str(file), file, prepare(HELLO))
    runs = [await engine.start(each, {"who": "ann"}, labels={"a": "b"}) for each in sources]
    return [plain(await engine.wait(run)) for run in runs]


async def events(engine: Any_, _folder: Path) -> Any:
    run = await engine.start(HELLO, run="mine")
    found = [(each.seq, each.kind) async for each in engine.events(run)]
    later = [(each.seq, each.kind) async for each in engine.events(run, 3)]
    tasks = [each.kind async for each in engine.events(run, tasks=True)]
    return run, found, later, tasks


async def decided(engine: Any_, _folder: Path) -> Any:
    run = await engine.start(GATE)
    standing = await engine.wait(run, standing=True)
    await engine.decide(run, "ask", "fulfil", actor="kim", evidence={"ticket": 7})
    result = plain(await engine.wait(run))
    actors = [
        each.fields.get("actor") async for each in engine.events(run) if each.kind == "gate.decided"
    ]
    return standing.status, result, actors


async def patched(engine: Any_, _folder: Path) -> Any:
    run = await engine.start(HELD)
    await engine.wait(run, standing=True)
    await engine.patch(run, {"go": 4}, reducer="sum")
    return plain(await engine.wait(run))


async def paused(engine: Any_, _folder: Path) -> Any:
    run = await engine.start(GATE)
    await engine.pause(run, reason="lunch", actor="kim")
    first = (await engine.wait(run, standing=True)).status
    await engine.resume(run)
    second = (await engine.wait(run, standing=True)).status
    await engine.cancel(run, reason="enough")
    return first, second, (await engine.wait(run)).status


async def signalled(engine: Any_, _folder: Path) -> Any:
    run = await engine.start(SIGNAL)
    await engine.wait(run, standing=True)
    sent = await engine.signal(run, "paid", {"amount": 3}, id="one", ttl="1h")
    result = (await engine.wait(run)).result
    return sent.name, sent.id, result["payload"]


async def redriven(engine: Any_, _folder: Path) -> Any:
    run = await engine.start(FAILS)
    first = await engine.wait(run)
    plan = await engine.plan_redrive(run)
    second = await engine.wait(await engine.redrive(run))
    return first.status, second.status, [each.step for each in plan.again], plan.reused


async def refused(engine: Any_, folder: Path) -> Any:
    said: list[Any] = []

    async def attempt(work: Awaitable[Any]) -> None:
        with pytest.raises(AnabranchError) as caught:
            await work
        said.append(caught.value.code)

    run = await engine.start(HELLO)
    await engine.wait(run)
    await attempt(engine.start({**HEAD, "workflow": []}))
    await attempt(engine.start(HELLO, {"nobody": 1}))
    await attempt(engine.start(HELLO, run=run))
    await attempt(engine.start(HELLO, run="a b"))
    await attempt(engine.start("no/such/path"))
    await attempt(engine.start(str(folder / "no.yaml")))
    await attempt(engine.wait("nobody"))
    await attempt(engine.cancel(run))
    await attempt(engine.redrive(run))
    await attempt(engine.decide(run, "ask", "fulfil"))
    await attempt(engine.start(HELLO, {"who": float("nan")}))
    return said


PROGRAMS: tuple[Program, ...] = (
    *(hello, events, decided, patched, paused, signalled, redriven, refused),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_program_does_the_same_at_an_engine_and_at_a_server(
    program: Program, tmp_path: Path
) -> None:
    here, there = (done(place, program, tmp_path) for place in (at_an_engine, at_a_server))
    assert here == there
    assert here


def test_it_has_the_methods_of_the_engine_with_the_same_arguments() -> None:
    #: Those of the process: see decision 45.
    objects = {"read", "catalog", "credentials", "sessions", "schedules", "triggers", "aliases"}
    of_engine = {name for name in vars(Engine) if not name.startswith("_")} - objects
    of_client = {name for name in vars(Client) if not name.startswith("_")}
    assert of_client == of_engine
    for name in of_engine:
        one, other = (inspect.signature(getattr(each, name)) for each in (Engine, Client))
        assert one.parameters.keys() == other.parameters.keys(), name
        for key, parameter in one.parameters.items():
            same = other.parameters[key]
            assert (parameter.default, parameter.kind) == (same.default, same.kind), (name, key)


def test_errors_are_those_of_the_engine(tmp_path: Path) -> None:
    async def program(client: Any_, folder: Path) -> None:
        (folder / "bad.yaml").write_text("apiVersion: noetl.io/v2\nkind: Playbook\n")
        with pytest.raises(DefinitionError) as caught:
            await client.start(folder / "bad.yaml")
        assert str(folder / "bad.yaml") in str(caught.value.problems[0])
        with pytest.raises(NotFound):
            await client.start("etl/load")
        (folder / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InputError, match="is not text"):
            await client.start(folder / "bytes.yaml")
        run = await client.start(GATE)
        with pytest.raises(AnabranchError, match="kim"):
            await client.decide(run, "ask", "fulfil", actor="bob")

    done(at_a_server, program, tmp_path)


def test_a_client_that_is_not_open_or_reaches_nobody_says_so() -> None:
    async def closed() -> None:
        await Client("http://127.0.0.1:1").wait("x")

    async def nobody() -> None:
        async with Client("http://127.0.0.1:1") as client:
            await client.start(HELLO)

    with pytest.raises(RuntimeError, match="async with Client"):
        asyncio.run(closed())
    with pytest.raises(AnabranchError, match=r"127\.0\.0\.1:1"):
        asyncio.run(nobody())
    with pytest.raises(AnabranchError, match="ftp"):
        Client("ftp://x")
