"""Commands with a PostgreSQL store: beside a server they leave runs to it, else do the work."""

from __future__ import annotations

import json
from itertools import count

import pytest

from ..server_in_thread import served
from ..support import Here

pytest.importorskip("psycopg")

ASKING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: asking}
workflow:
  - step: ask
    tool: {kind: decision, ask: "Go on?"}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: noop, result: went on}
"""
_numbers = count(1)


@pytest.fixture
def store(postgres: str) -> str:
    joint = "&" if "?" in postgres else "?"
    return f"{postgres}{joint}schema=cli_{next(_numbers)}"


def test_a_run_beside_a_server_is_the_servers_and_other_verbs_reach_it(
    here: Here, store: str
) -> None:
    (here.folder / "asking.yaml").write_text(ASKING)
    with served(store) as server:
        begun = here.run("run", "asking.yaml", "--store", store, "--json", "--run-id", "one")
        assert json.loads(begun.out)["status"] == "waiting", begun.err
        assert server.parts.engine.member is not None
        assert server.parts.engine.member.here("one")
        assert len(server.parts.engine.member._open) == 128, "the command has taken nothing"
        decided = here.run("decide", "one", "ask", "--fulfil", "--store", store)
        assert decided.code == 0, decided.err
        resumed = here.run("show", "one", "--store", store, "--json")
        assert json.loads(resumed.out)["run"] == "one"


def test_without_a_server_commands_do_the_work_one_after_the_other(here: Here, store: str) -> None:
    (here.folder / "asking.yaml").write_text(ASKING)
    begun = here.run("run", "asking.yaml", "--store", store, "--json", "--run-id", "one")
    assert json.loads(begun.out)["status"] == "waiting", begun.err
    assert here.run("decide", "one", "ask", "--fulfil", "--store", store).code == 0
    resumed = here.run("resume", "one", "--store", store, "--json")
    assert json.loads(resumed.out)["status"] == "completed", resumed.err


@pytest.mark.parametrize(
    "words",
    [["decide", "one", "ask", "--fulfil"], ["cancel", "one"], ["show", "one"], ["resume", "one"]],
    ids=lambda words: words[0],
)
def test_a_verb_that_looks_for_a_run_makes_no_store(
    here: Here, store: str, words: list[str]
) -> None:
    for _ in range(2):
        done = here.run(*words, "--store", store)
        assert (done.code, "there is no store at" in done.err) == (2, True), done.err
