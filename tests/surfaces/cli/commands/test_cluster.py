"""`cluster`: the servers of a shared store and draining one, at the store and at any server."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anabranch.store.access_ports import AuditFilter
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.commands.cluster import cluster
from anabranch.surfaces.http.serve import Server
from shared_store import PARTITIONS, fresh_schema

from ..alike import plain
from ..server_in_thread import served
from ..support import GATE, HELLO, Here, until


@pytest.fixture(scope="module")
def place(postgres: str) -> str:
    return fresh_schema(postgres)


@pytest.fixture(scope="module")
def servers(place: str) -> Iterator[tuple[Server, Server]]:
    with (
        served(place, store_partitions=PARTITIONS) as first,
        served(place, store_partitions=PARTITIONS) as second,
    ):
        yield first, second


@pytest.fixture
def ask(here: Here, place: str, servers: tuple[Server, Server]) -> Callable[..., Any]:
    """What a command with `--json` answers, at the store; both servers own their share first."""

    def asked(*words: object) -> Any:
        return here.ok("cluster", *words, "--store", place, "--json").json

    until(lambda: owned(asked("servers")) == [PARTITIONS // 2] * 2)
    return asked


def owned(summary: Any) -> list[int]:
    return [one["partitions"] for one in summary["servers"]]


def test_any_server_shows_what_the_store_shows(
    here: Here, place: str, servers: tuple[Server, Server], ask: Callable[..., Any]
) -> None:
    for words in ((), ("servers",), ("partitions",), ("drain", "nowhere"), ("owner", "nothing")):
        at_store = here.run("cluster", *words, "--store", place)
        for server in servers:
            at_server = here.run("cluster", *words, "--server", server.url)
            assert plain(at_server) == plain(at_store)
    out = here.ok("cluster", "--store", place).out
    assert out.startswith(f"{PARTITIONS} partitions, 2 servers\nSERVER ")
    assert out.count(" active ") == 2


def test_only_a_server_says_that_it_is_the_one_that_answers(
    here: Here, servers: tuple[Server, Server], ask: Callable[..., Any]
) -> None:
    assert [one["here"] for one in ask()["servers"]] == [False, False]
    said = [here.ok("cluster", "--json", "--server", one.url).json["servers"] for one in servers]
    assert sorted([one["here"] for one in each] for each in said) == [[False, True], [True, False]]


def test_what_stands_before_the_action_counts(
    here: Here, place: str, ask: Callable[..., Any]
) -> None:
    assert here.ok("cluster", "--json", "--store", place, "partitions").json == ask("partitions")


def test_every_partition_has_its_owner(ask: Callable[..., Any]) -> None:
    ids = {one["id"] for one in ask()["servers"]}
    partitions = ask("partitions")
    assert [one["partition"] for one in partitions] == list(range(PARTITIONS))
    assert {one["owner"] for one in partitions} == ids
    assert all(one["alive"] and one["epoch"] >= 1 for one in partitions)


def test_the_owner_of_a_run_is_told_by_any_server(
    here: Here, servers: tuple[Server, Server], ask: Callable[..., Any]
) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml", "--run-id", "told", "--server", servers[0].url)
    told = [
        here.ok("cluster", "owner", "told", "--json", "--server", one.url).json for one in servers
    ]
    assert (
        told[0]["server"]["id"] == told[1]["server"]["id"] == ask("owner", "told")["server"]["id"]
    )
    partition = ask("partitions")[told[0]["partition"]]
    assert partition["owner"] == told[0]["server"]["id"]
    said = here.ok("cluster", "owner", "told", "--server", servers[1].url).out
    assert said.startswith(f"run told, partition {told[0]['partition']} in epoch ")
    assert f": owned by {told[0]['server']['id']}, anabranch (pid " in said


def test_a_drain_waits_until_the_server_owns_nothing_and_undo_takes_it_back(
    here: Here, place: str, servers: tuple[Server, Server], ask: Callable[..., Any]
) -> None:
    here.write("gate.yaml", GATE)
    runs = [f"gated-{n}" for n in range(PARTITIONS)]
    for run in runs:
        here.run("run", "gate.yaml", "--run-id", run, "--server", servers[0].url)
    first, second = (one["id"] for one in ask()["servers"])
    done = here.ok("cluster", "drain", first, "--actor", "kim", "--store", place)
    assert done.out == f"server {first} owns nothing any more\n"
    until(lambda: owned(ask()) == [0, PARTITIONS])
    assert [(one["id"], one["state"]) for one in ask()["servers"]] == [
        (first, "drained"),
        (second, "active"),
    ]
    for run in runs[:3]:  # whoever is asked, the run goes on at its new owner
        for server in servers:
            here.ok("show", run, "--server", server.url)
        here.ok("decide", run, "ask", "--fulfil", "--actor", "ann", "--server", servers[0].url)
    refused = here.run("cluster", "drain", second, "--server", servers[0].url)
    assert refused.code == 2
    assert "start another server on this store first" in refused.err
    back = here.ok("cluster", "drain", first, "--undo", "--json", "--server", servers[1].url).json
    assert (back["id"], back["draining"]) == (first, False)
    until(lambda: owned(ask()) == [PARTITIONS // 2] * 2)


def test_a_drain_is_in_the_audit_trail_with_the_id_of_the_server(
    here: Here, place: str, servers: tuple[Server, Server], ask: Callable[..., Any]
) -> None:
    first = ask()["servers"][0]["id"]
    for where in (("--store", place), ("--server", servers[1].url)):
        here.ok("cluster", "drain", first[:8], "--no-wait", "--actor", "kim", *where)
        here.ok("cluster", "drain", first[:8], "--undo", "--actor", "kim", *where)
    here.run("cluster", "drain", "nowhere", "--actor", "kim", "--store", place)
    trail = servers[0].parts.store.audit(AuditFilter(limit=5))
    assert [(one.actor, one.action, one.subject, one.outcome) for one in trail] == [
        ("kim", "cluster.servers.drain", "nowhere", "refused: no_such_server"),
        ("kim", "cluster.servers.drain.delete", first, "done"),
        ("kim", "cluster.servers.drain", first, "done"),
        ("kim", "cluster.servers.drain.delete", first, "done"),
        ("kim", "cluster.servers.drain", first, "done"),
    ]


# -- how a drain can end ---------------------------------------------------------------------------


class Told:
    """A cluster whose server `aa` is drained: what is told at each look."""

    def __init__(self, *looks: dict[str, Any] | None) -> None:
        self._looks = list(looks)

    async def drain(self, server: str) -> Row:
        return a_server(server, partitions=8)

    async def summary(self) -> Row:
        look = self._looks.pop(0)
        if look is None:
            return {"servers": [a_server("bb", draining=False)]}
        alone = look.pop("alone", False)
        return {"servers": [a_server("aa", **look), a_server("bb", draining=alone)]}


def a_server(server: str, **more: Any) -> Row:
    return {"id": server, "partitions": 8, "draining": True, "alive": True, **more}


def drained(monkeypatch: pytest.MonkeyPatch, *looks: dict[str, Any] | None) -> int:
    monkeypatch.setattr(cluster, "LOOK_SECONDS", 0)
    options = Namespace(name="aa", undo=False, no_wait=False, json=False)
    at: Any = Told(*looks)
    return asyncio.run(cluster.ACTIONS["drain"](options, at))


def test_a_drain_that_another_command_takes_back_ends_with_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drained(monkeypatch, {"partitions": 4}, {"partitions": 4, "draining": False}) == 1
    assert "another command has undone the drain" in capsys.readouterr().out


def test_a_server_that_leaves_while_it_drains_owns_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drained(monkeypatch, {"partitions": 4}, None) == 0
    said = capsys.readouterr()
    assert said.out == "server aa owns nothing any more and has left the cluster\n"
    assert said.err == ""


def test_a_drain_without_another_server_says_once_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = {"partitions": 4, "alone": True}
    assert drained(monkeypatch, {**alone}, {**alone}, {"partitions": 0}) == 0
    said = capsys.readouterr()
    assert said.err == "no other server takes partitions now: the drain waits for one\n"
    assert said.out == "server aa owns nothing any more\n"


# -- a store of one server -------------------------------------------------------------------------


def test_a_file_says_that_it_has_one_server(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml", "--run-id", "alone")
    lonely = here.ok("cluster").out
    assert lonely.startswith("this store has one server at a time: none works on it now\n")
    assert "PostgreSQL" in lonely
    assert here.ok("cluster", "owner", "alone").out == "run alone: no server owns it now\n"
    with served(here.store) as server:
        at_store, at_server = (
            here.ok("cluster", *place).out for place in ((), ("--server", server.url))
        )
        assert at_store == at_server
        assert at_store.startswith("this store has one server at a time: anabranch (pid ")
        card = json.loads(here.ok("cluster", "--json", "--server", server.url).out)
        assert (card["shared"], card["partitions"], card["unowned"]) == (False, 1, 0)
        assert [(one["id"], one["partitions"]) for one in card["servers"]] == [("only", 1)]
        (partition,) = here.ok("cluster", "partitions", "--json").json
        assert (partition["partition"], partition["owner"]) == (0, "only")
        assert partition["number"] > 0
        owner = here.ok("cluster", "owner", "alone", "--server", server.url).out
        assert owner.startswith("run alone: owned by anabranch (pid ")


def test_a_file_has_nothing_to_drain(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml")
    with served(here.store) as server:
        for place in ((), ("--server", server.url)):
            refused = here.run("cluster", "drain", "only", "--json", *place)
            assert refused.code == 2
            assert refused.json["problem"]["code"] == "not_shared"
            assert "stop it in order" in refused.err
