"""One step as the log tells it: its input rendered again, its lines, and no secret."""

from __future__ import annotations

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.state import Job, State, Token
from anabranch.kernel.values import succeeded
from anabranch.operations.read.steps.definition_lines import LINES_MAX, lines_of_step
from anabranch.operations.read.steps.starred import STARS
from anabranch.operations.read.steps.step_log import ATTEMPTS_KEPT, RUNS_KEPT, StepLog
from anabranch.operations.read.steps.step_view import _names, _plain
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Commit, Head

# -- lines -----------------------------------------------------------------------------------------

YAML = """workflow:
  - step: a
    tool:
      code: |
        x = {

        y
    next: b

  - step: b
    tool: {kind: noop}
final: x
"""


@pytest.mark.parametrize(
    ("line", "column", "first", "last"), [(2, 5, 2, 8), (10, 5, 10, 11), (12, 1, 12, 12)]
)
def test_the_lines_of_a_step_end_where_it_is_less_indented(
    line: int, column: int, first: int, last: int
) -> None:
    found = lines_of_step(YAML, line, column)
    assert found is not None
    assert (found.first, found.last) == (first, last)
    assert found.shown[found.first - found.shown_from] == YAML.splitlines()[first - 1]


JSON = """{"structure": {
  "A": {"rule": "a } in a text",
        "onValid": {"spawns": ["B"]}},
  "B": {"rule": "b"}}}
"""


@pytest.mark.parametrize(("column", "last"), [(3, 3), (8, 3)])
def test_the_lines_of_a_step_in_json_end_with_its_bracket(column: int, last: int) -> None:
    found = lines_of_step(JSON, 2, column)
    assert found is not None
    assert (found.first, found.last) == (2, last)


def test_a_very_long_step_is_cut_and_a_line_that_is_not_there_is_none() -> None:
    text = "steps:\n  - step: a\n" + "    x: 1\n" * 500
    found = lines_of_step(text, 2, 5)
    assert found is not None
    assert found.cut
    assert len(found.shown) <= LINES_MAX + 2
    assert lines_of_step(text, 9_999, 1) is None


def test_a_bracket_that_is_never_closed_ends_with_the_text() -> None:
    found = lines_of_step('{"a": [', 1, 1)
    assert found is not None
    assert found.last == 1


# -- the log ---------------------------------------------------------------------------------------


def told(step: str, *events: e.Event) -> StepLog:
    store = MemoryStore()
    head = Head(
        run="r", name="n", dialect="test", definition="d", status="running", created_at=1,
        updated_at=1, seq=len(events),
    )  # fmt: skip
    row = e.encode_events(events)
    store.commit(Batch(commits=[Commit(head=head, at=1, events=row, count=len(events))]))
    return StepLog(step).read(store, "r")


def test_only_the_last_runs_and_attempts_of_a_step_are_kept_and_all_are_counted() -> None:
    many = [e.TokenCreated(n, "a", 0, 0, "entry") for n in range(1, RUNS_KEPT + 21)]
    last = many[-1].token
    tries = [e.JobScheduled(f"{last}.0", last, -1, n) for n in range(1, ATTEMPTS_KEPT + 11)]
    log = told("a", *many, *tries)
    assert (log.total, len(log.runs)) == (RUNS_KEPT + 20, RUNS_KEPT)
    assert (log.runs[last].dropped, log.runs[last].attempts[-1].number) == (10, ATTEMPTS_KEPT + 10)


def test_events_of_other_steps_and_of_shards_are_passed_over() -> None:
    log = told(
        "each",
        e.TokenCreated(1, "each", 0, 0, "entry"),
        e.TokenCreated(11, "other", 1, 0, "arc"),
        e.JobScheduled("11.0", 11, -1, 1),
        e.LoopOpened("l1", 1, "fanout", {"range": 3}, 3, 2, 1, False),
        e.JobStarted("1.0", 1, "w"),
        e.LoopSettled("l1", "partial"),
        e.TokenFinished(1, "done", "ok"),
    )
    one = log.runs[1]
    assert (list(log.runs), one.attempts, one.status) == ([1], [], "done")
    assert [said for _, said in one.said] == ["its loop is partial"]


def test_what_people_did_at_a_step_is_told_with_their_names() -> None:
    log = told(
        "a",
        e.TokenCreated(1, "a", 0, 0, "entry"),
        e.JobScheduled("1.0", 1, -1, 1),
        e.JobStarted("1.0", 1, "w1"),
        e.JobLost("1.0", 1, "its lease ran out"),
        e.JobScheduled("1.0", 1, -1, 2),
        e.JobStarted("1.0", 2, "w2"),
        e.JobReported("1.0", 2, succeeded({"n": 1})),
        e.GateOpened("gate-1", 1, "Pay?"),
        e.GateDecided("gate-1", "fulfil", "ann", "it is due"),
        e.TokenFinished(1, "done", "ok"),
    )
    one = log.runs[1]
    assert [(a.status, a.worker) for a in one.attempts] == [("lost", "w1"), ("done", "w2")]
    assert [said for _, said in one.said] == [
        "a decision is asked for: Pay?",
        "fulfil by ann: it is due",
    ]
    assert one.result == {"n": 1}


# -- secrets ---------------------------------------------------------------------------------------


class _Reader:
    store = MemoryStore()


def test_templates_are_rendered_again_with_stars_for_secrets() -> None:
    state = State(run="r", workload={"user": "ann", "password": {"mark": 1}}, sealed=("password",))
    token = Token(1, "a", 0, 0, 0, "entry", {}, {}, 0)
    names = _names(_Reader, state, token, Job("1.0", 1, -1, "a", 1, 0))  # type: ignore[arg-type]
    assert dict(names["workload"]) == {"user": "ann", "password": STARS}
    keys = names["keychain"]
    made = {"auth": keys["api"]["token"], "text": f"Bearer {keys.api.token}", "n": [keys["x"]]}
    assert _plain(made) == {"auth": STARS, "text": f"Bearer {STARS}", "n": [STARS]}
    assert "x" in keys
