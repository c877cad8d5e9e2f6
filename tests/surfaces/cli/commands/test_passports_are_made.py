"""`passport`: a key, a passport signed with it, and whether it holds."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from anabranch.clock import SystemClock
from anabranch.market.directory import PassportDirectory
from anabranch.work.participants.book import Book
from anabranch.work.participants.port import ParticipantQuery

from ..support import Here


def test_what_is_issued_holds_and_what_is_changed_does_not(here: Here, tmp_path: Path) -> None:
    made = here.run("passport", "new", "issuer.key", "--json").json
    assert made["node"].startswith("node:did:key:z6Mk")
    assert made["participant"].startswith("participant:did:key:z6Mk")
    assert stat.S_IMODE((tmp_path / "issuer.key").stat().st_mode) == 0o600
    issued = here.run("passport", "issue", "issuer.key", made["node"], "offer-catalog")
    assert issued.code == 0, issued
    here.write("one.json", issued.out)
    assert here.run("passport", "verify", "one.json").out.endswith(": holds\n")
    changed = {**json.loads(issued.out), "capability_id": "network-ledger"}
    here.write("two.json", json.dumps({"passports": [json.loads(issued.out), changed]}))
    done = here.run("passport", "verify", "two.json", "--json")
    assert done.code == 2
    verdicts = [json.loads(line)["verdict"] for line in done.out.splitlines()]
    assert verdicts == ["holds", "the signature does not hold"]
    refused = here.run("passport", "issue", "issuer.key", made["node"], "x y")
    assert (refused.code, refused.out) == (2, "")
    assert "is no capability" in refused.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("new", "there"), "cannot be made"),
        (("issue", "there", "x", "y"), "is not a file with a seed"),
        (("issue", "none", "x", "y"), "is not a file with a seed"),
        (("verify", "there"), "is not JSON"),
        (("verify", "none"), "cannot be read"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    here: Here, words: tuple[str, ...], says: str
) -> None:
    here.write("there", "abc")
    done = here.run("passport", *words)
    assert done.code == 2
    assert says in done.err
    assert (here.folder / "there").read_text() == "abc"


def test_a_revoked_passport_does_not_count_and_a_renewed_one_does(here: Here) -> None:
    issuer = here.run("passport", "new", "issuer.key", "--json").json
    node = here.run("passport", "new", "node.key", "--json").json["node"]
    issued = here.run("passport", "issue", "issuer.key", node, "offer-catalog", "--days", "1").json
    here.write("all.json", json.dumps({"passports": [issued]}))
    for key, signed_by in (("issuer.key", "issuer"), ("node.key", "subject")):
        revoked = here.run("passport", "revoke", key, "all.json").json
        assert (revoked["passport_id"], revoked["signed_by"]) == (issued["passport_id"], signed_by)
        book = {"directory": {"passports": [issued], "issuers": [issuer["participant"]]}}
        assert _holders(book) == [issuer["participant"]]
        book["directory"]["revocations"] = [revoked]
        assert _holders(book) == []
    renewed = here.run("passport", "renew", "issuer.key", "all.json", "--days", "90").json
    here.write("renewed.json", json.dumps(renewed))
    assert here.run("passport", "verify", "renewed.json").code == 0
    assert renewed["expires_at"] > issued["expires_at"]
    same = ("passport_id", "node_id", "capability_id", "scope")
    assert [renewed[each] for each in same] == [issued[each] for each in same]


def _holders(book: dict[str, Any]) -> list[str]:
    opened = PassportDirectory(Book(book), SystemClock())
    opened.sync()
    return opened.find(ParticipantQuery(resolve="capability", capability_id="offer-catalog"))


def test_only_those_who_may_can_revoke_and_renew(here: Here) -> None:
    node = here.run("passport", "new", "issuer.key", "--json").json["node"]
    here.run("passport", "new", "stranger.key")
    one = here.run("passport", "issue", "issuer.key", node, "a").out
    two = here.run("passport", "issue", "issuer.key", node, "b").out
    here.write("one.json", one)
    here.write("two.json", f'{{"items": [{{"passport": {one}}}, {{"passport": {two}}}]}}')
    for verb, says in (("revoke", "the key of neither"), ("renew", "only its issuer can renew")):
        refused = here.run("passport", verb, "stranger.key", "one.json")
        assert (refused.code, refused.out) == (2, "")
        assert says in refused.err
    many = here.run("passport", "revoke", "issuer.key", "two.json")
    assert "two.json holds 2 passports; say which with --id: passport:capability:a:" in many.err
    which = json.loads(two)["passport_id"]
    chosen = here.run("passport", "revoke", "issuer.key", "two.json", "--id", which).json
    assert chosen["capability_id"] == "b"
    none = here.run("passport", "renew", "issuer.key", "two.json", "--id", "passport:x")
    assert "two.json holds no passport with the id passport:x" in none.err


def test_account_namespaces_belong_to_a_ledger_and_to_nothing_else(here: Here) -> None:
    node = here.run("passport", "new", "k", "--json").json["node"]
    ledger = here.run(
        *("passport", "issue", "k", node, "network-ledger"),
        *("--account-namespace", "orc", "--account-namespace", "test"),
    ).json
    assert ledger["scope"] == {"account_namespaces": ["orc", "test"]}
    without = here.run("passport", "issue", "k", node, "network-ledger")
    assert "a passport for network-ledger needs `scope.account_namespaces`" in without.err
    other = here.run("passport", "issue", "k", node, "offer-catalog", "--account-namespace", "orc")
    assert "`scope.account_namespaces` is only for network-ledger" in other.err
    assert (without.code, other.code) == (2, 2)
