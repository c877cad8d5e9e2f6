"""The kind `wait`: what it takes, where it may stand, and what a filter sees."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.errors import AnabranchError
from anabranch.net.problems import Problem
from anabranch.net.waits import waits_of
from anabranch.testing import error, ok, play
from anabranch.testing.scripted.definitions import compiled

from ..support import places

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\n"


def playbook(*steps: str, workload: str = "{}") -> str:
    return f"{HEAD}workload: {workload}\nworkflow:\n" + "".join(f"  - {one}\n" for one in steps)


def problems_of(text: str) -> tuple[Problem, ...]:
    return compile_source(text).problems


def step(tool: str, more: str = "") -> str:
    return f"{{step: s, tool: {tool}{more}}}"


PAID = '{kind: wait, event: paid, filter: "{{ signal.payload.n == workload.n }}", timeout: 10s}'


# -- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "code", "said"),
    [
        ("{kind: wait}", "missing-key", "has no `for`"),
        ("{kind: wait, for: 1s, until: 5}", "conflicting-keys", "both `for` and `until`"),
        ("{kind: wait, until: 5, event: paid}", "conflicting-keys", "both `until` and `event`"),
        ("{kind: wait, for: soon}", "bad-duration", "`for` of the task"),
        ("{kind: wait, for: -1}", "bad-duration", "negative"),
        ("{kind: wait, for: [1]}", "wrong-type", "must be a duration"),
        ('{kind: wait, until: "2027-03-28T09:00:00"}', "bad-value", "in which time zone"),
        ("{kind: wait, until: tomorrow}", "bad-value", "is not an instant"),
        ("{kind: wait, until: {at: 1}}", "wrong-type", "must be an instant"),
        ("{kind: wait, event: 'a b'}", "bad-name", "cannot be the name of a signal"),
        ("{kind: wait, event: 7}", "bad-name", "cannot be the name of a signal"),
        ('{kind: wait, event: "{{ ctx.name }}"}', "bad-name", "is a template"),
        ("{kind: wait, for: 1s, timeout: 1s}", "conflicting-keys", "is for waits with `event`"),
        ('{kind: wait, for: 1s, filter: "{{ true }}"}', "conflicting-keys", "is for waits with"),
        ("{kind: wait, event: paid, timeout: 0}", "bad-duration", "it is zero"),
        ("{kind: wait, event: paid, filter: [1]}", "wrong-type", "a condition"),
        ('{kind: wait, event: paid, filter: "{{ ( }}"}', "bad-template", "the template is wrong"),
        ('{kind: wait, event: paid, filter: "{{ keychain.a }}"}', "misplaced-task", "keychain"),
        ("{kind: wait, for: 1s, evnet: paid}", "unknown-key", "'evnet'"),
        ("{kind: wait, for: 1s, loop: {in: [1]}}", "misplaced-task", "waits inside a loop of a"),
        (
            "{kind: noop, spec: {policy: {before: {kind: wait, for: 1s}}}}",
            "misplaced-task",
            "waits inside a hook",
        ),
    ],
)
def test_a_mistake_is_reported_at_its_place(tool: str, code: str, said: str) -> None:
    found = tuple(one for one in problems_of(playbook(step(tool))) if one.severity == "error")
    assert [one.code for one in found][:1] == [code], places(found)
    assert said in found[0].message


def test_a_slip_in_a_name_of_the_filter_is_reported() -> None:
    tool = '{kind: wait, event: paid, filter: "{{ signal.payload == worklaod.n }}"}'
    found = problems_of(playbook(step(tool), workload="{n: 1}"))
    assert ("unknown-name", "warning") in [(one.code, one.severity) for one in found]


@pytest.mark.parametrize("tool", [PAID, "{kind: wait, for: 0}", "{kind: wait, until: 0}"])
def test_a_sound_wait_is_reported_nowhere(tool: str) -> None:
    assert problems_of(playbook(step(tool), workload="{n: 1}")) == ()


def test_the_net_knows_the_names_that_it_waits_for() -> None:
    text = playbook(
        "{step: a, tool: [{kind: noop}, {name: w, kind: wait, event: one}], next: [{step: b}]}",
        '{step: b, loop: {in: [1]}, tool: {kind: wait, event: two, filter: "{{ true }}"}}',
    )
    waits = waits_of(compiled(text))
    assert waits.events == ("one", "two")
    assert waits.rule("a", "w") is not None
    assert waits.rule("b", "w") is None


def test_a_time_limit_of_jobs_does_not_end_a_wait() -> None:
    spec = ", spec: {policy: {lifecycle: {timeout_s: 1}}}"
    played = play(playbook(step("{kind: wait, for: 1h}", spec)))
    assert (played.status, played.seconds) == ("completed", 3600)


def test_a_wait_needs_no_worker_of_a_pool() -> None:
    played = play(playbook(step("{kind: wait, for: 1h}", ", spec: {pool: far}")))
    assert (played.status, played.seconds) == ("completed", 3600)


# -- what happens --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ("for: 90", 90),
        ('for: "{{ workload.n }}m"', 180),
        ('for: "{{ workload.n }}"', 3),
        ("for: 0", 0),
        ("until: 0", 0),
        ('until: "{{ workload.at }}"', 60),
        ('until: "{{ workload.seconds }}"', 60),
    ],
)
def test_a_wait_for_time_takes_that_time(keys: str, seconds: float) -> None:
    # A play begins at 2023-11-14T22:13:20Z.
    workload = '{n: 3, at: "2023-11-14T23:14:20+01:00", seconds: 1700000060}'
    played = play(playbook(step(f"{{kind: wait, {keys}}}"), workload=workload))
    assert (played.status, played.seconds) == ("completed", seconds)


@pytest.mark.parametrize(
    "keys", ['for: "{{ workload.odd }}"', 'until: "{{ workload.odd }}"', 'for: "{{ [1] }}"']
)
def test_a_template_that_gives_no_time_fails_the_task(keys: str) -> None:
    played = play(playbook(step(f"{{kind: wait, {keys}}}"), workload="{odd: soon}"))
    assert played.status == "failed"
    assert played.problem is not None
    assert played.problem["code"] == "config"
    assert "wait: " in played.problem["message"]


def test_the_signal_that_fits_is_the_result() -> None:
    signals: dict[float, Any] = {1: {"paid": {"n": 2}}, 2: {"paid": {"n": 3, "by": "ann"}}}
    played = play(playbook(step(PAID), workload="{n: 3}"), signals=signals)
    assert played.seconds == 2
    assert played.result["payload"] == {"n": 3, "by": "ann"}


def test_rules_and_arcs_see_the_timeout() -> None:
    text = playbook(
        """{step: s, tool: {kind: wait, event: paid, timeout: 5s},
           next: {arcs: [{step: late, when: "{{ outcome.error.kind == 'timeout' }}"}]}}""",
        "{step: late, tool: {kind: noop, result: late}}",
    )
    played = play(text)
    assert (played.result, played.seconds) == ("late", 5)
    retried = play(
        playbook(
            """{step: s, tool: [{name: w, kind: wait, event: paid, timeout: 5s, spec: {policy:
               {rules: [{when: "{{ outcome.status == 'error' }}",
                         then: {do: retry, attempts: 3, delay: 0}}]}}}]}"""
        ),
        signals={12: {"paid": 1}},
    )
    assert (retried.status, retried.seconds) == ("completed", 12)


def test_a_filter_sees_the_item_and_the_results_before_it() -> None:
    text = playbook(
        """{step: s, loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}},
           tool: [{name: price, kind: noop, result: {of: "{{ iter.n * 10 }}"}},
                  {name: w, kind: wait, event: paid,
                   filter: "{{ signal.payload.n == iter.n and signal.payload.sum >= price.of
                               and signal.payload.sum >= results.price.of
                               and signal.payload.sum >= _prev.of and loop_index >= 0 }}"}]}"""
    )
    signals: dict[float, dict[str, Any]] = {
        1: {"paid": {"n": 2, "sum": 19}},
        2: {"paid": {"n": 2, "sum": 20}},
        3: {"paid": {"n": 3, "sum": 30}},
        4: {"paid": {"n": 1, "sum": 10}},
    }
    played = play(text, signals=signals)
    assert [one["payload"]["sum"] for one in played.result["results"]] == [10, 20, 30]
    assert played.state.past_signals["signal-1"].status == "dropped"


def test_a_scripted_wait_does_not_wait() -> None:
    assert play(playbook(step(PAID), workload="{n: 1}"), script={"s": ok(1)}).result == 1
    failed = play(playbook(step(PAID), workload="{n: 1}"), script={"s": error("timeout")})
    assert failed.status == "failed"


def test_a_signal_that_is_none_is_refused_by_the_play() -> None:
    with pytest.raises(AnabranchError, match="did you mean 'paid'"):
        play(playbook(step(PAID), workload="{n: 1}"), signals={1: {"piad": 1}})
