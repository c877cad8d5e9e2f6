"""Bad input is named, with what to do, in the same words at the command line and over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.surfaces.client import Client
from anabranch.surfaces.http.serve import Server

from .server_in_thread import served
from .support import HEAD, Here

OLD, NEW = "o" * 40, "n" * 40
SECRET = "pass-word-1234"
ASKS = f"""{HEAD}metadata: {{name: asks}}
workflow:
  - step: load
    tool: {{kind: http, url: "http://127.0.0.1:1/", auth: NAME}}
"""
CHECK = {"payload": {"amount": {"type": "int64"}}, "rules": ["[amount] > 0"]}
WRONG_HASH = "0x" + "7" * 64
BUNDLE = {
    "format": "xgr-multi-bundle@1",
    "createdAt": "2026-06-01T12:00:00Z",
    "bundles": [
        {
            "bundleId": "b1",
            "items": [
                {
                    "id": "orders",
                    "meta": {"type": "XRC-729", "alias": "Orders"},
                    "structure": {"CHECK": {"rule": "cm:xrc137:Check"}},
                    "ostcHash": WRONG_HASH,
                },
                {"id": "Check", "meta": {"type": "XRC-137", "alias": "Check"}, **CHECK},
            ],
        }
    ],
}


def flow(path: str, child: str, text: str = "") -> str:
    return f"""{HEAD}metadata: {{name: {path[-1]}, path: {path}}}
workflow:
  - step: s{text}
    tool: {{kind: playbook, path: {child}}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its credential `sealed` was encrypted with another key than the server has."""
    store = tmp_path_factory.mktemp("server") / "runs.db"
    with served(store, secret_key=OLD) as before:
        asyncio.run(_add(before.url, "sealed"))
    with served(store, secret_key=NEW) as running:
        yield running


async def _add(url: str, name: str) -> Any:
    async with Client(url) as client:
        body = {"name": name, "type": "secret", "data": SECRET}
        return await client.post("credentials", body=body)


@pytest.fixture(params=["store", "server"])
def at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Where the same words are asked: a store of this machine, or a server."""
    if request.param == "server":
        return ("--server", request.getfixturevalue("server").url)
    here: Here = request.getfixturevalue("here")
    monkeypatch.setenv("ANABRANCH_SECRET_KEY", OLD)
    words = ("credential", "add", "sealed", "--type", "secret", "--value-stdin")
    assert here.run(*words, stdin=SECRET).code == 0
    monkeypatch.setenv("ANABRANCH_SECRET_KEY", NEW)
    return ()


def test_a_credential_that_does_not_exist(here: Here, at: tuple[str, ...]) -> None:
    for action in ("show", "remove"):
        refused = here.run("credential", action, "nobody", *at)
        assert refused.code == 2
        assert "there is no credential 'nobody'; `anabranch credential list` has" in refused.err
    here.write("asks.yaml", ASKS.replace("NAME", "nobody"))
    failed = here.run("run", "asks.yaml", "--json", *at)
    assert failed.code == 1
    said = json.loads(failed.out)["problem"]["message"]
    assert "there is no credential 'nobody' (looked in" in said
    assert "anabranch credential add nobody" in said


def test_a_wrong_key_for_the_store(here: Here, at: tuple[str, ...]) -> None:
    words = ("credential", "add", "other", "--type", "secret", "--value-stdin")
    refused = here.run(*words, *at, stdin="another-one")
    assert refused.code == 2
    assert "the stored credentials were encrypted with the key" in refused.err
    assert "Nothing was written" in refused.err
    listed = here.run("credential", "list", *at)
    assert "other key" in listed.out
    here.write("asks.yaml", ASKS.replace("NAME", "sealed"))
    failed = json.loads(here.run("run", "asks.yaml", "--json", *at).out)
    said = failed["problem"]["message"]
    assert "credential 'sealed': the key in the setting secret_key is" in said
    assert "start with that key (secret_key_file, or ANABRANCH_SECRET_KEY)" in said
    shown = refused.err + listed.out + said
    assert not any(word in shown for word in (OLD, NEW, SECRET, "another-one"))


def test_a_path_with_two_definitions(here: Here, at: tuple[str, ...]) -> None:
    here.write("a.yaml", flow("etl/x", "etl/other"))
    here.write("b.yaml", flow("etl/x", "etl/other", "econd"))
    refused = here.run("register", "a.yaml", "b.yaml", *at)
    assert refused.code == 2
    assert "the path 'etl/x' has two definitions, a.yaml and b.yaml" in refused.err
    assert "etl/x" not in here.run("catalog", "list", *at).out


def test_a_cycle_of_children(here: Here, at: tuple[str, ...]) -> None:
    here.write("a.yaml", flow("etl/a", "etl/b"))
    here.write("b.yaml", flow("etl/b", "etl/a"))
    assert here.run("register", "a.yaml", "b.yaml", *at).code == 0
    said = here.run("check", "a.yaml", *at).out
    assert "child-cycle: warning: it starts itself through its children" in said
    assert "etl/a → etl/b → etl/a" in said


def test_a_cycle_of_children_in_a_folder(here: Here) -> None:
    (here.folder / "flows").mkdir()
    here.write("flows/a.yaml", flow("etl/a", "etl/b"))
    here.write("flows/b.yaml", flow("etl/b", "etl/a"))
    said = here.run("check", "flows/a.yaml", "--catalog", "flows").out
    assert "etl/a → etl/b → etl/a" in said


def test_a_bundle_with_a_wrong_hash(here: Here, at: tuple[str, ...]) -> None:
    here.write("orders.json", json.dumps(BUNDLE))
    checked = here.run("check", "orders.json", *at)
    assert checked.code == 2
    assert "orders.json:" in checked.out
    assert "wrong-hash" in checked.out
    assert WRONG_HASH in checked.out
    assert "the text hashes to 0x" in checked.out
    refused = here.run("run", "orders.json", "--input", "amount=1", *at)
    assert refused.code == 2
    assert "wrong-hash" in refused.err


def test_a_plan_that_fails_says_which_expectation_and_what_came_instead(here: Here) -> None:
    whole = json.loads(json.dumps(BUNDLE))
    del whole["bundles"][0]["items"][0]["ostcHash"]
    alternative = {"id": "a", "stepId": "CHECK", "occurrence": 1, "exist": True, "valid": False,
                   "status": "", "inputAssertions": [], "apiAssertions": [],
                   "contractReadAssertions": []}  # fmt: skip
    plan = {
        "id": "p",
        "title": "an order is refused",
        "source": {"bundleId": "b1", "rawBundleJson": json.dumps(whole)},
        "runtime": {"stepId": "CHECK", "maxTotalGas": 0, "payload": {"amount": 5}},
        "expectations": {
            "timeline": [
                {"id": "e", "mode": "allOf", "label": "CHECK", "alternatives": [alternative]}
            ],
            "finalStatuses": ["done"],
            "finalStep": "Any",
        },
        "execution": {"ownerAlias": "ann", "starterAlias": "ann"},
    }
    kept = {"kind": "xgr.multi-test-plan", "version": 1, "plans": [plan]}
    here.write("plans.json", json.dumps(kept))
    failed = here.run("test", "plans.json")
    assert failed.code == 1
    assert "an order is refused" in failed.out
    assert "expected: step CHECK is invalid; instead: it is done, valid" in failed.out
    assert "0 of 1 passed" in failed.out
