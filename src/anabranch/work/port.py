"""What a kind of work is.

The engine hands a `Task` to the performer registered for its kind and records the `Answer`. A
performer is asynchronous; being cancelled means "stop now, the answer is no longer wanted", and it
returns from that only when whatever it started (a process, a connection) is gone. It may run more
than once for the same `key`; whatever must not happen twice outside is deduplicated by that key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, Wait


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One execution of one job."""

    run: str
    step: str
    job: str
    attempt: int
    tries: int = 1  # the same, without the executions that were lost
    postponed: int = 0  # how often this job was put off because what it needs was away,
    postponed_ms: int = 0  # and how long that was in all
    key: str  # the same for every attempt of this job: the idempotency key
    kind: str
    inputs: Mapping[str, Any]  # rendered
    names: Mapping[str, Any] = {}  # what templates could see; for kinds that render by themselves
    program: Any = None
    loop: str = ""  # for the jobs of a loop: its id,
    source: Any = None  # its collection,
    shard: Any = None  # and the part of it that this job works on
    item_keys: str = ""  # with what the keys of its items begin, where that is not the loop
    timeout_seconds: float | None = None  # the engine cancels at that time; for information
    again: str = ""  # tells work done again after a failure apart; a lost execution is none
    memory: Any = None  # of work that parked: what it gave to remember,
    heard: Answer | None = None  # and what it waited for
    progress: Any = None  # how far whoever had it before, and was lost, said to be
    trace: str = ""  # the span of this execution (W3C `traceparent`), where runs are traced
    #: Of a call whose address stands in an answer: the kinds of the addresses that led there.
    led_by: tuple[str, ...] = ()


class InlineAnswer(Answer, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An answer whose result stays as it is, however large: it was just fetched from the store."""

    inline: bool = True


def whole(answer: Answer) -> Answer:
    """The answer as it is, however large: somebody is going to look into it."""
    if answer.status != "ok" or isinstance(answer, InlineAnswer):
        return answer
    return InlineAnswer(**msgspec.structs.asdict(answer))


class Parked(msgspec.Struct, frozen=True):
    """Instead of an answer: it will come later from outside, and no worker waits for it."""

    ticket: str  # what it waits for, such as the id of a child run
    until: int = 0  # an instant; 0 is no limit
    #: JSON. With it the work goes on when the answer has come: it is performed again with a task
    #: that has this `memory` and the answer as `heard`. Without it the answer is the job's own.
    memory: Any = None
    limit_ms: int = 0  # instead of an instant: how long to wait
    wait: Wait | None = None  # nobody outside is asked: time or a signal ends it


def parked_job(job: str, attempt: int, parked: Parked) -> s.JobPark:
    """What the kernel is told of it."""
    return s.JobPark(
        job, attempt, parked.ticket, parked.until, parked.memory, parked.limit_ms, parked.wait
    )


class Performer(Protocol):
    """One that parks also says when, with a method `parks(inputs)`, so that nothing is begun
    where it could not be waited for. One that answers or parks at once also has
    `perform_now(task)`: the engine calls it in place and saves the trip. One that can do so for
    some of its tasks has `perform_at_once(task)`, which gives None for the others and has done
    nothing then. One that takes many items of a loop at once has `together` and `perform_each` (see
    `pipeline.item_batches`), and one that keeps something open (processes, sessions) `async
    close()`."""

    async def perform(self, task: Task) -> Answer | Parked: ...
