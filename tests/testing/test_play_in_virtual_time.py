"""Hours pass in milliseconds, and timers fire exactly when they are due."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, DefinitionError, InputError
from anabranch.net.net import Arc, Branch, GatherRule, Net, Retry, RunPolicy
from anabranch.testing import Played, after, error, never, ok, play, stubborn, unreachable

from .support import asks, calls, chain, net, to

HELLO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello}
workload: {name: world}
workflow:
  - step: greet
    tool:
      kind: python
      args: {name: "{{ workload.name }}"}
      code: "result = {'text': 'Hi ' + name}"
    next: {arcs: [{step: tell}]}
  - step: tell
    tool: {kind: http, url: "https://example.invalid/{{ greet.text }}"}
"""


def test_a_step_timeout_of_an_hour_takes_no_time() -> None:
    begun = time.process_time()
    played = play(net(calls("slow", timeout_ms=3_600_000)), script={"slow": never()})
    assert time.process_time() - begun < 0.5
    assert (played.status, played.seconds) == ("step_timeout", 3600.0)
    assert played.events_of("token.finished")[0].at == 3600.0


def test_answers_take_as_long_as_the_script_says() -> None:
    script = {"a": after(5, ok(1)), "b": after(2.5, after(1.5, ok(2))), "c": 3}
    played = play(chain(), script=script)
    assert [event.at for event in played.events_of("job.reported")] == [5.0, 9.0, 9.0]
    assert (played.result, played.seconds) == (3, 9.0)


def test_retries_wait_for_their_backoff() -> None:
    retry = Retry(attempts=4, delay_ms=1000, backoff="exponential")
    played = play(
        chain(1, retry), script={"a": [error("x"), error("x"), error("x"), ok("at last")]}
    )
    assert (played.result, played.seconds) == ("at last", 7.0)
    assert [event["attempt"] for event in played.events_of("job.started")] == [1, 2, 3, 4]


def test_an_attempt_that_hangs_is_timed_out_and_tried_again() -> None:
    flow = net(calls("a", retry=Retry(attempts=2), job_timeout_ms=60_000))
    played = play(flow, script={"a": [never(), after(59, ok("ok"))]})
    assert (played.status, played.seconds) == ("completed", 119.0)
    assert len(played.events_of("job.timed_out")) == 1


def test_an_answer_at_the_very_instant_of_the_timeout_counts() -> None:
    flow = net(calls("a", job_timeout_ms=60_000))
    assert play(flow, script={"a": after(60, ok())}).status == "completed"
    assert play(flow, script={"a": after(60.001, ok())}).status == "failed"


def test_a_stubborn_job_reports_too_late_and_changes_nothing() -> None:
    rule = GatherRule(mode="any", combine="one", losers="kill")
    flow = net(asks("ask", ["fast", "slow"], rule, branches=to("end")), calls("end"))
    script = {"fast": after(1, ok("first")), "slow": after(5, ok("second")), "end": after(10, ok())}
    meek = play(flow, script=script)
    deaf = play(flow, script={**script, "slow": stubborn(after(5, ok("second")))})
    assert meek.step("ask").result == deaf.step("ask").result == "first"
    assert [join["late"] for join in (*meek.joins, *deaf.joins)] == [0, 1]


def test_a_run_that_nobody_can_move_is_left_waiting() -> None:
    played = play(net(calls("a")), script={"a": never()})
    assert (played.status, played.problem) == ("waiting", None)
    assert [(wait.what, wait.step) for wait in played.waiting] == [("job", "a")]


def test_a_deadline_ends_a_run_that_waits() -> None:
    flow = net(calls("a"), policy=RunPolicy(deadline_ms=86_400_000))
    played = play(flow, script={"a": never()})
    assert (played.status, played.seconds) == ("deadline_exceeded", 86_400.0)


def test_a_run_can_be_cancelled_in_the_middle() -> None:
    played = play(chain(), script={"a": after(10, ok()), "b": after(10, ok())}, cancel_at=15)
    assert (played.status, played.seconds) == ("cancelled", 15.0)
    assert [played.step(name).status for name in "abc"] == ["done", "aborted", None]


def test_unreachable_parties_leave_the_count() -> None:
    flow = net(asks("ask", ["x", "y", "z"], GatherRule(mode="all", exclude_lost=True)))
    played = play(flow, script={"y": unreachable(), "ask": ok(1)})
    assert played.status == "completed"
    assert played.result == {"responses": [1, 1]}


def test_a_loop_without_an_end_is_stopped_with_a_clear_message() -> None:
    endless = net(calls("ping", branches=to("pong")), calls("pong", branches=to("ping")))
    with pytest.raises(
        AnabranchError, match=r"step 'p[io]ng' has run 1[0-9]{2} times.*limit="
    ) as caught:
        play(endless, limit=1000)
    assert caught.value.code == "limit"


# -- what can be handed in -------------------------------------------------------------------


def test_a_definition_is_a_text_a_mapping_a_path_or_a_net(tmp_path: Path) -> None:
    path = tmp_path / "hello.yaml"
    path.write_text(HELLO)
    for definition in (HELLO, path, str(path)):
        played = play(definition, {"name": "Ada"}, script={"tell": ok({"status": 200})})
        assert (played.status, played.result) == ("completed", {"status": 200})
        assert played.step("greet").result == {"text": "Hi Ada"}
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "one"},
        "workflow": [{"step": "only", "tool": {"kind": "noop"}}],
    }
    assert play(document).status == play(json.dumps(document)).status == "completed"


def test_a_bad_definition_is_refused_with_its_problems() -> None:
    with pytest.raises(DefinitionError, match="tel"):
        play(HELLO.replace("step: tell}", "step: tel}"))


def test_a_run_can_start_in_the_middle() -> None:
    played = play(chain(), start="b")
    assert list(played.steps) == ["b", "c"]
    with pytest.raises(InputError, match="no step 'q'"):
        play(chain(), start="q")


def test_work_that_would_reach_outside_is_listed() -> None:
    played = play(HELLO)
    assert (played.unscripted, played.result) == (["tell"], None)
    assert play(HELLO, script={"tell": ok()}).unscripted == []


def test_large_results_travel_as_refs_and_are_shown_whole() -> None:
    text = "x" * 100_000
    code = HELLO.replace("'Hi ' + name", "'x' * 100_000")
    played = play(code, script={"tell": ok({"n": 1, "text": text})})
    assert played.step("greet").result == {"text": text}
    assert played.result == {"n": 1, "text": text}
    assert played.state.results["tell"]["_size_bytes"] > 100_000


def test_python_code_gets_copies() -> None:
    text = HELLO.replace(
        "result = {'text': 'Hi ' + name}", "context['workload']['name'] = 0; result = 1"
    )
    played = play(text)
    assert played.state.workload == {"name": "world"}


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"limit": 0}, {"cancel_at": -1}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError):
        play(chain(), **wrong)  # type: ignore[arg-type]


# -- what comes out --------------------------------------------------------------------------


def test_played_says_in_one_line_what_happened() -> None:
    played = play(chain(2), script={"b": error("boom", "it broke")})
    assert repr(played) == "<Played failed 0s a:done b:failed problem='it broke'>"
    assert "waits(a: its work" in repr(play(chain(1), script={"a": never()}))


def test_steps_and_events_are_looked_up_by_name() -> None:
    played = play(_diamond())
    assert (played.step("end").runs, played.step("end").statuses) == (2, ["done", "done"])
    assert (played.step("never").runs, played.step("never").status) == (0, None)
    assert [event["token"] for event in played.events_of("token.finished")] == [1, 2, 3, 4, 5]
    assert [event.seq for event in played.events] == list(range(1, len(played.events) + 1))
    assert str(played.events[-1]) == f"#{len(played.events)} 0.000s run.finished status='completed'"
    with pytest.raises(InputError, match="did you mean 'end'"):
        played.step("edn")
    with pytest.raises(InputError, match=r"did you mean 'token\.finished'"):
        played.events_of("token.finish")


def _diamond() -> Net:
    return net(
        calls("start", branches=to("left", "right")),
        calls("left", branches=to("end")),
        calls("right", branches=to("end")),
        calls("end"),
        calls("never", branches=(Branch(arcs=(Arc("end"),)),)),
    )


def test_played_is_what_run_json_prints() -> None:
    played: Played = play(_diamond(), script={"end": [ok(1), ok(2)]})
    assert played.steps["end"] == {
        "runs": 2,
        "status": "done",
        "statuses": ["done", "done"],
        "result": 2,
        "state": "done",
    }
    assert (played.run, played.joins, played.problem) == ("play", [], None)
