"""What large loads will cost, from the formulas: `python -m bench.scale.plan` prints the table of
`docs/scale.md`, and `tests/test_scale.py` compares the two."""

from __future__ import annotations

from collections.abc import Iterator

from bench.scale import formulas
from bench.scale.formulas import Cost

ITEMS, PARTICIPANTS, OPEN_RUNS, WORKERS = 10**9, 10**5, 10**6, 1000
SLOW_SHARD = 25  # items of 10 ms: as many as automatic shards have of them
TOTAL_BYTES = 24  # of a sum that each shard hands on
RESULT_BYTES = 20
ANSWER_BYTES = 200
DEFINITION_BYTES = 800  # with the names of the run

HEAD = ("load", "events", "rows of the log", "bytes of the log", "file", "messages", "memory")


def table() -> str:
    """The lines of a Markdown table."""
    lines = [" | ".join(row) for row in (HEAD, ("---",) * len(HEAD), *rows())]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def rows() -> Iterator[tuple[str, ...]]:
    for name, size, result in (
        ("10⁹ quick items, automatic shards", None, 0.0),
        (f"the same, results of {RESULT_BYTES} bytes kept", None, RESULT_BYTES),
        ("the same in shards of 100,000, nothing kept", 100_000, 0.0),
        (f"the same in shards of {SLOW_SHARD}", SLOW_SHARD, 0.0),
    ):
        yield _items(name, size, result)
    asked = formulas.fan(PARTICIPANTS, ANSWER_BYTES)
    memory = PARTICIPANTS * (formulas.PARTICIPANT_MEMORY_BYTES + ANSWER_BYTES)
    name = f"10⁵ participants, answers of {ANSWER_BYTES} bytes"
    yield _row(name, asked, f"{_count(2 * PARTICIPANTS)} in all", memory)
    yield _row("10⁶ open runs", formulas.open_runs(OPEN_RUNS, timer=False), "none", 0.0)
    yield _row("the same with timers", formulas.open_runs(OPEN_RUNS, timer=True), "none", 0.0)


def _items(name: str, size: int | None, result_bytes: float) -> tuple[str, ...]:
    """Through a pool on a cluster of so many workers."""
    window = 2 * WORKERS
    cost = formulas.loop(
        ITEMS, size, result_bytes, shared_bytes=TOTAL_BYTES, window=window, pool=True
    )
    traffic = formulas.cluster(ITEMS, size, window=window, part_bytes=DEFINITION_BYTES)
    messages = f"{_count(traffic.submissions)} out ({_bytes(traffic.sent_bytes)}), "
    messages += f"{_count(traffic.words)} back"
    return _row(name, cost, messages, traffic.memory_bytes)


def _row(name: str, cost: Cost, messages: str, memory: float) -> tuple[str, ...]:
    log, file = _bytes(cost.log_bytes), _bytes(cost.file_bytes)
    if cost.log_bytes > formulas.RUN_LOG_BYTES_MAX * cost.heads:
        log += ": too large"
    kept = _bytes(memory) if memory else "none at rest"
    return name, _count(cost.events), _count(cost.rows), log, file, messages, kept


def worker_rows() -> Iterator[tuple[str, ...]]:
    for seconds in (1, 10, 60, 600):
        cost = formulas.workers(WORKERS, job_seconds=seconds)
        log = _bytes(cost.log_bytes * 86_400)
        yield f"{seconds} s", f"{cost.requests:,.0f}", f"{cost.events:,.0f}", log


def worker_table() -> str:
    head = ("jobs of", "requests a second", "events a second", "log a day")
    lines = [" | ".join(row) for row in (head, ("---",) * 4, *worker_rows())]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _count(number: float) -> str:
    for size, word in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{word}"
    return f"{number:,.0f}"


def _bytes(number: float) -> str:
    return f"{_count(number)}B" if number >= 1e3 else f"{number:,.0f} B"


if __name__ == "__main__":
    print(table())
    print(worker_table())
