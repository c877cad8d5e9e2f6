"""What each task did is shown per task and attempt, and costs the log no row of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch import Engine, Toolbox
from anabranch.kernel import events as e
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.task_events import (
    PROCESSED,
    STARTED,
    TASKS_MAX,
    some_with_tasks,
    with_tasks,
)

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: it}\nworkflow:\n"
AGAIN = "{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 2, delay: 0}}"

STEPS = f"""{HEAD}
  - step: alone
    tool: {{kind: noop, result: 1}}
    next: {{arcs: [{{step: pipe}}]}}
  - step: pipe
    tool:
      - {{name: first, kind: noop, result: 1}}
      - {{name: shaky, kind: shaky, spec: {{policy: {{rules: [{AGAIN}]}}}}}}
      - {{name: last, kind: noop, spec: {{policy: {{rules: [{{else: {{then: {{do: break}}}}}}]}}}}}}
      - {{name: never, kind: noop}}
"""


def looping(tool: str, fanout: str = "shard_size: 2", mode: str = "fanout") -> str:
    return f"""{HEAD}
  - step: each
    spec: {{loop_mode: {mode}, fanout: {{{fanout}, allow_partial: true, fail_fast: false}}}}
    loop: {{in: [a, b, c], iterator: name}}
    tool: {tool}
"""


def toolbox() -> Toolbox:
    box, seen = Toolbox(), dict[str, int]()

    @box.tool("shaky", blocking=False)
    def shaky(who: str = "") -> str:
        """Fails once for every name."""
        seen[who] = seen.get(who, 0) + 1
        if seen[who] == 1:
            raise TimeoutError("too slow")
        return who

    @box.tool("only", blocking=False)
    def only(who: str) -> str:
        if who == "b":
            raise TimeoutError("not b")
        return who

    return box


def told(text: str) -> tuple[str, list[EventRecord], list[EventRecord]]:
    """The run, its events as they are recorded, and with what its tasks did."""

    async def go() -> tuple[str, list[EventRecord], list[EventRecord]]:
        async with Engine(":memory:", toolbox=toolbox()) as engine:
            run = await engine.start(text)
            plain = [event async for event in engine.events(run)]
            return run, plain, [event async for event in engine.events(run, tasks=True)]

    return asyncio.run(go())


def ended(records: list[EventRecord]) -> list[tuple[Any, ...]]:
    """What the tasks came to: label, attempt, status."""
    done = [one.fields for one in records if one.kind == PROCESSED]
    return [(one["task"], one["attempt"], one.get("error", one["status"])) for one in done]


def test_every_task_and_attempt_of_a_step_is_started_and_processed() -> None:
    _, _, records = told(STEPS)
    assert ended(records) == [
        ("alone_task", 1, "ok"),
        ("first", 1, "ok"),
        ("shaky", 1, "timeout"),
        ("shaky", 2, "ok"),
        ("last", 1, "ok"),
    ]
    kinds = [one.kind for one in records if one.kind in (STARTED, PROCESSED)]
    assert kinds == [STARTED, PROCESSED] * 5


def test_tasks_take_no_row_and_stand_before_the_report_of_their_job() -> None:
    _, plain, records = told(STEPS)
    assert [one for one in records if one.kind not in (STARTED, PROCESSED)] == plain
    for number, one in enumerate(records):
        if one.kind == STARTED:
            report = next(each for each in records[number:] if each.kind == "job.reported")
            assert (one.seq, one.fields["job"]) == (report.seq, report.fields["job"])


@pytest.mark.parametrize("mode", ["fanout", "local"])
def test_tasks_of_a_loop_are_shown_per_item_with_all_four_ids(mode: str) -> None:
    keyed = "shard_size: 2, iter_key: 'key-{{ iter.name }}'"
    text = looping("[{name: t, kind: noop}, {name: u, kind: noop}]", keyed, mode)
    run, _, records = told(text)
    starts = [one.fields for one in records if one.kind == STARTED]
    found = {(one["task"], one["iter_index"]): one for one in starts}
    assert len(found) == len(starts) == 6
    for (_, index), one in found.items():
        assert one["loop_id"] == f"{run}/l1"
        assert one["shard_id"] == f"{run}/l1/" + ("0+2" if index < 2 else "2+1")
        assert one["iter_key"] == f"key-{'abc'[index]}"


@pytest.mark.parametrize(
    "tool",
    [
        '{kind: only, who: "{{ iter.name }}"}',  # the short way
        '[{name: each_task, kind: only, args: {who: "{{ iter.name }}"}}]',
    ],
)
def test_the_item_that_failed_says_so_and_the_others_say_nothing_more(tool: str) -> None:
    _, plain, records = told(looping(tool, "shard_size: 3"))
    by_item = {one.fields["iter_index"]: one.fields for one in records if one.kind == PROCESSED}
    assert [by_item[index]["status"] for index in range(3)] == ["ok", "error", "ok"]
    assert by_item[1]["error"] == "timeout"
    [report] = [one.fields["answer"]["shard"] for one in plain if one.kind == "job.reported"]
    assert list(report["ways"]) == ["1"], "nothing is recorded of items like all others"


def test_attempts_inside_an_item_are_shown_and_so_are_items_that_go_out_again() -> None:
    retried = f'{{kind: shaky, who: "{{{{ iter.name }}}}", spec: {{policy: {{rules: [{AGAIN}]}}}}}}'
    _, _, records = told(looping(retried))
    assert sorted(ended(records)) == sorted(
        [("each_task", 1, "timeout"), ("each_task", 2, "ok")] * 3
    )
    sent_again = '{kind: shaky, who: "{{ iter.name }}"}'
    _, _, records = told(looping(sent_again, "shard_size: 2, max_job_retries: 1"))
    shards = [(one.fields["shard_id"][-3:], one.fields["iter_index"], one.fields["status"])
              for one in records if one.kind == PROCESSED]  # fmt: skip
    assert sorted(shards) == [
        ("0+2", 0, "error"), ("0+2", 0, "ok"), ("0+2", 1, "error"), ("0+2", 1, "ok"),
        ("2+1", 2, "error"), ("2+1", 2, "ok"),
    ]  # fmt: skip


def test_an_item_that_was_left_alone_has_no_tasks() -> None:
    text = looping('{kind: only, who: "{{ iter.name }}"}', "shard_size: 3")
    _, _, records = told(text.replace("fail_fast: false", "fail_fast: true"))
    assert [one.fields["iter_index"] for one in records if one.kind == STARTED] == [0, 1]


def test_a_pipeline_that_turns_in_circles_keeps_the_first_and_the_last() -> None:
    jump = '{when: "{{ (iter.n | default(0)) < 299 }}", then: {do: jump, to: turn}}'
    count = "{n: '{{ (iter.n | default(0)) + 1 }}'}"
    text = f"""{HEAD}
  - step: turn
    tool:
      - {{name: turn, kind: noop, set_iter: {count}, spec: {{policy: {{rules: [{jump}]}}}}}}
"""
    _, _, records = told(text)
    rounds = [one.fields["round"] for one in records if one.kind == STARTED]
    assert len(rounds) == 200
    assert (rounds[0], rounds[99], rounds[100], rounds[-1]) == (1, 100, 201, 300)


def test_logs_from_before_have_no_tasks_and_no_keys() -> None:
    old = b'[["job.reported","1.0",1,{"status":"ok","shard":{"succeeded":2}}]]'
    [event] = e.decode_events(old)
    assert isinstance(event, e.JobReported)
    assert event.answer.shard is not None
    assert (event.answer.tasks, event.answer.shard.keys) == ((), None)
    record = EventRecord(1, 0, "job.reported", {**e.fields_of(event), "first": 0, "count": 2})
    assert list(with_tasks([record])) == [record]


# -- the number of shards --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "fanout", "known"),
    [
        ("[1, 2, 3, 4, 5]", "shard_size: 2", 3),
        ("{range: [0, 10, 2]}", "shard_size: 2", 3),
        ("[1, 2, 3]", "max_concurrent: 2", 1),
        ("[]", "max_concurrent: 2", 0),
        ("{range: 5}", "max_concurrent: 2", None),
    ],
)
def test_a_fan_out_says_how_many_shards_it_has_wherever_that_is_known(
    source: str, fanout: str, known: int | None
) -> None:
    text = looping("{kind: noop}", fanout).replace("[a, b, c]", source)
    _, plain, _ = told(text)
    by_kind = {one.kind: one.fields for one in plain}
    assert by_kind["loop.fanout.started"].get("shards") == known
    enqueued = [one for one in plain if one.kind == "loop.shard.enqueued"]
    assert by_kind["loop.fanin.completed"]["shards"] == len(enqueued)
    assert known in (None, len(enqueued))
    if known is None:
        assert by_kind["loop.cut"]["shards_found"] == len(enqueued)


def test_shards_that_go_out_again_are_counted_once() -> None:
    sent_again = '{kind: shaky, who: "{{ iter.name }}"}'
    _, plain, _ = told(looping(sent_again, "shard_size: 1, max_job_retries: 1"))
    end = plain[[one.kind for one in plain].index("loop.fanin.completed")].fields
    assert (end["shards"], end["succeeded"]) == (3, 3)


def test_of_what_a_short_report_stands_for_so_much_is_shown() -> None:
    """A hundred reports of 2 kB each, read with their tasks, were 20 GB of memory of a server."""
    shard = {"succeeded": 4000, "tasks": [f"t{number}" for number in range(1000)]}
    fields = {"job": "1.0", "attempt": 1, "first": 0, "count": 4000, "answer": {"shard": shard}}
    reports = [EventRecord(number, 0, "job.reported", fields) for number in range(3)]
    assert len(list(with_tasks(reports[:1]))) == 2 * TASKS_MAX + 1
    shown, taken = some_with_tasks(reports)
    assert (taken, shown[-1]) == (1, reports[0])
    small = EventRecord(1, 0, "job.reported", {**fields, "count": 1, "answer": {}})
    assert some_with_tasks([small] * 3) == ([small] * 3, 3)


def test_the_tasks_of_a_later_round_of_a_fan_have_its_token() -> None:
    answer = {"tasks": [("ask", 1, "", 1)]}
    fields = {"job": "7r2.0", "attempt": 1, "answer": answer}
    begun, *_ = with_tasks([EventRecord(1, 0, "job.reported", fields)])
    assert begun.fields["token"] == 7
