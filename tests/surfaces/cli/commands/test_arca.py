"""`anabranch arca`: what its actions answer, asked of a module that a real node has launched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.folder import NodeFolder
from anabranch.modules.kit.entries import PORTS
from anabranch.surfaces.cli.commands.arca import runs, templates
from anabranch.surfaces.cli.commands.node import arguments
from anabranch.surfaces.cli.main import command
from anabranch.surfaces.cli.parser import build
from free_ports import free_port

from ..nodes_in_thread import served_nodes
from ..support import Done, Here, until

TEMPLATE = {
    "template_id": "quotes.v1",
    "label": "Ask for quotes",
    "parameters": {"service": {"type": "string", "required": True}},
    "plan": {
        "steps": [
            {
                "step_id": "quote",
                "target": {"resolve": "task_type", "task_type": "{{params.service}}"},
            }
        ]
    },
}


def definition(**more: Any) -> str:
    step = {"step_id": "quote", "target": {"resolve": "task_type", "task_type": "x/y"}, **more}
    return json.dumps({"workflow_id": "quotes", "plan": {"steps": [step]}}, indent=1)


def ok(done: Done) -> str:
    assert (done.code, done.err) == (0, ""), done
    return done.out


@contextmanager
def hosting(folder: Path) -> Iterator[None]:
    """A node in the folder `buyer` that hosts Arca."""
    assert command(["node", "init", str(folder / "buyer"), "--with", f"arca:{free_port()}"]) == 0
    with served_nodes(NodeFolder(folder / "buyer")):
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a node runs that all tests ask which do not mind what it has done before."""
    folder = tmp_path_factory.mktemp("arca")
    with hosting(folder):
        yield folder


@pytest.fixture
def buyer(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(place, capsys, monkeypatch)


def test_a_new_node_has_no_runs_no_templates_and_no_offers(here: Here) -> None:
    with hosting(here.folder):
        at = ("--node", "buyer")
        assert ok(here.run("arca", "runs", *at)) == "there are no such runs\n"
        told = here.run("arca", "show", "last", *at)
        assert (told.code, told.out) == (2, "")
        assert "no run yet" in told.err
        assert ok(here.run("arca", "templates", *at)) == "this node keeps no templates\n"
        synced = ok(here.run("offers", "sync", *at))
        assert synced.startswith("no other catalog is known")
        assert here.run("offers", "sync", "--json", *at).json["status"] == "done"
        listed = ok(here.run("offers", "list", *at))
        assert listed == "no offers; `anabranch offers sync` asks other catalogs now\n"


def test_a_node_is_made_with_the_modules_it_hosts(here: Here) -> None:
    ok(here.run("node", "init", "one", "--with", "arca", "--with", "dator:4000"))
    modules = json.loads(Path("one/node.json").read_text())["modules"]
    assert [one["id"] for one in modules] == ["arca", "dator"]
    assert modules[0]["http"]["endpoint"] == "http://127.0.0.1:47981"
    assert modules[1]["http"]["endpoint"] == "http://127.0.0.1:4000"
    assert modules[0]["auth-token"] == "X-Arca-Auth"
    directory = json.loads(Path("one/node.json").read_text())["directory"]
    assert directory == {"passports": ["offer-catalog"]}, "so that others find its offers"
    for words in (["--with", "other"], ["--with", "arca:x"], ["--with", "arca", "--with", "arca"]):
        refused = here.run("node", "init", "two", *words)
        assert refused.code == 2, refused
        assert not Path("two").exists()


def test_a_run_is_started_looked_at_and_ended(buyer: Here) -> None:
    Path("waits.json").write_text(definition(max_retries=1000, retry_delay_ms=1000))
    words = ("arca", "run", "waits.json", "--run-id", "run:first", "--node", "buyer")
    assert ok(buyer.run(*words)) == "run:first: running\n"
    assert buyer.run(*words, "--json").json["run_id"] == "run:first", "the same run again"
    (row,) = buyer.run("arca", "runs", "--status", "active", "--node", "buyer", "--json").json
    assert (row["run_id"], row["workflow_id"]) == ("run:first", "quotes")
    assert "run:first" in ok(buyer.run("arca", "runs", "--workflow", "quotes", "--node", "buyer"))
    assert "quote:" in ok(buyer.run("arca", "show", "run:first", "--node", "buyer"))
    assert "run:first: running" in ok(buyer.run("arca", "explain", "run:first", "--node", "buyer"))
    asked = buyer.run("arca", "dispatches", "run:first", "--node", "buyer")
    assert ok(asked) == "no participant has been asked yet\n"
    paused = buyer.run("arca", "pause", "run:first", "--actor", "kim", "--node", "buyer")
    assert ok(paused) == "run:first: paused\n"
    assert buyer.run(*words, "--wait", "1").code == 4, "it stands still"
    assert ok(buyer.run("arca", "resume", "run:first", "--node", "buyer")) == "run:first: running\n"
    early = buyer.run("arca", "confirm", "run:first", "quote", "--node", "buyer")
    assert (early.code, early.out) == (2, "")
    ended = buyer.run("arca", "cancel", "run:first", "--reason", "enough", "--node", "buyer")
    # What was at work at that moment is stopped first.
    assert ok(ended) in ("run:first: cancelled\n", "run:first: running\n")
    show = ("arca", "show", "run:first", "--node", "buyer", "--json")
    until(lambda: buyer.run(*show).json["status"] == "cancelled")
    explained = ok(buyer.run("arca", "explain", "run:first", "--node", "buyer"))
    assert explained == "run:first: cancelled\n  nothing is unfinished\n"
    assert buyer.run("arca", "show", "run:other", "--node", "buyer").code == 2


@pytest.mark.parametrize(
    ("stands", "lines"),
    [
        ({"at_work": True, "waits_for": "its work (attempt 2)"}, ["step s: at work (attempt 2)"]),
        ({"queued": True, "waits_for": "a worker"}, ["step s: queued, waits for a worker", "  me"]),
        ({"waits_for": "a decision: May we?"}, ["step s: waits for a decision: May we?", "  me"]),
    ],
)
def test_explain_says_that_something_waits_only_where_it_does(
    stands: dict[str, Any], lines: list[str]
) -> None:
    assert runs.waiting_lines({"what": "token", "step": "s", "movers": ["me"], **stands}) == lines


def test_a_run_is_named_by_its_first_letters_or_as_the_last_one(buyer: Here) -> None:
    Path("nobody.json").write_text(definition())
    for name in ("run:same-1", "run:same-2", "run:other"):
        words = ("arca", "run", "nobody.json", "--run-id", name, "--wait", "--node", "buyer")
        assert buyer.run(*words).code == 1

    def show(name: str) -> Done:
        return buyer.run("arca", "show", name, "--node", "buyer")

    assert "(run:other)" in ok(show("last"))
    for name in ("run:o", "oth", "run:other"):
        assert "(run:other)" in ok(show(name))
    assert "several runs start with 'same'" in show("same").err
    assert "(run:same-1)" in ok(show("same-1"))
    assert "there is no run 'none'" in show("none").err


def test_waiting_for_a_run_ends_as_the_run_does(buyer: Here) -> None:
    Path("nobody.json").write_text(definition())
    failed = buyer.run("arca", "run", "nobody.json", "--wait", "--node", "buyer")
    assert (failed.code, failed.err) == (1, "")
    assert "reason: no_targets" in failed.out
    assert "hint: `anabranch offers sync`" in failed.out
    Path("wrong.json").write_text(definition(depends_on=["quote"], fan_in={"policy": "most"}))
    wrong = buyer.run("arca", "run", "wrong.json", "--node", "buyer")
    assert (wrong.code, wrong.out) == (2, "")
    assert len(wrong.err.splitlines()) >= 2
    assert buyer.run("arca", "run", "missing.json", "--node", "buyer").code == 2
    told = buyer.run("arca", "run", "wrong.json", "--json", "--node", "buyer").json
    assert told["problem"]["code"] == "definition"


def test_templates_are_kept_filled_in_run_and_shared(buyer: Here) -> None:
    Path("t.json").write_text(json.dumps(TEMPLATE))

    def ask(*words: str) -> Done:
        return buyer.run("arca", "templates", *words, "--node", "buyer")

    assert ok(ask("put", "t.json")) == "stored quotes.v1\n"
    assert ok(ask("put", "t.json")) == "unchanged quotes.v1\n"
    assert "Ask for quotes" in ok(ask("list"))
    assert json.loads(ok(ask("show", "quotes.v1")))["template_id"] == "quotes.v1"
    assert '"x/y"' in ok(ask("materialise", "quotes.v1", "--param", "service=x/y"))
    for words in (["--param", "other=1"], []):
        assert ask("materialise", "quotes.v1", *words).code == 2
    failed = ask("run", "quotes.v1", "--param", "service=x/y", "--run-id", "run:t", "--wait")
    assert failed.code == 1, "no offer is known here"
    assert buyer.run("arca", "show", "run:t", "--node", "buyer").code == 0
    assert ok(ask("publish", "quotes.v1")).startswith("published quotes.v1 as sha256:")
    assert "published" in ok(ask("list"))
    assert ok(ask("publish", "quotes.v1", "--withdraw")) == "quotes.v1 is private\n"
    assert ok(ask("delete", "quotes.v1")) == "deleted quotes.v1\n"
    assert ask("show", "quotes.v1").code == 2


def test_a_node_without_arca_says_how_to_get_it(here: Here, tmp_path: Path) -> None:
    ok(here.run("node", "init", "plain"))
    with served_nodes(NodeFolder(tmp_path / "plain")):
        told = here.run("arca", "runs", "--node", "plain")
    assert told.code == 2
    assert "--with arca" in told.err
    assert here.run("arca", "runs", "--node", "plain").code == 1, "it does not run any more"


def test_the_module_is_started_by_a_node(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBIPLEX_MIDDLEWARE_HOME", raising=False)
    told = here.run("arca", "serve")
    assert (told.code, told.out) == (2, "")
    assert "started by its node" in told.err


def test_the_grammar_knows_the_actions_and_the_modules() -> None:
    choices: Any = build()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    actions = choices["arca"]._subparsers._group_actions[0].choices
    assert set(actions) == {*runs.ACTIONS, "serve", "templates"}
    doing = actions["templates"]._subparsers._group_actions[0].choices
    assert set(doing) == set(templates.ACTIONS) - {""}
    assert set(arguments.MODULES) == set(PORTS)
