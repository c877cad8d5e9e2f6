"""A script may answer for one task of a pipeline; one that waits for a child parks its job."""

from __future__ import annotations

import pytest

from anabranch.errors import InputError
from anabranch.testing import after, error, never, ok, play, simulate

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: waits}\n"
PIPELINE = (
    HEAD
    + """
workflow:
  - step: s
    tool:
      - {name: first, kind: noop, result: 4}
      - name: ask
        kind: playbook
        path: child.yaml
        return_step: one
        timeout: 60s
        spec:
          policy:
            rules: [{when: "{{ outcome.error.kind == 'timeout' }}", then: {do: skip}}]
      - {name: last, kind: noop, result: ["{{ first }}", "{{ ask | default('none') }}"]}
"""
)
LOOP = (
    HEAD
    + """
workflow:
  - step: s
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      - {name: ask, kind: playbook, path: child.yaml, args: {n: "{{ n }}"}, wait: true}
      - {name: last, kind: noop, result: "{{ n }}-{{ ask }}"}
"""
)


def kinds(played: object) -> list[str]:
    return [event.kind for event in played.events if "job." in event.kind]  # type: ignore[attr-defined]


def test_a_scripted_child_parks_the_pipeline_and_it_goes_on_in_time() -> None:
    played = play(PIPELINE, script={"s/ask": after(30, ok("yes"))})
    assert (played.status, played.result, played.seconds) == ("completed", [4, "yes"], 30)
    expected = ["scheduled", "started", "parked", "continued", "started", "reported"]
    assert kinds(played) == [f"job.{word}" for word in expected]
    assert played.unscripted == []


def test_a_child_that_is_not_scripted_answers_with_nothing_and_is_listed() -> None:
    played = play(PIPELINE)
    assert (played.result, played.seconds, played.unscripted) == ([4, None], 0, ["s"])


def test_the_time_of_the_task_ends_the_wait() -> None:
    played = play(PIPELINE, script={"s/ask": never()})
    assert (played.result, played.seconds) == ([4, "none"], 60)


def test_an_error_of_the_child_that_no_rule_meets_fails_the_step() -> None:
    played = play(PIPELINE, script={"s/ask": error("child", "it broke")})
    assert played.status == "failed"
    assert played.problem is not None
    assert played.problem["message"] == "it broke"


def test_cancelled_while_it_waits() -> None:
    assert play(PIPELINE, script={"s/ask": never()}, cancel_at=5).status == "cancelled"


def test_items_of_a_loop_wait_side_by_side() -> None:
    played = play(LOOP, script={"s/ask": after(10, lambda task: task.inputs["args"]["n"] * 10)})
    assert played.result["results"] == ["1-10", "2-20", "3-30"]
    assert played.seconds == 20  # two at once


def test_other_tasks_take_their_time_or_never_answer() -> None:
    assert play(PIPELINE, script={"s/first": after(7, ok(5)), "s/ask": 1}).seconds == 7
    assert play(PIPELINE, script={"s/first": never()}).status == "waiting"


def test_a_task_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 's/ask'"):
        play(PIPELINE, script={"s/aks": 1})


@pytest.mark.parametrize("text", [PIPELINE, LOOP], ids=["pipeline", "loop"])
def test_waiting_keeps_the_laws_under_faults(text: str) -> None:
    report = simulate(text, seeds=60, script={"s/ask": after(3, ok(1))})
    assert report.seeds == 60
