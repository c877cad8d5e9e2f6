"""`anabranch node`: what its actions answer for people and programs, asked of nodes that run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.orders.machine import STATES
from anabranch.surfaces.cli.commands.node import arguments
from anabranch.surfaces.cli.commands.node.node import _ASKED
from anabranch.surfaces.cli.parser import build
from free_ports import free_port

from ..nodes_in_thread import served_nodes
from ..support import Done, Here

OFFER = {
    "offer/id": "offer:summaries", "service/type": "text/summarise", "pricing/amount": 250,
    "pricing/currency": "ORC", "confirmation/mode": "self-confirmed",
}  # fmt: skip


class Pair(NamedTuple):
    """Two nodes that run, and a terminal in the folder above theirs."""

    here: Here
    provider_id: str
    provider_participant: str

    def provider(self, *words: str) -> Done:
        return self.here.run("node", *words, "--node", "provider")

    def buyer(self, *words: str) -> Done:
        return self.here.run("node", *words, "--node", "buyer")

    def told(self, *words: str) -> Any:
        """What the buyer answers to programs."""
        done = self.buyer(*words, "--json")
        assert done.code == 0, done
        return done.json


def make(path: Path, **more: Any) -> NodeFolder:
    folder = NodeFolder(path)
    folder.create(NodeFile(name=path.name, **more))
    KeyFolder.create(folder.keys)
    return folder


@pytest.fixture
def pair(here: Here, tmp_path: Path) -> Iterator[Pair]:
    port = free_port()
    provider = make(tmp_path / "provider", port=port)
    buyer = make(tmp_path / "buyer", seeds=(f"http://127.0.0.1:{port}",))
    ids = KeyFolder.open(provider.keys).identities()
    with served_nodes(provider, buyer):
        yield Pair(here, ids["node"], ids["participant"])


def ok(done: Done) -> str:
    assert (done.code, done.err) == (0, ""), done
    return done.out


def test_an_order_from_the_offer_to_the_receipt(pair: Pair) -> None:
    """All of it with commands, and what a list shows meanwhile."""
    (Path("offer.json")).write_text(json.dumps(OFFER))
    assert ok(pair.buyer("offers", "--observed")) == "no active offers\n"
    assert ok(pair.provider("offers", "publish", "offer.json")) == "published offer:summaries\n"
    assert "offer:summaries  1    text/summarise" in ok(pair.provider("offers"))
    assert ok(pair.buyer("offers", "trusted")) == "no provider is trusted yet\n"
    ok(pair.buyer("offers", "trust", pair.provider_participant))
    assert pair.provider_participant in ok(pair.buyer("offers", "trusted"))
    assert ok(pair.buyer("offers", "fetch", pair.provider_id)) == "1 stored\n"
    assert pair.told("offers", "show", "offer:summaries")["offer"]["pricing/amount"] == 250

    place = ("orders", "place", "--offer", "offer:summaries", "--id", "order:one")
    poor = pair.buyer(*place)
    assert (poor.code, poor.out[:9]) == (1, "rejected:"), poor
    assert ok(pair.buyer("ledger", "top-up", "1000", "--key", "a")) == "balance 1,000 ORC\n"
    assert ok(pair.buyer("ledger", "top-up", "1000", "--key", "a")) == "balance 1,000 ORC\n"
    placed = pair.buyer(*place, "--input", '{"text": "a"}')
    assert ok(placed) == "order:one opened execution:one\n"
    assert "ORC 750, on hold 250" in ok(pair.buyer("ledger"))

    inbox = pair.provider("inbox", "--open", "--wait", "60", "--json").json
    assert [one["request_id"] for one in inbox] == ["remote-execution:order:one"]
    assert ok(pair.provider("inbox")).splitlines()[1].split()[:2] == [
        "remote-execution:order:one",
        "open",
    ]
    wrong = pair.buyer("orders", "result", "execution:one")
    assert (wrong.code, wrong.out) == (2, "")
    assert "has no result" in wrong.err
    answer = ("inbox", "answer", "remote-execution:order:one", "--output")
    ok(pair.provider(*answer, '{"summary": "a"}'))
    otherwise = pair.provider(*answer, '{"summary": "b"}')
    assert (otherwise.code, otherwise.out) == (2, "")

    assert (
        ok(pair.buyer("orders", "wait", "execution:one")) == "execution:one: awaiting_acceptance\n"
    )
    assert pair.told("orders", "result", "execution:one")["output"] == {"summary": "a"}
    assert ok(pair.buyer("orders", "accept", "execution:one")) == "execution:one: released\n"
    assert pair.buyer("orders", "accept", "execution:one").code == 2
    never = pair.buyer("orders", "wait", "execution:one", "--state", "disputed")
    assert (never.code, never.out) == (1, "execution:one: released\n")
    assert "released  offer:summaries  250 ORC  receipt:one" in ok(pair.buyer("orders"))
    assert ok(pair.buyer("orders", "--open")) == "no orders yet\n"
    assert pair.told("orders", "receipt", "receipt:one")["outcome"] == "settled"
    assert pair.told("ledger", "hold", "hold:one")["status"] == "released"
    moved = [one["kind"] for one in pair.told("ledger", "movements")]
    assert moved == ["release", "hold", "top-up"]
    assert sum(one["balance"] for one in pair.told("ledger", "accounts")) == 0
    assert "ACCOUNT" in ok(pair.buyer("ledger", "accounts"))

    (sent,) = pair.told("deliveries")
    assert sent["status"] == "succeeded"
    assert pair.told("deliveries", "show", sent["delivery/id"]) == sent
    assert "service-order.result.v1" in ok(pair.buyer("deliveries", "admissions"))
    assert ok(pair.buyer("offers", "drop", pair.provider_participant)) == "dropped 1\n"
    assert pair.buyer("offers", "drop", pair.provider_id).code == 2
    assert ok(pair.buyer("deliveries", "recover")) == "0 are tried again\n"


def test_what_a_node_says_of_itself_and_of_others(pair: Pair) -> None:
    assert ok(pair.buyer("status", "--wait", "60")).startswith("node buyer at http://127.0.0.1:")
    assert pair.told("status")["name"] == "buyer"
    assert ok(pair.buyer("peers")) == "it has talked to no other node yet\n"
    assert ok(pair.buyer("peers", "ping", pair.provider_id)).startswith("session session:")
    assert "reachable" in ok(pair.buyer("peers"))
    assert ok(pair.buyer("modules")) == "this node hosts no module\n"
    assert ok(pair.buyer("modules", "notifications")) == "no module has told anything yet\n"
    assert ok(pair.buyer("directory", "passports")) == "this node holds and issued no passport\n"
    assert ok(pair.buyer("directory", "passport", "text-service")).startswith("issued passport:")
    (held,) = pair.told("directory", "passports")
    assert "text-service" in ok(pair.buyer("directory", "passports"))
    assert "text-service: 1 nodes" in ok(pair.buyer("directory", "sync"))
    assert "node:did:key:" in ok(pair.buyer("directory", "query", "text-service"))
    ok(pair.buyer("directory", "revoke", held["passport"]["passport_id"]))
    assert "no valid passport" in ok(pair.buyer("directory", "query", "text-service"))
    assert "2 nodes have published" in ok(pair.provider("directory"))
    (strange,) = [
        each
        for each in pair.provider("directory", "nodes", "--json").json
        if each["node_id"] != pair.provider_id
    ]
    assert (strange["source"], strange["trusted"]) == ("127.0.0.1", False)
    assert strange["node_id"] in ok(pair.provider("directory", "nodes", "--source", "127.0.0.1"))
    assert ok(pair.provider("directory", "drop", strange["node_id"])) == "dropped 1\n"
    assert "1 nodes have published" in ok(pair.provider("directory"))
    assert pair.provider("directory", "drop").code == 2
    assert ok(pair.provider("directory", "drop-revocations")) == "dropped 0\n"
    assert pair.provider("directory", "drop", "--source", "127.0.0.1").code != 0
    pushed = pair.buyer("offers", "push", pair.provider_id)
    assert ok(pushed) == f"{pair.provider_id}: sent\n"


def test_what_the_node_refuses_is_said_in_its_words(pair: Pair) -> None:
    unknown = pair.provider_id[:-1] + ("y" if pair.provider_id.endswith("x") else "x")
    for words, code, said in (
        (("orders", "show", "execution:none"), 2, "there is no execution 'execution:none'"),
        (("orders", "place", "--offer", "offer:none"), 2, "no offer 'offer:none' is known"),
        (("orders", "place", "--offer", "offer:x", "--input", "{"), 2, "--input is not JSON"),
        (("modules", "show", "none"), 2, "no module none"),
        (("ledger", "top-up", "1.5"), 2, "is no whole number of minor units"),
        (("ledger", "--account", "x"), 2, "account"),
        (("orders", "--limit", "501"), 2, "`limit` is a number from 1 to 500"),
        (("offers", "fetch", "node:x"), 2, "node"),
        (("offers", "publish", "nothing.json"), 2, "nothing.json"),
        (("deliveries", "show", "delivery:x"), 2, "there is no delivery"),
        (("peers", "ping", unknown), 1, "no address of node:did:key:"),
    ):
        done = pair.buyer(*words)
        assert (done.code, done.out) == (code, ""), (words, done)
        assert said in done.err, (words, done)
        assert done.err.startswith("anabranch: "), done
        told = pair.buyer(*words, "--json")
        assert told.json["problem"]["message"] in told.err, words


def test_a_peer_that_is_away_is_a_failure_and_no_bad_usage(here: Here, tmp_path: Path) -> None:
    away = make(tmp_path / "away")
    node_id = KeyFolder.open(away.keys).identities()["node"]
    alone = make(
        tmp_path / "alone", peers={"endpoints": {node_id: f"http://127.0.0.1:{free_port()}"}}
    )
    with served_nodes(alone):
        done = here.run("node", "peers", "ping", node_id, "--node", "alone")
        assert (done.code, done.out) == (1, ""), done
        pushed = here.run("node", "offers", "push", node_id, "--node", "alone")
        assert pushed.code == 1
        assert ": failed: " in pushed.out


def test_a_node_is_served_and_checked_by_one_process_at_a_time(here: Here, tmp_path: Path) -> None:
    folder = make(tmp_path / "one")
    never = here.run("node", "check", "--node", "one")
    assert ok(never) == "it has never been served\n"
    assert not folder.store.exists()
    with served_nodes(folder):
        for action in ("serve", "check"):
            done = here.run("node", action, "--node", "one")
            assert (done.code, done.out) == (2, ""), done
            assert f"the node in {folder.path} is in use by anabranch node (pid " in done.err
    checked = here.run("node", "check", "--node", "one")
    assert ok(checked).endswith(" 0 problems\n")
    assert here.run("node", "check", "--node", "one", "--json").json["problems"] == []


def test_a_module_that_cannot_be_started_is_listed_with_the_reason(
    here: Here, tmp_path: Path
) -> None:
    executor = {
        "id": "m", "launch": {"executable": "no-such-program"},
        "http": {"endpoint": f"http://127.0.0.1:{free_port()}"},
    }  # fmt: skip
    with served_nodes(make(tmp_path / "one", modules=(executor,))):
        for action in ("restart", "start"):
            assert "module m: " in here.run("node", "modules", action, "m", "--node", "one").out
        stopped = here.run("node", "modules", "stop", "m", "--node", "one")
        assert ok(stopped) in ("module m: failed\n", "module m: stopped\n")
        row = ok(here.run("node", "modules", "--node", "one")).splitlines()[1]
        assert "preflight_executable: launch.executable: no-such-program" in row
        shown = here.run("node", "modules", "show", "m", "--node", "one", "--json").json
        assert shown["last_problem"]["code"] == "preflight_executable"


def test_a_port_that_is_taken_is_named_and_nothing_is_made(here: Here, tmp_path: Path) -> None:
    with served_nodes(make(tmp_path / "first")) as (first,):
        port = int(first.url.rpartition(":")[2])
        second = make(tmp_path / "second", port=port)
        done = here.run("node", "serve", "--node", "second")
        assert (done.code, done.out) == (2, ""), done
        assert str(port) in done.err
        assert not second.store.exists()


def test_a_node_that_does_not_run_is_told_from_a_folder_without_one(here: Here) -> None:
    assert ok(here.run("node", "init", "mine")).startswith("a node in ")
    again = here.run("node", "init", "mine")
    assert (again.code, again.out) == (2, "")
    assert "there is a node in" in again.err
    for words in (("status",), ("orders",), ("ledger", "top-up", "1")):
        asleep = here.run("node", *words, "--node", "mine")
        assert (asleep.code, asleep.out) == (1, ""), words
        assert "does not run: start it with `anabranch node serve`" in asleep.err
    Path("mine/url").write_text(f"http://127.0.0.1:{free_port()}\n")  # left by one that was killed
    Path("mine/authtok").write_text("x")
    killed = here.run("node", "status", "--node", "mine", "--json")
    assert killed.code == 1
    assert killed.json["problem"]["code"] == "node_away"
    assert here.run("node", "status", "--wait", "1", "--node", "mine").code == 1
    for action in ("status", "serve", "check", "id"):
        nowhere = here.run("node", action, "--node", "elsewhere")
        assert (nowhere.code, nowhere.out) == (2, ""), action
        assert "there is no node in" in nowhere.err
    assert not Path("elsewhere").exists()


def test_a_folder_that_cannot_be_one_of_a_node_is_refused_and_left_alone(here: Here) -> None:
    Path("file").write_text("mine")
    for words, said in (
        (("file",), "cannot be the folder of a node: File exists"),
        (("file/below",), "cannot be the folder of a node: Not a directory"),
        (("new", "--seed-url", "nowhere"), "--seed-url: 'nowhere' is no URL"),
        (("new", "--port", "70000"), "invalid port value: '70000'"),
    ):
        done = here.run("node", "init", *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err, words
    assert Path("file").read_text() == "mine"
    assert not Path("new").exists()
    assert "there is no node in" in here.run("node", "status", "--node", "file").err


def test_the_identities_of_a_node_are_printed_alone(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = here.run("node", "init", "mine", "--org", "--json").json
    for role in ("node", "participant", "org"):
        assert ok(here.run("node", "id", role, "--node", "mine")) == made[role] + "\n"
    assert ok(here.run("node", "--node", "mine", "id")) == made["node"] + "\n"
    monkeypatch.setenv("ANABRANCH_NODE", "mine")
    assert here.run("node", "id", "--json").json == {"role": "node", "id": made["node"]}
    here.run("node", "init", "other")
    missing = here.run("node", "id", "org", "--node", "other")
    assert (missing.code, missing.out) == (2, "")
    assert "there is no key org.key" in missing.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "node.json"),
        ('{"name": "x", "prot": 1}', "prot: did you mean"),
        ('{"name": "x", "host": "0.0.0.0"}', "set `host` in node.json to 127.0.0.1"),
        ('{"name": "x", "orders": {"accept_second": 1}}', "accept_second"),
        ('{"name": "x", "peers": {"skew_ms": 0}}', "skew_ms"),
        ('{"name": "x", "delivery": {"max_bytes": 0}}', "delivery.max_bytes"),
        ('{"name": "x", "modules": [{"id": "a b"}]}', "modules[0].id"),
        ('{"name": "x", "seeds": ["foo"]}', "`seeds`: 'foo' is no URL"),
        ("[" * 10_000, "node.json"),
        ('{"name": "x", "port": 70000}', "<= 65535 - at `$.port`"),
    ],
)
def test_what_is_wrong_in_the_file_of_a_node_is_named(here: Here, content: str, said: str) -> None:
    here.run("node", "init", "mine")
    Path("mine/node.json").write_text(content)
    done = here.run("node", "serve", "--node", "mine")
    assert (done.code, done.out) == (2, ""), done
    assert said in done.err


def test_every_action_of_the_grammar_is_carried_out_and_takes_json_and_a_folder() -> None:
    verbs: Any
    (verbs,) = (one for one in build()._actions if one.dest == "verb")
    actions = next(one for one in verbs.choices["node"]._actions if one.dest == "action")
    found: set[tuple[str, str]] = set()
    for name, parser in actions.choices.items():
        doing = [one.choices for one in parser._actions if one.dest == "do"]
        words = {(name, do): each for do, each in (doing[0] if doing else {}).items()}
        for each in (parser, *words.values()):
            options = each._option_string_actions
            assert "--json" in options, each.prog
            assert "--node" in options or name == "init", each.prog
        found |= {(name, ""), *words}
    assert found == set(_ASKED) | {(name, "") for name in ("init", "serve", "check", "id")}


def test_the_grammar_has_the_states_of_executions() -> None:
    assert sorted(arguments.STATES) == sorted(STATES)
    assert arguments.STATES.index("dispatched") == 2


def test_a_mistyped_action_is_answered_with_what_was_meant(here: Here) -> None:
    for words, meant in (
        (("node", "order"), "did you mean orders?"),
        (("node", "orders", "plac"), "did you mean place?"),
        (("node", "orders", "--opne"), "did you mean --open?"),
        (("node", "orders", "wait", "x", "--state", "release"), "did you mean released?"),
    ):
        done = here.run(*words)
        assert (done.code, done.out) == (2, ""), words
        assert meant in done.err, words
