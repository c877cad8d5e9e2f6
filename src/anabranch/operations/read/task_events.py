"""`task.started` and `task.processed`: what the tasks of a playbook did, one by one.

They have no rows of their own. The report of a job says which tasks were executed, and the report
of a shard only where an item went another way than all others; the events are made from that when
somebody wants to see them, with the number and the instant of the report. The one record is enough
for it, so it does not matter where in a log one begins to read.

A short report may stand for millions of them: so many tasks, and each for so many items. Of one
report the first `TASKS_MAX` are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from anabranch.kernel.jobs import token_of
from anabranch.operations.read.event_view import EventRecord

STARTED, PROCESSED = "task.started", "task.processed"

TASKS_MAX = 10_000  # executions of one report that are shown, and those of a page
Execution = Sequence[Any]  # label, attempt, error, round: a `TaskRun` as plain data


def with_tasks(records: Iterable[EventRecord], most: int = TASKS_MAX) -> Iterator[EventRecord]:
    """The records, and before each report what the tasks of its job did: so many executions."""
    for record in records:
        if record.kind == "job.reported":
            yield from islice(tasks_of(record), 2 * most)
        yield record


def some_with_tasks(records: Sequence[EventRecord]) -> tuple[list[EventRecord], int]:
    """The same for as many of the records as make a page; and how many these are."""
    shown: list[EventRecord] = []
    for taken, record in enumerate(records, 1):
        shown += with_tasks([record])
        if len(shown) >= 2 * TASKS_MAX:
            return shown, taken
    return shown, len(records)


def tasks_of(record: EventRecord) -> Iterator[EventRecord]:
    """The events of the tasks in the report of a job."""
    fields = record.fields
    answer: Mapping[str, Any] = fields["answer"]
    name = str(fields["job"])
    job = {"token": token_of(name), "job": name, "job_attempt": fields["attempt"]}
    report = answer.get("shard")
    if report is None:
        for execution in answer.get("tasks", ()):
            yield from _pair(record, execution, job)
        return
    usual = [(label, 1, "", 1) for label in report.get("tasks", ())]
    ways: Mapping[str, Any] = report.get("ways", {})
    for ids in _items(fields, report):
        for execution in ways.get(str(ids["iter_index"]), usual):
            yield from _pair(record, execution, {**job, **ids})


def _pair(
    record: EventRecord, execution: Execution, about: Mapping[str, Any]
) -> Iterator[EventRecord]:
    label, attempt, error, turn = execution
    fields = {"task": label, "attempt": attempt, "round": turn, **about}
    yield EventRecord(record.seq, record.at, STARTED, fields)
    ended = {"status": "error", "error": error} if error else {"status": "ok"}
    yield EventRecord(record.seq, record.at, PROCESSED, {**fields, **ended})


def _items(fields: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The ids of the items of a shard that were begun."""
    shard = {name: fields[name] for name in ("loop_id", "shard_id") if name in fields}
    unbegun = frozenset(report.get("unbegun", ()))
    keys = _keys(fields, report)
    for index in _indexes(fields):
        if index not in unbegun:
            key = {"iter_key": keys[index]} if index in keys else {}
            yield {**shard, "iter_index": index, **key}


def _indexes(fields: Mapping[str, Any]) -> Sequence[int]:
    if "iter_index" in fields:
        return [fields["iter_index"]]
    first = fields.get("first", 0)
    return fields.get("only") or range(first, first + fields.get("count", 0))


def _keys(fields: Mapping[str, Any], report: Mapping[str, Any]) -> dict[int, str]:
    """By index; where they were not kept, those of items that failed."""
    kept = report.get("keys")
    if kept is None:
        return {index: key for index, key, *_ in report.get("failed", ()) if key}
    indexes = _indexes(fields)
    return dict(zip(indexes, kept or map(str, indexes), strict=False))
