"""What loads cost, as formulas. `docs/scale.md` explains them and says how to plan with them.

The constants are what the engine itself writes, in bytes of JSON and in events; what a definition
brings (input, results, answers) is a parameter. `tests/test_scale.py` counts them at small sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# -- events ----------------------------------------------------------------------------------

RUN_EVENTS = 2  # run.started, run.finished
STEP_EVENTS = 5  # token.created, job.scheduled, job.started, job.reported, token.finished
LOOP_EVENTS = 8  # token.created, loop.opened, a cut (3 events and its result), settled, finished
SHARD_EVENTS = 4  # loop.shard_scheduled, job.started, job.reported, loop.shard_closed
PARTICIPANT_EVENTS = 4  # job.scheduled, job.started, job.reported, gather.delivered
FAN_EVENTS = 6  # token.created, gather.opened and .settled, completed, judged, finished
HEARTBEAT_EVENTS = 1  # job.extended, and another for progress
LOSS_EVENTS = 3  # job.lost; job.scheduled and job.started of the next attempt

# -- bytes of the log ------------------------------------------------------------------------

RUN_BYTES = 186
STEP_BYTES = 257  # and its result
LOOP_BYTES = 250
CUT_BYTES = 72  # for each shard of the window: what was read ahead
SHARD_BYTES = 268  # of 10,000 items in 100 shards; and what is kept of its items, and
# about 18 more for how long it took, where that is a millisecond or longer
POOL_SHARD_BYTES = 36  # more, where a worker has it: its name, the lease
HEARTBEAT_BYTES = 34  # of job.extended
PROGRESS_BYTES = 60  # of job.progressed, and its checkpoint
LOSS_BYTES = 165
PARTICIPANT_BYTES = 210  # and its answer, and its name
FAN_BYTES = 330
REF_BYTES = 1_440  # of a result that is kept as a payload: what stands for it in the log

# -- bytes of the store around them ----------------------------------------------------------

EMPTY_FILE_BYTES = 274_432
PAGE_BYTES = 4096
ROW_BYTES = 85  # of a row of the log, beside its events: the run, its place, two indexes
HEAD_BYTES = 235  # of a run: its row in `heads` and four indexes
TIMER_BYTES = 25  # and its entry in the index of timers
PARTICIPANT_MEMORY_BYTES = 1_800  # of a run that asks, for each, and its answer
STATE_PARTICIPANT_BYTES = 352  # of a snapshot, for each that was asked, and its answer

# -- settings that decide --------------------------------------------------------------------

INLINE_BYTES_MAX = 64 * 1024
SHARD_ITEMS_MAX = 4096  # of automatic size
GROWING_SIZES = (1, 8, 64, 512)  # of the first shards of automatic size
RUN_LOG_BYTES_MAX = 1024**3


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a load, until it is purged."""

    events: int
    log_bytes: float
    rows: float  # of the log: at most, where several turns share one
    heads: int = 1
    snapshot_bytes: float = 0.0
    payload_bytes: float = 0.0
    timers: int = 0

    @property
    def file_bytes(self) -> float:
        """About what SQLite needs; a row lies whole on a page unless it is larger than one."""
        row = self.log_bytes / max(1.0, self.rows) + ROW_BYTES
        on_a_page = PAGE_BYTES // row
        log = self.rows * PAGE_BYTES / on_a_page if on_a_page >= 1 else self.rows * row
        index_cards = self.heads * HEAD_BYTES + self.timers * TIMER_BYTES
        return EMPTY_FILE_BYTES + log + index_cards + self.snapshot_bytes + self.payload_bytes


def runs(count: int, steps: int, result_bytes: float = 1.0) -> Cost:
    """Finished runs of so many steps; each step is a turn, and a row."""
    log = RUN_BYTES + steps * (STEP_BYTES + result_bytes)
    return Cost(count * (RUN_EVENTS + steps * STEP_EVENTS), count * log, count * (steps + 1), count)


def shards(items: int, shard_size: int | None, window: int = 8) -> int:
    """Of automatic size (None), where items are quick: a window each of 1, 8, 64 and 512 items, as
    long as there are items; then the largest size. Slow items get smaller shards: a quarter of a
    second's."""
    if shard_size is not None:
        return math.ceil(items / shard_size)
    begun = 0
    for size in GROWING_SIZES:
        some = min(window, math.ceil(items / size))
        begun, items = begun + some, max(0, items - some * size)
    return begun + math.ceil(items / SHARD_ITEMS_MAX)


def shard_bytes(items: int, count: int) -> float:
    """Of the events of one shard: its number stands in them five times, its first item twice."""
    number, first = math.log10(max(10, count)), math.log10(max(10, items))
    return SHARD_BYTES + 5 * (number - 2) + 2 * (first - 4)


def loop(
    items: int,
    shard_size: int | None,
    result_bytes: float = 0.0,
    *,
    shared_bytes: float = 0.0,
    window: int = 8,
    rows_per_shard: float = 0.26,
    pool: bool = False,
    losses: int = 0,
) -> Cost:
    """A fan-out in one run. Where results are not kept, `result_bytes` is 0; of one item, with its
    comma, where they are. `shared_bytes` is what a shard hands to reducers. Several shards that
    come back together share a row; through a pool each has about two of its own."""
    count = shards(items, shard_size, window)
    of_shard = min(shard_size or SHARD_ITEMS_MAX, items) * result_bytes
    inline = of_shard <= INLINE_BYTES_MAX
    log = shard_bytes(items, count) + (of_shard if inline else REF_BYTES)
    if shared_bytes:
        log += shared_bytes + len(',"shared":')
    log += POOL_SHARD_BYTES * pool
    return Cost(
        RUN_EVENTS + LOOP_EVENTS + bool(shared_bytes) + count * SHARD_EVENTS + losses * LOSS_EVENTS,
        RUN_BYTES + LOOP_BYTES + window * CUT_BYTES + count * log + losses * LOSS_BYTES,
        3 + count * (1.9 if pool else rows_per_shard),
        payload_bytes=0.0 if inline else items * result_bytes,
    )


def fan(participants: int, answer_bytes: float, name_bytes: float = 8.0) -> Cost:
    """One run that asks so many and waits for all."""
    one = PARTICIPANT_BYTES + answer_bytes + name_bytes + 3
    return Cost(
        RUN_EVENTS + FAN_EVENTS + participants * PARTICIPANT_EVENTS,
        RUN_BYTES + FAN_BYTES + participants * one,
        max(2.0, participants / 1000),
        snapshot_bytes=participants * (STATE_PARTICIPANT_BYTES + answer_bytes),
    )


OPEN_EVENTS = 3  # run.started, token.created, gate.opened
OPEN_BYTES = 236


def open_runs(count: int, *, timer: bool) -> Cost:
    """Runs that wait for a person at their first step; with a timer one event more."""
    events, log = OPEN_EVENTS + timer, OPEN_BYTES + 38 * timer
    return Cost(count * events, count * log, count, count, timers=count if timer else 0)


# -- clusters --------------------------------------------------------------------------------

BLOB_BYTES = 700  # of a shard on its way to a cluster, without parts that its processes have
PART_BYTES = 67  # around each part
TICKET_BYTES = 18_000  # of the engine's memory, for each shard that is out


@dataclass(frozen=True, slots=True)
class ClusterTraffic:
    """Between an engine and the cluster of a pool, for a whole loop."""

    submissions: int
    words: int  # started and finished; progress of long shards comes on top, thrice a minute
    sent_bytes: float
    memory_bytes: float  # of the engine: it follows what is out, not the items


def cluster(
    items: int, shard_size: int | None, *, window: int, part_bytes: float, losses: int = 0
) -> ClusterTraffic:
    """`part_bytes`: definition and names of the run. Where they are small (16 KiB) they go with
    every shard until the first have come back, which is a window; large ones once a process."""
    sent = shards(items, shard_size, window) + losses
    parts = min(window, sent) * (part_bytes + 2 * PART_BYTES)
    return ClusterTraffic(sent, 2 * sent, sent * BLOB_BYTES + parts, window * TICKET_BYTES)


# -- workers ---------------------------------------------------------------------------------

LEASE_BEATS = 3  # in each lease
STOP_QUESTION_SECONDS = (
    25.0  # a worker asks which of its jobs to stop, and the server waits so long
)
NAMED_AFTER_SECONDS = 0.2  # a job that takes longer is named in a new question
SERVERS_QUESTION_SECONDS = 5.0  # a worker asks which servers there are


@dataclass(frozen=True, slots=True)
class WorkerTraffic:
    """What workers that are busy cost the server, a second."""

    requests: float
    events: float
    log_bytes: float


def workers(
    count: int, jobs_each: int = 1, lease_seconds: float = 60.0, job_seconds: float = 60.0
) -> WorkerTraffic:
    """HTTP workers with jobs of that length: for each job a claim, a report and a question whether
    to stop it; a heartbeat and a word on its progress every third of a lease."""
    jobs = count * jobs_each
    ended = jobs / job_seconds
    beat_seconds = lease_seconds / LEASE_BEATS
    beats = ended * math.floor(job_seconds / beat_seconds)
    asked = ended if job_seconds > NAMED_AFTER_SECONDS else 0.0
    held = count * (1 / STOP_QUESTION_SECONDS + 1 / SERVERS_QUESTION_SECONDS)
    events = ended * SHARD_EVENTS + 2 * beats * HEARTBEAT_EVENTS
    log = ended * (SHARD_BYTES + POOL_SHARD_BYTES) + beats * (HEARTBEAT_BYTES + PROGRESS_BYTES)
    return WorkerTraffic(2 * ended + asked + 2 * beats + held, events, log)
