"""`anabranch signal`: at a store, beside a running engine and at a server, with the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surfaces.cli.alike import differences, plain
from surfaces.cli.server_in_thread import served
from surfaces.cli.support import HEAD, Here

WAITING = f"""{HEAD}metadata: {{name: payment}}
workload: {{order: 7}}
workflow:
  - step: payment
    tool:
      kind: wait
      event: paid
      filter: "{{{{ signal.payload.order == workload.order }}}}"
      timeout: 2d
    next: {{arcs: [{{step: ship}}]}}
  - {{step: ship, tool: {{kind: noop, result: "{{{{ payment.payload.sum }}}} received"}}}}
"""

SCRIPT = """
run waits.yaml --run-id r1
signal r1 paidd
signal r1 paid {"order":8} --ttl 1h --id early
signal r1 paid {"order":8} --id early
signal r1 paid {"order":9} --id early
signal r1 paid oops
signal r1 paid 1 --ttl never
signal r1 paid 1 --ttl 0
signal r1 paid NaN
signal nobody paid
signal r1 paid {"order":7,"sum":3} --id good --json
signal r1 paid {"order":7,"sum":3} --id good --json
"""


def lines_of(script: str) -> list[str]:
    return [line for line in script.strip().splitlines() if line]


def test_a_store_and_a_server_say_the_same(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("waits.yaml", WAITING)
    lines = lines_of(SCRIPT)
    at_store = [plain(here.run(*line.split())) for line in lines]
    with served(here.folder / "served.db") as server:
        monkeypatch.setenv("ANABRANCH_SERVER", server.url)
        at_server = [plain(here.run(*line.split())) for line in lines]
        monkeypatch.delenv("ANABRANCH_SERVER")
    assert differences(lines, at_store, at_server) == ""


def test_the_words_say_what_became_of_it(here: Here) -> None:
    here.write("waits.yaml", WAITING)
    assert here.run("run", "waits.yaml", "--run-id", "r1").code == 4
    kept = here.ok("signal", "r1", "paid", '{"order": 8}', "--ttl", "1h").out
    assert kept.startswith("signal paid: no wait takes it yet: the run keeps it for one; run r1 is")
    explained = here.ok("explain", "r1").out
    assert "waits for a signal paid that fits {{ signal.payload.order == workload.order }}" in (
        explained
    )
    assert "can be moved by: anabranch signal r1 paid JSON" in explained
    assert '{"order": 8}' in explained
    told = json.loads(here.ok("signal", "r1", "paid", '{"order": 7, "sum": 3}', "--json").out)
    assert (told["signal"], told["name"], told["run"]) == ("taken", "paid", "r1")
    here.ok("resume", "r1")
    assert "3 received" in here.ok("show", "r1").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("paidd",), "did you mean 'paid'?"),
        (("paid", "{"), "the payload is not JSON"),
        (("paid", "NaN"), "not JSON"),
        (("paid", "1", "--ttl", "x"), "is not a duration"),
        (("a b",), "cannot be the name of a signal"),
        (("paid", "1", "--id", "x" * 201), "at most 200 letters"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_kept(
    here: Here, words: tuple[str, ...], said: str
) -> None:
    here.write("waits.yaml", WAITING)
    here.run("run", "waits.yaml", "--run-id", "r1")
    before = here.ok("events", "r1").out
    done = here.run("signal", "r1", *words)
    assert done.code != 0
    assert said in done.err
    assert here.ok("events", "r1").out == before


def test_the_example_runs_as_its_page_says(here: Here) -> None:
    example = Path(__file__).parents[4] / "examples" / "payment.yaml"
    assert here.run("run", str(example), "--run-id", "p").code == 4
    here.ok("signal", "p", "paid", '{"order": 7, "amount": 12.5}')
    assert "12.5 received, order 7 is shipped" in here.ok("resume", "p").out
