"""`anabranch dator`: what its actions answer for people and programs, asked of a node that runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.modules.kit.entries import executor_entry
from anabranch.surfaces.cli.commands.dator.dator import _ACTIONS
from anabranch.surfaces.cli.parser import build
from free_ports import free_port

from ..nodes_in_thread import served_nodes
from ..support import Done, Here, Terminal, beginning, until

OFFER: dict[str, Any] = {
    "service_type": "text/summarise",
    "pricing_amount": 250,
    "dispatch": {"capability_id": "role.summarise"},
}
ROLES = {"role.summarise": {"endpoint": "http://127.0.0.1:9"}}


def folder_of(path: Path, *modules: Any) -> NodeFolder:
    folder = NodeFolder(path)
    folder.create(NodeFile(name=path.name, port=free_port(), modules=modules))
    KeyFolder.create(folder.keys)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A node in the folder `provider` that hosts Dator with one offer; `plain` hosts nothing."""
    path = tmp_path_factory.mktemp("dator")
    folder = folder_of(path / "provider", executor_entry("dator", port=free_port()))
    section = {"offers": [OFFER], "roles": ROLES}
    (folder.path / "config" / "dator.json").write_text(json.dumps({"dator": section}))
    with served_nodes(folder, folder_of(path / "plain")):
        yield path


@pytest.fixture
def provider(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    person = Here(place, capsys, monkeypatch)
    until(lambda: _offers(person))
    return person


def _offers(here: Here) -> list[Any]:
    done = here.run("dator", "offers", "--node", "provider", "--json")
    return [one for one in done.json if one["offer"]] if done.code == 0 else []


def asked(here: Here, *words: str) -> Done:
    return here.run("dator", *words, "--node", "provider")


def test_offers_are_listed_published_and_withdrawn(provider: Here) -> None:
    done = asked(provider, "offers")
    assert done.code == 0
    assert "role.summarise" in done.out
    assert "0 of 16" in done.out
    other = {**OFFER, "service_type": "text/translate", "offer_id": "offer:translations"}
    (provider.folder / "offer.json").write_text(json.dumps(other))
    assert asked(provider, "publish", "offer.json").out == "stored offer:translations\n"
    assert asked(provider, "publish", "offer.json").out == "unchanged offer:translations\n"
    assert asked(provider, "withdraw", "offer:translations").out == "withdrew offer:translations\n"
    refused = asked(provider, "withdraw", "offer:none")
    assert (refused.code, "offer:none" in refused.err) == (2, True)


def test_a_queue_without_orders_says_so(provider: Here) -> None:
    assert asked(provider, "queue").out == "no orders are open\n"
    assert asked(provider, "queue", "--all", "--json").json == []
    done = asked(provider, "accept", "remote-execution:none", "--json")
    assert (done.code, done.json["problem"]["code"]) == (2, "unknown_request")


def test_a_node_that_hosts_no_dator_is_named(provider: Here) -> None:
    done = provider.run("dator", "offers", "--node", "plain")
    assert done.code == 2
    assert "hosts no Dator" in done.err


def test_a_node_that_does_not_run_is_named(here: Here) -> None:
    folder_of(here.folder / "asleep")
    done = here.run("dator", "queue", "--node", "asleep")
    assert done.code == 1
    assert "does not run" in done.err


def test_the_module_is_started_by_a_node(here: Here) -> None:
    done = here.run("dator", "serve")
    assert done.code == 2
    assert "started by its node" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("--function", "json"),
        ("--function", "no_such_module:f"),
        ("--function", "json:dumps", "--auth-header", "X-Role"),
        ("--function", "json:dumps", "--auth-header", "X-Role", "--token-file", "none"),
        ("--port", "1"),
    ],
)
def test_a_role_that_cannot_be_served_is_refused(here: Here, words: tuple[str, ...]) -> None:
    assert here.run("dator", "role", *words).code == 2


def test_a_role_is_served_until_it_is_told_to_stop(terminal: Terminal) -> None:
    terminal.write("summaries.py", "def summarise(given):\n    return given\n")
    words = ("dator", "role", "--function", "summaries:summarise", "--json")
    with beginning(terminal, *words) as role:
        assert role.stdout is not None
        assert json.loads(role.stdout.readline())["module_id"] == "summarise"
        role.interrupt(signal.SIGTERM)
        assert role.end().code == 0


@pytest.mark.parametrize("action", _ACTIONS)
def test_every_action_that_asks_takes_the_folder_of_a_node(action: str) -> None:
    words = {"offers": [], "queue": []}.get(action, ["x"])
    options = build().parse_args(["dator", action, *words, "--node", "provider", "--json"])
    assert (options.node, options.json) == ("provider", True)
