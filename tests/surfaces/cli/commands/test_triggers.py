"""`anabranch trigger` and `anabranch alias` do what they say, and bad input changes nothing."""

from __future__ import annotations

import pytest

from ..server_in_thread import served
from ..support import HEAD, Here

QUOTES = f"""{HEAD}metadata: {{name: quotes, path: quotes}}
workload: {{order: "first"}}
workflow:
  - step: only
    tool: {{kind: noop, result: "{{{{ workload.order }}}}"}}
"""
HOOK = ("--hook", "--credential", "shop")


def registered(here: Here) -> None:
    here.write("quotes.yaml", QUOTES)
    here.ok("register", "quotes.yaml")
    here.write("quotes.yaml", QUOTES.replace("first", "second"))
    here.ok("register", "quotes.yaml")


def test_an_alias_leads_to_a_version_and_back(here: Here) -> None:
    registered(here)
    assert here.ok("alias", "set", "prod", "quotes@1").out == "prod leads to quotes@1\n"
    assert here.ok("run", "prod", "--json").json["result"] == "first"
    here.ok("alias", "set", "prod", "quotes@2")
    assert here.ok("run", "prod", "--json").json["result"] == "second"
    assert here.ok("run", "quotes@1", "--json").json["result"] == "first"
    assert here.ok("run", "quotes", "--json").json["result"] == "second"
    assert here.ok("alias", "rollback", "prod").out == "prod leads to quotes@1 again\n"
    assert [one["target"] for one in here.ok("alias", "list", "--json").json] == ["quotes@1"]
    assert here.ok("alias", "show", "prod").out.startswith("alias prod leads to quotes@1")
    here.ok("alias", "remove", "prod")
    assert here.ok("alias", "list").out == "no aliases\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("alias", "set", "a", "a"), "itself"),
        (("alias", "set", "a", "prod"), "is an alias itself"),
        (("alias", "set", "a", "quotes@9"), "in version 9"),
        (("alias", "set", "a", "nothing"), "no definition"),
        (("alias", "set", "quotes", "quotes@1"), "is a path of the catalog"),
        (("alias", "set", "no/slash", "quotes"), "cannot be an alias"),
        (("alias", "rollback", "prod"), "nothing to go back to"),
        (("alias", "rollback", "prd"), "did you mean 'prod'"),
        (("run", "prod@1"), "is an alias of quotes@1"),
        (("trigger", "add", "x", "quotes", "--hook"), "(--credential, "),
        (("trigger", "add", "x", "gone", *HOOK), "no definition"),
        (("trigger", "add", "x", "quotes@7", *HOOK), "in version 7"),
        (("trigger", "add", "x", "quotes", *HOOK, "--input", "order={{ a( }}"), "cannot be read"),
        (("trigger", "add", "x", "quotes", *HOOK, "--input", "odd=1"), "odd"),
        (("trigger", "add", "x", "quotes", *HOOK, "--window", "2h"), "window"),
        (("trigger", "add", "x", "quotes", *HOOK, "--status", "failed"), "belong to --after"),
        (("trigger", "add", "x", "quotes", "--after", "quotes"), "for ever"),
        (("trigger", "add", "x", "--after", "quotes"), "say what to start"),
        (("trigger", "add", "x y", "quotes", *HOOK), "cannot be the name of a trigger"),
        (("trigger", "show", "x"), "there is no trigger"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    here: Here, words: tuple[str, ...], said: str
) -> None:
    registered(here)
    here.ok("alias", "set", "prod", "quotes@1")
    refused = here.run(*words)
    assert refused.code != 0
    assert said in refused.err
    assert here.ok("trigger", "list").out == "no triggers\n"
    assert [one["name"] for one in here.ok("alias", "list", "--json").json] == ["prod"]


def test_every_verb_answers_alike_at_a_store_and_at_a_server(here: Here) -> None:
    registered(here)
    with served(here.folder / "anabranch.db") as server:
        for where in ((), ("--server", server.url)):
            here.ok("alias", "set", "prod", "quotes@1", *where)
            said = here.ok("trigger", "add", "paid", "prod", *HOOK, *where).out
            assert said == "trigger paid: POST /hooks/paid, starts prod\n"
            after = ("--after", "load", "--where", "tenant=north", "--status", "any")
            here.ok("trigger", "add", "then", "quotes", *after, *where)
            listed = here.ok("trigger", "list", "--json", *where).json
            assert [(one["name"], one["kind"]) for one in listed] == [
                ("paid", "hook"),
                ("then", "after"),
            ]
            tried = here.ok(
                "trigger", "test", "paid", "--body", '{"order": "A"}', "--json", *where
            ).json
            assert (tried["fires"], tried["input"]) == (True, {"order": "A"})
            here.ok("trigger", "pause", "paid", *where)
            assert here.ok("trigger", "show", "paid", *where).out.startswith(
                "trigger paid (paused)"
            )
            here.ok("trigger", "resume", "paid", *where)
            assert here.ok("trigger", "retry", "then", "--json", *where).json == {"count": 0}
            assert here.run("trigger", "retry", "paid", *where).code != 0
            for name in ("paid", "then"):
                here.ok("trigger", "remove", name, *where)
            assert here.ok("webhook", "list", *where).out == "no webhooks\n"
            here.ok("alias", "remove", "prod", *where)
