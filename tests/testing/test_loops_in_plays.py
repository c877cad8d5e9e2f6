"""Loops and pipelines can be played and simulated like everything else."""

from __future__ import annotations

import pytest

from anabranch.testing import after, error, never, ok, play, simulate

LOCAL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: squares}
workflow:
  - step: each
    loop: {in: "{{ [1, 2, 3, 4] }}", iterator: x, spec: {mode: sequential}}
    tool:
      kind: python
      args: {x: "{{ iter.x }}"}
      code: "result = x * x"
    next: {arcs: [{step: total, when: "{{ event.name == 'loop.done' }}"}]}
  - step: total
    tool:
      - {name: add, kind: python, args: {all: "{{ each.results }}"}, code: "result = sum(all)"}
      - {name: more, kind: python, args: {value: "{{ _prev }}"}, code: "result = value + 1"}
"""

FAN_OUT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: spread}
workflow:
  - step: each
    spec: {loop_mode: fanout, fanout: {shard_size: 7, max_concurrent: 3, max_job_retries: 2}}
    loop: {in: {range: [0, 100]}, iterator: n}
    tool: {kind: noop}
    next: {arcs: [{step: after, when: "{{ fanin.status == 'complete' }}"}]}
  - step: after
    tool: {kind: noop}
"""


def test_a_loop_plays_with_what_its_items_compute() -> None:
    played = play(LOCAL)
    assert (played.status, played.result) == ("completed", 31)
    assert played.step("each").result["results"] == [1, 4, 9, 16]


def test_items_take_one_scripted_answer_each_and_their_time_adds_up() -> None:
    played = play(LOCAL, script={"each": [ok(1), ok(2), after(5, ok(3)), ok(4)]})
    assert (played.result, played.seconds) == (11, 5.0)


def test_an_item_that_fails_ends_a_local_loop_and_is_named() -> None:
    played = play(LOCAL, script={"each": [ok(1), error("boom", "too hot")]})
    assert played.status == "failed"
    assert "item 1 failed (boom): too hot" in str(played.problem)


def test_an_item_that_never_answers_keeps_the_loop_waiting() -> None:
    assert play(LOCAL, script={"each": never()}).status == "waiting"


def test_a_fan_out_routes_once_after_its_fan_in() -> None:
    played = play(FAN_OUT)
    assert played.status == "completed"
    assert played.step("after").runs == 1
    assert played.step("each").result["succeeded"] == 100


@pytest.mark.parametrize("definition", [LOCAL, FAN_OUT], ids=["local", "fan-out"])
def test_loops_keep_the_laws_under_faults(definition: str) -> None:
    simulation = simulate(definition, seeds=40)
    assert simulation.seeds == 40
