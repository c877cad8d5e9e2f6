"""Decisions, admission, patches: gates are answered by script or stay open."""

from __future__ import annotations

import pytest

from anabranch.errors import InputError
from anabranch.net.net import Admission, AdmitRule, Decision, Net, Step, Work
from anabranch.testing import after, error, never, ok, play

from .support import calls, net, to, when


def _approval(**more: object) -> Net:
    decision = Decision(ask="ship it?", **more)  # type: ignore[arg-type]
    return net(
        calls("pack", branches=to("approve")),
        Step("approve", decision=decision, branches=to("ship")),
        calls("ship"),
    )


def test_an_unscripted_decision_stays_open() -> None:
    played = play(_approval(actors=("kim",)))
    assert (played.status, played.step("approve").status) == ("waiting", "deciding")
    assert [wait.waits_for for wait in played.waiting] == ["a decision by kim: ship it?"]


def test_a_decision_is_scripted_like_a_step() -> None:
    played = play(_approval(actors=("kim", "sam")), script={"approve": after(60, ok({"ref": 7}))})
    assert (played.status, played.seconds) == ("completed", 60.0)
    (decided,) = played.events_of("gate.decided")
    assert (decided["verdict"], decided["actor"], decided["evidence"]) == (
        "fulfil",
        "kim",
        {"ref": 7},
    )


def test_an_error_rejects() -> None:
    played = play(_approval(), script={"approve": error("no", "too dear")})
    assert played.step("approve").status == "failed"
    assert played.problem == {"code": "rejected", "message": "rejected by script: too dear"}


def test_never_leaves_the_gate_open() -> None:
    assert play(_approval(), script={"approve": never()}).status == "waiting"


def test_work_and_its_decision_are_scripted_apart() -> None:
    step = Step("offer", work=Work("http"), decision=Decision(on_reject="retry"))
    script, decisions = {"offer": [1, 2, 3]}, {"offer": [error("no"), error("no"), ok()]}
    played = play(net(step), script=script, decisions=decisions)
    assert (played.status, played.result) == ("completed", 3)
    assert play(net(step), script=script).status == "waiting"


def test_a_rejection_is_not_repeated_at_the_same_gate() -> None:
    step = Step("offer", work=Work("http"), decision=Decision(on_reject="retry"))
    played = play(net(step), decisions={"offer": error("no")})
    assert (played.status, len(played.events_of("job.started"))) == ("waiting", 2)


def test_a_rejection_may_pause_the_run() -> None:
    played = play(_approval(on_reject="pause"), script={"approve": error("no")})
    assert played.status == "paused"


def test_patches_open_admission_gates_at_their_time() -> None:
    gate = Admission((AdmitRule(when("ctx.go", lambda names: names["ctx"].get("go")), True),))
    flow = net(calls("a", admission=gate))
    assert play(flow).status == "waiting"
    assert play(flow, patches={30: {"go": False}}).status == "waiting"
    played = play(flow, patches={30: {"go": False}, 90.5: {"go": True}})
    assert (played.status, played.seconds) == ("completed", 90.5)
    assert play(flow, decisions={"a": after(10, ok())}).seconds == 10.0
    assert play(flow, decisions={"a": error("no")}).step("a").status == "discarded"
    assert play(flow, script={"a": ok()}).status == "waiting"  # its work, not its gate


def test_a_patch_that_cannot_be_applied_is_an_error_of_the_test() -> None:
    with pytest.raises(InputError, match="nothing to patch"):
        play(_approval(), patches={1: {}})
    with pytest.raises(InputError, match="not JSON"):
        play(_approval(), patches={1: {"x": object()}})
