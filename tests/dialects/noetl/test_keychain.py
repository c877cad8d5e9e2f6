"""Named secrets: what the net carries, and how tasks ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.work.secrets.redaction import Keyring, Secret

from ..support import net_of, playbook

KEYCHAIN = """
keychain:
  - {name: api, kind: bearer, token: "{{ env.TOKEN }}"}
  - {name: pw, kind: env, variable: DB_PASSWORD}
  - {name: fixed, kind: static, map: {region: eu}}
  - {name: cert, kind: file, path: /run/cert}
  - {name: db, kind: postgres_credential, provider: env, map: {password: DB_PASSWORD}}
  - {name: idp, kind: oauth2, endpoint: "{{ workload.host }}", data: {a: "{{ keychain.pw }}"}}
"""
NAMES: dict[str, Any] = {
    "run": "r",
    "workload": {"host": "h", "which": "api", "whole": {"type": "basic", "username": "u"}},
    "ctx": {},
    "args": {},
    "results": {},
    "keychain": Keyring({"api": {"type": "bearer", "token": Secret("t0ken")}}),
}


def inputs(task: str, names: dict[str, Any] = NAMES) -> Any:
    body = f"{KEYCHAIN}\nworkflow: [{{step: s, tool: {task}}}]\n"
    work = net_of(body).steps["s"].work
    assert work is not None
    assert work.inputs is not None
    return work.inputs.evaluate(names)


def test_entries_are_carried_with_their_templates_compiled() -> None:
    compiled = playbook(KEYCHAIN + "workflow: [{step: s, tool: {kind: noop}}]\n")
    assert compiled.problems == ()
    assert compiled.net is not None
    entries = compiled.net.keychain
    assert [entry["name"] for entry in entries] == ["api", "pw", "fixed", "cert", "db", "idp"]
    assert entries[1] == {"name": "pw", "kind": "env", "variable": "DB_PASSWORD"}
    assert entries[0]["token"].evaluate({"env": {"TOKEN": "x"}}) == "x"
    assert entries[5]["data"]["a"].evaluate({"keychain": {"pw": "y"}}) == "y"


@pytest.mark.parametrize("auth", ["auth: api", "credential: api", 'auth: "{{ workload.which }}"'])
def test_a_name_is_read_from_the_keychain(auth: str) -> None:
    found = inputs(f"{{kind: http, url: u, {auth}}}")
    assert found == {"url": "u", "auth": {"type": "bearer", "token": "t0ken"}}


def test_a_mapping_or_a_template_that_gives_one_is_taken_as_it_is() -> None:
    mapping = {"type": "basic", "username": "u"}
    assert inputs("{kind: http, url: u, auth: {type: basic, username: u}}")["auth"] == mapping
    assert inputs('{kind: http, url: u, auth: "{{ workload.whole }}"}')["auth"] == mapping


@pytest.mark.parametrize(
    "task",
    [
        "{kind: postgres, query: q, auth: api}",
        "{kind: python, code: c, auth: api}",
        "{kind: artifact, uri: f, auth: api}",
        "{kind: secrets, secret_name: s, auth: api}",
    ],
)
def test_every_kind_with_credentials_finds_them(task: str) -> None:
    assert inputs(task)["auth"]["token"] == "t0ken"


def test_without_a_keychain_nothing_is_revealed() -> None:
    """The kernel evaluates guards and context writes without one."""
    without = {key: value for key, value in NAMES.items() if key != "keychain"}
    with pytest.raises(ExpressionError, match=r"'keychain\.api\.token' is undefined"):
        inputs("{kind: noop, result: '{{ keychain.api.token }}'}", without)


def test_the_closest_entry_is_suggested() -> None:
    body = f"{KEYCHAIN}\nworkflow: [{{step: s, tool: {{kind: http, url: u, auth: apo}}}}]\n"
    (problem,) = playbook(body).problems
    assert (problem.code, problem.hint) == ("unknown-credential", "did you mean 'api'?")


def test_a_secret_that_is_too_short_to_be_found_is_warned_of() -> None:
    keychain = (
        "keychain: [{name: a, kind: static, map: {password: test, region: eu}}, "
        "{name: b, kind: bearer, token: '{{ env.T }}'}, {name: c, kind: bearer, token: abc}]"
    )
    found = playbook(f"{keychain}\nworkflow: [{{step: s, tool: {{kind: noop}}}}]\n").problems
    assert [(each.code, each.severity) for each in found] == [("short-secret", "warning")] * 2
    assert "`password` of keychain entry 1 has fewer than 8 characters" in found[0].message
