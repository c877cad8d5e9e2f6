"""At the terminal a damaged run is told in a line, not with a traceback."""

from __future__ import annotations

import pytest

from damage import damage

from .support import GATE, HELLO, Here


@pytest.mark.parametrize("how", ["truncated row", "snapshot garbage", "unknown status"])
def test_show_and_explain_name_the_damage_and_runs_lists_all(how: str, here: Here) -> None:
    here.write("gate.yaml", GATE)
    here.write("hello.yaml", HELLO)
    here.run("run", "gate.yaml", "--run-id", "bad")
    here.ok("run", "hello.yaml", "--run-id", "good")
    damage(here.store, "bad", how)
    for verb in ("show", "explain"):
        done = here.run(verb, "bad")
        assert (done.code, done.out) == (1, "")
        assert "anabranch: run bad is damaged: " in done.err
        assert "anabranch store check" in done.err
        assert len(done.err.splitlines()) == 1
        assert here.run(verb, "bad", "--json").json["problem"]["code"] == "damaged_run"
    assert here.ok("show", "good").out
    listed = here.ok("runs").out
    assert "bad" in listed
    assert "good" in listed
    assert ("damaged" in listed) == (how == "unknown status")
    decided = here.run("decide", "bad", "ask", "--fulfil")
    assert decided.code == 1
    assert "run bad" in decided.err


def test_resume_goes_on_with_the_runs_beside_a_damaged_one(here: Here) -> None:
    here.write("gate.yaml", GATE)
    for name in ("bad", "good"):
        here.run("run", "gate.yaml", "--run-id", name)
    damage(here.store, "bad", "truncated row")
    here.ok("decide", "good", "ask", "--fulfil", "--actor", "ann")
    here.ok("resume", "good")
    assert here.show("good")["result"] == "shipped"
