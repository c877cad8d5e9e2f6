"""`security` says what of a server is open; a risk has a reason, a remedy and an exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from anabranch.operations.access.tokens import SCOPES

from ..server_in_thread import served
from ..support import Here

#: Settings that leave nothing open on a server for others.
CLOSED = {
    "serve_host": "0.0.0.0",
    "tls_cert": "server.pem",
    "tls_key": "server.key",
    "no_inline": "shell python",
    "http_addresses": "public private",
}


def findings(here: Here, *words: str, code: int = 1) -> dict[tuple[str, str], dict[str, Any]]:
    """What is found, by topic and level; of several the last."""
    done = here.run("security", "--json", *words)
    assert done.code == code, done
    assert done.json["status"] == ("risk" if code else "ok")
    return {(one["topic"], one["level"]): one for one in done.json["findings"]}


@pytest.fixture
def closed(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A store with a token that expires, and settings under which nothing is risky."""
    (here.folder / "server.key").touch(0o600)
    for name, value in CLOSED.items():
        monkeypatch.setenv(f"ANABRANCH_{name.upper()}", value)
    here.ok("token", "create", "--scope", "admin", "--days", "90")
    return here


def test_where_nothing_is_open_it_says_so_and_ends_with_0(closed: Here) -> None:
    assert {level for _, level in findings(closed, code=0)} == {"ok"}
    assert closed.ok("security").out.endswith("nothing is at risk\n")


@pytest.mark.parametrize(
    ("settings", "topic", "part", "change"),
    [
        ({"serve_host": "127.0.0.1"}, "address", "answers without a token", "require_tokens = yes"),
        ({"serve_host": "::1"}, "address", "answers without a token", "require_tokens = yes"),
        ({"tls_cert": "", "tls_key": ""}, "address", "without TLS", "tls_cert and tls_key"),
        (
            {"no_inline": "container"},
            "inline",
            "definitions run code",
            "inline_user",
        ),
        ({"files_allowed": "any"}, "files", "every file that the server may", "files_allowed"),
        (
            {"postgres_identity": "machine"},
            "databases",
            "as the server",
            "postgres_identity = task",
        ),
        ({"http_addresses": "any"}, "calls", "http_addresses lets", "public private"),
        ({"rule_addresses": "public 127.0.0.0/8"}, "calls", "rule_addresses", "public private"),
        ({"webhook_addresses": "any"}, "calls", "webhook_addresses is any", "leave"),
        ({"pools": "gpu=dask://cluster.example:8786"}, "pool", "gpu is on", "dask+tls://"),
    ],
)
def test_what_is_risky_has_a_reason_and_a_remedy(
    closed: Here,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    topic: str,
    part: str,
    change: str,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"ANABRANCH_{name.upper()}", value)
    (risk,) = [one for (_, level), one in findings(closed).items() if level == "risk"]
    assert (risk["topic"], bool(risk["why"])) == (topic, True)
    assert part in risk["what"]
    assert change in risk["change"]
    shown = closed.run("security")
    assert shown.code == 1
    assert [risk[name] in shown.out for name in ("what", "why", "change")] == [True] * 3


def test_a_token_that_never_expires_is_named_with_the_command_that_replaces_it(
    closed: Here,
) -> None:
    made = closed.ok("token", "create", "--scope", "work", "--name", "gpu", "--json").json
    risk = findings(closed)["token", "risk"]
    assert risk["what"] == f"{made['id']} of gpu (work) never expires"
    assert f"anabranch token revoke {made['id']}" in risk["change"]
    closed.ok("token", "revoke", made["id"])
    assert ("token", "risk") not in findings(closed, code=0)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")
def test_keys_and_the_store_are_shown_with_their_modes(closed: Here) -> None:
    closed.ok("credential", "add", "api", "--type", "secret", "--from-file", _file(closed))
    key = Path(f"{closed.store}.key")
    for path, topic in (
        (key, "key"),
        (closed.folder / "server.key", "key"),
        (closed.store, "store"),
    ):
        path.chmod(0o640)
        risk = findings(closed)[topic, "risk"]
        assert str(path.name) in risk["what"]
        assert risk["change"].startswith("chmod 600 ")
        path.chmod(0o600)
    assert {level for _, level in findings(closed, code=0)} == {"ok"}


def _file(here: Here) -> Path:
    file = here.folder / "secret.txt"
    file.write_text("hunter2-hunter3")
    return file


def test_a_server_tells_of_itself_and_only_those_who_may_change_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {
        scope: here.ok("token", "create", "--scope", scope, "--days", "1", "--json").json["token"]
        for scope in SCOPES
    }
    with served(here.store, require_tokens="yes", no_inline="shell python") as server:
        for scope, token in tokens.items():
            monkeypatch.setenv("ANABRANCH_TOKEN", token)
            if scope == "admin":
                found = findings(here, "--server", server.url)
                assert "with a token (this machine only)" in found["address", "ok"]["what"]
                assert "no definition runs code" in found["inline", "ok"]["what"]
                assert ("token", "risk") not in found
            else:
                done = here.run("security", "--server", server.url)
                assert done.code != 0
                assert "scope 'admin'" in done.err
