"""`passport`: a key, a passport signed with it, and whether it holds."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from .support import Here


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
