"""A run that needs what an engine does not have is left as it is, and says what is missing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Toolbox
from anabranch.errors import DefinitionError, InputError, MissingRequirements
from anabranch.operations.definitions.available import ENGINE_KINDS
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.store.sqlite.store import SqliteStore
from surfaces.http.support import playbook, serving, step
from work.chain.contracts import rule as rule_contract
from work.chain.node import Evm
from work.participants.loopback_participants import Party, never, says, solicit

from .support import Here, Terminal, beginning, until

ASKING = solicit(["one"], timeout="PT1H")
SECRET = {"name": "pw", "kind": "env", "variable": "OPENING_TEST_SECRET"}
KEYED = playbook(
    step("ask", "decision", "use", ask="?"),
    step("use", "python", code="return len(pw)", input={"pw": "{{ keychain.pw }}"}),
    name="keyed",
    keychain=[SECRET],
)


def log_of(store: Path, run: str) -> list[tuple[int, bytes]]:
    """Everything that is recorded of the run."""
    kept = SqliteStore(store, read_only=True)
    try:
        return [(record.first_seq, record.events) for record in kept.read(run)]
    finally:
        kept.close()


def book_of(party: Party) -> str:
    return json.dumps({"participants": {"one": {"url": party.url("one")}}})


@pytest.mark.slow
def test_a_killed_run_is_left_alone_without_its_participants_and_goes_on_with_them(
    terminal: Terminal, here: Here
) -> None:
    with Party({"one": never}) as party:
        terminal.write("book.json", book_of(party))
        terminal.write("ask.json", ASKING)
        words = ("run", "ask.json", "--run-id", "r", "--participants", "book.json")
        with beginning(terminal, *words) as running:
            until(lambda: party.seen("one"))
            running.kill()
            running.wait()
    before = log_of(terminal.store, "r")
    for named in (("r",), ()):
        done = here.run("resume", *named)
        assert done.code == 4, done
        assert "run r is left as it is: step 'ask' asks participants" in done.err
        assert "it was started with book.json: give it with --participants" in done.err
    assert "asks participants" in here.ok("explain", "r").out
    listed = here.ok("runs").out
    assert "left as it is" in listed
    assert "book of participants" in listed
    assert log_of(terminal.store, "r") == before
    with Party({"one": says({"price": 2})}) as party:
        terminal.write("book.json", book_of(party))
        assert here.run("resume", "r", "--participants", "book.json").code == 0


def test_a_start_without_its_participants_is_refused_and_leaves_nothing_behind(here: Here) -> None:
    here.write("ask.json", ASKING)
    done = here.run("run", "ask.json")
    assert done.code == 2
    assert "no-participants" in done.err
    assert "--participants FILE" in done.err
    assert here.ok("runs").out == "no runs\n"


def left(store: Path) -> str:
    """A run of `ASKING` whose engine was stopped while it waited for an answer."""

    async def answer(_request: Any) -> Any:
        await asyncio.sleep(3600)

    async def begun() -> str:
        settings = Settings(store=str(store), grace_seconds=0)
        book = {"participants": {"one": {"function": answer}}}
        async with anabranch.Engine(settings=settings, participants=book) as engine:
            name = await engine.start(json.loads(ASKING))
            async for event in engine.events(name):
                if event.kind == "job.started" and event.fields["job"].endswith(".0"):
                    return name
        raise AssertionError("it never asked")

    return asyncio.run(begun())


def test_a_server_without_participants_touches_no_run_that_needs_them(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    name = left(store)
    before = log_of(store, name)

    async def looked_at() -> None:
        async with serving(store) as client:
            shown = (await client.get(f"/runs/{name}")).json
            assert shown["status"] == "running"
            assert shown["started_with"] == {"participants": "a book that its program gave"}
            assert "asks participants" in shown["missing"][0]
            told = (await client.get(f"/runs/{name}/explain")).json
            assert "asks participants" in told["waiting"][0]["waits_for"]
            (card,) = (await client.get("/runs")).json["items"]
            assert "asks participants" in card["missing"][0]
            refused = await client.post(f"/runs/{name}/cancel", {})
            assert (refused.status, refused.code) == (409, "missing_requirements")
            health = (await client.get("/health")).text
            assert "no-participants" in health
            assert name not in health  # which is told to those who have no token
            started = await client.post("/runs", {"definition": json.loads(ASKING)})
            assert started.status == 422
            assert started.json["problems"][0]["code"] == "no-participants"

    asyncio.run(looked_at())
    assert log_of(store, name) == before


TOOLED = playbook(step("hold", "wait", "use", event="go"), step("use", "weigh"), name="tooled")


def with_weigh() -> Toolbox:
    made = Toolbox()
    made.tool("weigh")(lambda: 3)
    return made


def test_a_server_without_a_tool_says_at_once_how_many_waiting_runs_need_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing wakes them, so nobody would load one and notice."""
    store = tmp_path / "kept.db"

    async def begun() -> None:
        async with anabranch.Engine(store, toolbox=with_weigh()) as engine:
            for n in range(12):
                name = await engine.start(TOOLED, run=f"r{n}")
                await engine.wait(name, standing=True)
            await engine.start(playbook(step("hold", "wait", event="go")), run="plain")

    async def counted() -> None:
        async with serving(store) as client:
            await requirements(client, 12)
            assert "2 more" in caplog.text
            refused = await client.post("/runs/r3/cancel", {})
            assert (refused.status, refused.code) == (409, "missing_requirements")
            await requirements(client, 12)
            assert (await client.post("/runs/plain/cancel", {})).status == 200

    asyncio.run(begun())
    asyncio.run(counted())


async def requirements(client: Any, count: int) -> None:
    checks = (await client.get("/health")).json["checks"]
    (found,) = [one for one in checks if one["name"] == "requirements"]
    assert (found["level"], found["value"]) == ("warn", count)
    assert "(no-tool)" in found["reason"]
    metrics = (await client.get("/metrics")).text
    assert f"anabranch_runs_set_aside {count}\n" in metrics


def test_an_engine_in_a_program_says_what_is_missing_and_goes_on_when_it_is_there(
    tmp_path: Path,
) -> None:
    store = tmp_path / "kept.db"
    name = left(store)
    before = log_of(store, name)

    async def without() -> None:
        async with anabranch.Engine(store) as engine:
            with pytest.raises(MissingRequirements, match="asks participants"):
                await engine.wait(name)
            assert engine.read.show(name)["missing"]
            with pytest.raises(DefinitionError, match="no-participants"):
                await engine.start(json.loads(ASKING))

    async def with_them() -> str:
        book = {"participants": {"one": {"function": lambda _request: {"price": 1}}}}
        async with anabranch.Engine(store, participants=book) as engine:
            return (await engine.wait(name)).status

    asyncio.run(without())
    assert log_of(store, name) == before
    assert asyncio.run(with_them()) == "completed"


def test_a_run_whose_secret_is_gone_is_left_alone_and_one_that_never_had_it_fails_by_name(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("keyed.yaml", json.dumps(KEYED))
    monkeypatch.setenv("OPENING_TEST_SECRET", "correct horse")
    assert here.run("run", "keyed.yaml", "--run-id", "had").code == 4
    monkeypatch.delenv("OPENING_TEST_SECRET")
    assert here.run("run", "keyed.yaml", "--run-id", "never").code == 4
    for name in ("had", "never"):
        here.ok("decide", name, "ask", "--fulfil")
    before = log_of(here.store, "had")
    done = here.run("resume", "had")
    assert done.code == 4, done
    assert "keychain entry 'pw' is not here, the environment has no variable" in done.err
    assert log_of(here.store, "had") == before
    failed = here.run("resume", "never")
    assert (failed.code, "OPENING_TEST_SECRET" in failed.out) == (1, True)
    monkeypatch.setenv("OPENING_TEST_SECRET", "correct horse")
    assert here.ok("resume", "had", "--json").json["result"] == 13


def test_a_server_leaves_a_run_alone_whose_tools_are_not_registered(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    tooled = playbook(
        step("ask", "decision", "use", ask="?"), step("use", "the_tool"), name="tooled"
    )
    tools = anabranch.Toolbox()

    @tools.tool("the_tool")
    async def the_tool() -> str:
        return "used"

    async def scenario() -> None:
        async with serving(store, tools=tools) as client:
            name = await client.start(tooled)
            await client.stands(name)
        before = log_of(store, name)
        async with serving(store) as client:
            refused = await client.post(f"/runs/{name}/gates/ask/decide", {"verdict": "fulfil"})
            assert (refused.status, refused.code) == (409, "missing_requirements")
            assert "needs the tool 'the_tool'" in refused.text
        assert log_of(store, name) == before
        async with serving(store, tools=tools) as client:
            decided = await client.post(f"/runs/{name}/gates/ask/decide", {"verdict": "fulfil"})
            assert decided.status < 300, decided.text
            assert await client.ended(name) == "completed"

    asyncio.run(scenario())


@pytest.mark.parametrize("bundled", [False, True], ids=["rules on the chain", "rules at hand"])
def test_a_session_of_a_chain_is_left_alone_where_there_is_none(
    tmp_path: Path, bundled: bool
) -> None:
    store = tmp_path / "kept.db"
    evm = Evm()
    text = json.dumps({"payload": {}, "onValid": {"waitSec": 3600}})
    contract = evm.deploy(rule_contract(text))
    steps = {"A1": {"rule": contract, "onValid": {"spawns": ["B1"]}}, "B1": {"rule": contract}}
    orchestration = {"id": "orders", "structure": steps}

    async def begun() -> str:
        async with evm.served() as url:
            keyed = url.replace("http://", "http://me:hidden@") + "/v3/abcdefabcdef0123"
            settings = Settings(store=str(store), chain_url=keyed, rule_addresses="any")
            async with anabranch.Engine(settings=settings) as engine:
                rules = {contract: text} if bundled else None
                name = await engine.start(orchestration, rules=rules)
                async for event in engine.events(name):
                    if event.kind == "token.slept":
                        break
                shown = engine.read.show(name)["started_with"]
                assert shown == {"chain": url}
                return name

    async def without() -> None:
        async with anabranch.Engine(store) as engine:
            missing = "needs the chain" if bundled else "no chain is configured"
            with pytest.raises(MissingRequirements, match=missing):
                await engine.wait(name)

    name = asyncio.run(begun())
    before = log_of(store, name)
    asyncio.run(without())
    assert log_of(store, name) == before


def in_file(path: Path) -> str:
    entry = {"name": "pw", "kind": "file", "path": str(path)}
    return json.dumps({**KEYED, "keychain": [entry]})


def test_a_run_whose_credential_is_gone_goes_on_and_the_step_that_uses_it_fails_by_name(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials are looked for when a step needs one, so no run is left alone for want of one."""
    stands_for_it = {"name": "pw", "kind": "secret_manager", "provider": "gcp"}
    here.write("keyed.yaml", json.dumps({**KEYED, "keychain": [stands_for_it]}))
    monkeypatch.setenv("OPENING_TEST_SECRET", "correct horse")
    add = ("credential", "add", "pw", "--type", "secret", "--from-env", "OPENING_TEST_SECRET")
    here.ok(*add)
    for name in ("lost", "kept"):
        assert here.run("run", "keyed.yaml", "--run-id", name).code == 4
        here.ok("decide", name, "ask", "--fulfil")
    here.ok("credential", "remove", "pw")
    failed = here.run("resume", "lost")
    assert (failed.code, "keychain.pw: the provider 'gcp'" in failed.out) == (1, True), failed
    here.ok(*add)
    assert here.ok("resume", "kept", "--json").json["result"] == 13


def test_a_run_whose_secret_file_is_gone_says_so_wherever_it_is_looked_at(
    here: Here, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.txt"
    here.write("keyed.yaml", in_file(secret))
    assert here.run("run", "keyed.yaml", "--run-id", "never").code == 4
    secret.write_text("correct horse\n")
    assert here.run("run", "keyed.yaml", "--run-id", "had").code == 4
    secret.unlink()
    before = log_of(here.store, "had")
    for words in (("explain", "had"), ("runs",), ("show", "had")):
        assert "keychain entry 'pw' is not here" in here.ok(*words).out, words
    done = here.run("resume", "had")
    assert (done.code, "keychain entry 'pw' is not here" in done.err) == (4, True), done
    assert log_of(here.store, "had") == before
    for name in ("had", "never"):
        here.ok("decide", name, "ask", "--fulfil")
    assert here.run("resume", "had").code == 4
    failed = here.run("resume", "never")  # as it would have without the engine's end
    assert (failed.code, "secret.txt" in failed.out) == (1, True)
    secret.write_text("correct horse\n")
    assert here.ok("resume", "had", "--json").json["result"] == 13


def test_an_engine_leaves_a_waiting_run_alone_whose_secret_file_was_gone_when_it_opened(
    tmp_path: Path,
) -> None:
    secret, store = tmp_path / "secret.txt", tmp_path / "kept.db"

    async def scenario() -> None:
        secret.write_text("correct horse\n")
        async with anabranch.Engine(store) as engine:
            name = await engine.start(json.loads(in_file(secret)))
            await engine.wait(name, standing=True)
        secret.unlink()
        before = log_of(store, name)
        async with anabranch.Engine(store) as engine:
            with pytest.raises(MissingRequirements, match="keychain entry 'pw'"):
                await engine.decide(name, "ask", "fulfil")
        assert log_of(store, name) == before
        secret.write_text("correct horse\n")
        async with anabranch.Engine(store) as engine:
            await engine.decide(name, "ask", "fulfil")
            assert (await engine.wait(name)).result == 13

    asyncio.run(scenario())


def test_without_a_server_a_run_of_a_pool_is_left_alone_and_on_one_it_waits_for_workers(
    tmp_path: Path,
) -> None:
    store = tmp_path / "kept.db"
    pooled = playbook(step("far", "python", code="return 1", spec={"pool": "gpu"}), name="pooled")

    async def scenario() -> None:
        async with serving(store) as client:
            name = await client.start(pooled)
            assert (await client.get(f"/runs/{name}")).json["missing"] == []
        before = log_of(store, name)
        async with anabranch.Engine(store) as engine:
            with pytest.raises(MissingRequirements, match="workers of pool 'gpu'"):
                await engine.wait(name)
            with pytest.raises(InputError, match="workers of pool 'gpu'"):
                await engine.start(pooled)
        assert log_of(store, name) == before
        async with serving(store) as client:
            told = (await client.get(f"/runs/{name}/explain")).json
            assert "gpu" in str(told["waiting"])
            assert told["missing"] == []

    asyncio.run(scenario())


def test_a_redrive_needs_what_its_run_had(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = playbook(
        step("use", "python", code="raise ValueError(len(pw))", input={"pw": "{{ keychain.pw }}"}),
        name="fails",
        keychain=[SECRET],
    )
    here.write("fails.yaml", json.dumps(fails))
    monkeypatch.setenv("OPENING_TEST_SECRET", "correct horse")
    assert here.run("run", "fails.yaml", "--run-id", "r").code == 1
    monkeypatch.delenv("OPENING_TEST_SECRET")
    done = here.run("redrive", "r")
    assert (done.code, "keychain entry 'pw' is not here" in done.err) == (4, True), done
    assert [row["run"] for row in here.ok("runs", "--json").json] == ["r"]


def test_what_a_terminal_takes_an_engine_to_have_is_what_engines_have(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kept.db")

    async def kinds() -> set[str]:
        parts = Parts(store, Settings(store=str(tmp_path / "kept.db")), anabranch.Toolbox())
        await parts.close()
        return set(parts.performers)

    assert asyncio.run(kinds()) == set(ENGINE_KINDS)
    store.close()


#: The child works until the file `go` is there, and needs nothing that its parent does.
CHILD = playbook(
    step("work", "shell", command="touch begun; while [ ! -e go ]; do sleep 0.01; done"),
    name="child",
)
CALLS = playbook(
    step("call", "playbook", "use", path="./child.yaml", wait=True),
    step("use", "python", code="return len(pw)", input={"pw": "{{ keychain.pw }}"}),
    name="calls",
    keychain=[SECRET],
)


@pytest.mark.slow
def test_a_run_goes_on_with_its_secret_though_its_child_ended_without(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("child.yaml", json.dumps(CHILD))
    here.write("calls.yaml", json.dumps(CALLS))
    with_secret = {"OPENING_TEST_SECRET": "a word"}
    with beginning(here, "run", "calls.yaml", "--run-id", "calls", env=with_secret) as running:
        until((here.folder / "begun").exists)
        running.kill()
        running.wait()
    here.write("go", "")
    left = here.run("resume")
    assert left.code == 4, left
    assert [one["status"] for one in here.ok("runs", "--name", "child", "--json").json] == [
        "completed"
    ]
    assert "OPENING_TEST_SECRET" in here.ok("runs").out
    here.ok("store", "check")
    monkeypatch.setenv("OPENING_TEST_SECRET", "a word")
    here.ok("resume")
    assert here.show("calls")["result"] == 6
