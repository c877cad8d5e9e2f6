"""Workflows, templates, drawings, spellings, sessions, purges: the same at a store and a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from surfaces.cli.commands.test_orchestrations import CANARY, FORK, OWNER, RULES, rules
from surfaces.cli.commands.test_workflows import DEFINITION, PARTIES, TEMPLATE

from ..alike import differences, plain
from ..server_in_thread import served
from ..support import GATE, HEAD, HELLO, Here

OLD = f"""{HEAD}metadata: {{name: old}}
workflow:
  - step: start  # a comment
    next: [{{step: end}}]
  - {{step: end, tool: {{kind: noop}}}}
"""
BAD = "workflow: [\n"
RULE = {"payload": {"age": {"type": "int64"}}, "rules": ["[age] > 17"]}

SCRIPT = f"""
run solicit.json --run-id r1
dispatches r1
dispatches r1 --json
dispatches r1 --step ask
dispatches r1 --step nowhere
dispatches r1 --status timeout --json
dispatches nobody
snapshot r1
snapshot r1 --json
snapshot nobody
run hello.yaml --run-id h1 --label team=a
run hello.yaml --run-id h2
dispatches h1
snapshot h1 --json
template put template.json
template put template.json --json
template put later.json
template put old_template.json
template put none.json
template list
template list --json
template versions solicit.v1
template versions solicit.v1 --json
template versions other
template show solicit.v1
template show solicit.v1 --version 1 --json
template show solicit.v1 --version 7
template show solicit.v2
template run solicit.v1 --param topic=rivers --run-id t1 --label team=b
template run solicit.v1 --param topic=rivers --version 1 --run-id t2 --json
template run solicit.v1 --param topic=rivers --dry-run
template run solicit.v1
template run solicit.v1 --param topc=x
template run solicit.v1 --param topic=5 --json
template run nothing --param a=1
template run solicit.v1 --param topic=x --input-file none.json
show t1
runs --label team=b
graph hello.yaml
graph hello.yaml --format svg
graph solicit.json --format dot --json
graph bad.yaml
graph nameless.yaml
run nameless.yaml --run-id n1
show n1
check broken.json
check sub/bad.yaml hello.yaml --json
run sub/bad.yaml
run broken.json --json
fmt broken.json
graph none.yaml
graph h1 --json
fmt old.yaml --stdout
fmt old.yaml --check
fmt old.yaml hello.yaml --check --json
fmt old.json --stdout
fmt crlf.yaml --check
fmt bad.yaml --stdout
fmt none.yaml
fmt solicit.json --stdout
check fork.json --rules rules
graph fork.json --rules rules
run fork.json --rules rules --run-id s1 --input n=4 --input __secretKey=canary-1234-sings
run fork.json --rules rules --run-id s2 --input n=4 --owner {OWNER}
session list
session list --last 1 --json
session list --last 0
session list --owner {OWNER}
session show s1
session receipts s1 --json
session receipts s1 --iteration 2
session gas rule.json
session gas rule.json --json --valid-spawns 3
session gas bad.yaml
session gas none.json
snapshot s1 --json
run gate.yaml --run-id g1
bulk pause
bulk patch --all
bulk pause --name gate --dry-run
bulk pause --name gate
bulk pause --name gate --json
bulk resume --name gate
bulk cancel --status waiting --reason tidy
bulk redrive --name gate --dry-run --json
bulk purge --name gate
purge --dry-run
purge --older-than soon
purge --older-than 0s --label team=a --dry-run --json
purge --older-than 0s --name hello --dialect noetl --prefix h --status failed
purge --older-than 0s --label team=a
purge --older-than 0s --dry-run
purge --older-than 0s --json
runs
template list
""".strip().splitlines()

#: What shows that a command line is meant to be refused.
WRONG = (
    *("nobody", "none.", "nothing", "other", "old_template", "v2", "--version 7", "bad.yaml"),
    *(
        "broken",
        "run solicit.v1\n",
        "topc=x",
        "topic=5",
        "soon",
        "fmt solicit.json",
        "bulk pause\n",
    ),
    "bulk patch --all",
)
OTHER_CODES = {
    "fmt old.yaml --check": 1,
    "fmt old.yaml hello.yaml --check --json": 1,
    "fmt crlf.yaml --check": 1,
    "run gate.yaml --run-id g1": 4,
    "bulk pause --name gate --json": 3,
}


@pytest.fixture
def target(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A folder with definitions of every kind, and two participants who can be asked."""
    monkeypatch.syspath_prepend(str(here.folder))
    here.write("workflow_parties.py", PARTIES)
    entry = {"service_types": ["text/summarise"]}
    people = {
        "p1": {"function": "workflow_parties:cheap", "price": 2, **entry},
        "p2": {"function": "workflow_parties:dear", "price": 5, **entry},
    }
    files: dict[str, Any] = {
        "book.json": {"participants": people},
        "solicit.json": DEFINITION,
        "template.json": TEMPLATE,
        "later.json": TEMPLATE | {"label": "Ask around again"},
        "old_template.json": TEMPLATE | {"deadline_seconds": 60},
        "fork.json": FORK,
        "rule.json": RULE,
        "old.json": {"workflow": [{"step": "start", "next": [{"step": "end"}]}, {"step": "end"}]},
    }
    for name, value in files.items():
        here.write(name, json.dumps(value))
    rules(here, RULES)
    for name, text in (("hello", HELLO), ("gate", GATE), ("old", OLD), ("bad", BAD)):
        here.write(f"{name}.yaml", text)
    here.write("nameless.yaml", "workflow:\n- {step: a, tool: {kind: noop, result: 7}}\n")
    here.write("broken.json", '{"workflow": [}\n')
    (here.folder / "sub").mkdir()
    here.write("sub/bad.yaml", BAD)
    (here.folder / "crlf.yaml").write_bytes(OLD.replace("\n", "\r\n").encode())
    monkeypatch.setenv("ANABRANCH_PARTICIPANTS", "book.json")
    return here


def test_every_other_verb_reads_the_same_at_a_server(
    target: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [plain(target.run(*line.split())) for line in SCRIPT]
    with served(target.folder / "served.db", participants="book.json") as made:
        monkeypatch.setenv("ANABRANCH_SERVER", made.url)
        there = [plain(target.run(*line.split())) for line in SCRIPT]
    differ = differences(SCRIPT, here, there)
    assert not differ, differ
    assert CANARY not in repr(here)  # also not in the snapshot of a session
    codes = {line: told[0] for line, told in zip(SCRIPT, here, strict=True)}
    refused = {line for line in SCRIPT if codes[line] == 2}
    assert refused == {line for line in SCRIPT if any(word in f"{line}\n" for word in WRONG)}
    assert {line: codes[line] for line in SCRIPT if codes[line] not in (0, 2)} == OTHER_CODES
