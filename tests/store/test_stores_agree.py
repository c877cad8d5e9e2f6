"""The same random calls to the model and to a real store: every answer must be the same.

A difference is reported with its seed and step, which repeat it exactly. The test also counts the
kinds of answers it met: agreement about calls that never got anywhere would prove nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.errors import AnabranchError
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Commit, Definition, HeadFilter, Store
from anabranch.store.record_ports import NamedRecord, RecordChange
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store.stream_ports import StreamCommit, StreamFilter, Streams
from anabranch.testing.store_suite.samples import NOW, a_commit, sha256
from anabranch.testing.store_suite.streams import a_stream

Call = Callable[[Store], Any]

STEPS = 3000
RUNS = [f"r{n:03}" for n in range(150)]
STATUSES = ["running", "waiting", "done"]
LABELS: list[dict[str, str]] = [{}, {"a": "1"}, {"a": "2", "b'\"\\": "ü☃"}]
NAMES = ["order", 'refund "☃"\n\\', "order", "order", "order"]

EXPECTED = {
    ("commit", "done"),
    ("commit", "conflict"),
    ("commit", "run_finished"),
    ("commit", "malformed_commit"),
    ("commit", "message_answered"),
    ("commit", "payload_hash"),
    ("put_definition", "done"),
    ("put_payload", "done"),
    ("put_payload", "payload_hash"),
    ("post", "found"),
    ("changed", "found"),
    ("changed", "nothing"),
    ("acquire", "done"),
    ("acquire", "store_in_use"),
    ("release", "done"),
    ("statistics", "found"),
    *((name, kind) for name in ("head", "read", "heads", "unfinished", "due", "definition")
      for kind in ("found", "nothing")),
    ("put_record", "found"),
    ("put_record", "nothing"),
    ("put_records", "malformed"),
    ("put_records", "found"),
    ("drop_record", "found"),
    ("drop_record", "nothing"),
    *((name, kind) for name in ("payload", "unanswered", "message", "owned", "read_many",
                                "records", "due_records", "run_history", "run_slots")
      for kind in ("found", "nothing")),
}  # fmt: skip

OF_STREAMS = {
    (f"streams_{name}", kind)
    for name in ("listed", "open", "read", "forgotten")
    for kind in ("found", "nothing")
}


class Caller:
    """Draws calls that fit the state of the model most of the time, and miss it often enough."""

    def __init__(self, seed: int, model: MemoryStore) -> None:
        self.dice = random.Random(seed)
        self.model = model
        self.drawn = 0
        self._names = [name for name in dir(self) if name.startswith("draw_")]
        self._weights = [12 if name == "draw_commit" else 1 for name in self._names]

    def next(self) -> tuple[str, Call]:
        self.drawn += 1
        (name,) = self.dice.choices(self._names, self._weights)
        call: Call = getattr(self, name)()
        return name.removeprefix("draw_"), call

    def _run(self) -> str:
        """One of a few runs at a time, moving on: runs are born and finish all along."""
        first = self.drawn * (len(RUNS) - 12) // STEPS
        return self.dice.choice([*RUNS[first : first + 12], "r999"])

    def draw_commit(self) -> Call:
        batch = Batch()
        ends: dict[str, int] = {}
        for _ in range(self.dice.choice([0, 1, 1, 1, 2, 3, 5])):
            commit = self._commit(ends)
            ends[commit.head.run] = commit.head.seq
            batch.commits.append(commit)
        for content in self._some([b"x", b"y", b"z"], 0.1):
            right = self.dice.random() < 0.7
            batch.payloads[sha256(content if right else b"?")] = content
        for message in self._some(self.model.unanswered(limit=3), 0.3):
            batch.answers[message.id] = b'"ok"'
        if self.dice.random() < 0.05:
            batch.answers[self.dice.randrange(20)] = b'"again"'
        self._more(batch)
        return lambda store: store.commit(batch)

    def _more(self, batch: Batch) -> None:
        """What only some stores take."""

    def _commit(self, ends: dict[str, int]) -> Commit:
        run = self._run()
        head = self.model.head(run)
        count = self.dice.choice([0, 1, 1, 2, 3])
        last = ends.get(run, head.seq if head else 0) + count
        if self.dice.random() < 0.08:
            last += self.dice.choice([-1, 1, 2])
        changes: dict[str, Any] = {
            "status": self.dice.choice(STATUSES),
            "next_wake": self.dice.choice([None, *range(5)]),
            "labels": LABELS[self._of_birth(run) % len(LABELS)],
            "finished": self.dice.random() < 0.04,
            "name": NAMES[self._of_birth(run) % len(NAMES)],
            "parent": RUNS[0] if run < RUNS[70] and run[-1] == "5" else None,
            "created_at": NOW + int(run[-1]) // 3 + (self.dice.random() < 0.03),
            "updated_at": NOW + 10 + self.dice.randrange(50),
        }
        snapshot = b"s%d" % last if self.dice.random() < 0.2 else None
        return a_commit(run, last, count, snapshot=snapshot, **changes)

    def _of_birth(self, run: str) -> int:
        """The same for all commits of a run, most of the time: a run keeps its name and labels."""
        return int(run[1:]) + (self.dice.random() < 0.02)

    def _some(self, values: list[Any], chance: float) -> list[Any]:
        return [value for value in values if self.dice.random() < chance]

    def draw_head(self) -> Call:
        run = self._run()
        return lambda store: store.head(run)

    def draw_read(self) -> Call:
        run, after = self._run(), self.dice.randrange(6)
        return lambda store: store.read(run, after)

    def draw_read_many(self) -> Call:
        runs = self.dice.sample([*RUNS, "nobody"], self.dice.choice([0, 1, 7, 100]))
        return lambda store: store.read_many(runs)

    def draw_heads(self) -> Call:
        pick = self.dice.choice
        wanted = HeadFilter(
            statuses=self._some(STATUSES, 0.3),
            dialect=pick([None, None, "noetl", "arca"]),
            name=pick([None, "order"]),
            labels=pick(LABELS),
            run_prefix=pick(["", "", "r", "r01"]),
            parent=pick([None, None, RUNS[0]]),
            before=pick([None, None, (NOW + 2, "r036")]),
            limit=pick([0, 3, 50]),
        )
        return lambda store: store.heads(wanted)

    def draw_run_history(self) -> Call:
        since, width = NOW + self.dice.randrange(-5, 8), self.dice.choice([1, 2, 7, 1000])

        def history(store: Store) -> Any:
            found = store.run_history(since, width)
            return [dict(found.slots), found.definitions] if found.definitions else []

        return history

    def draw_run_slots(self) -> Call:
        after, width = NOW + self.dice.randrange(-5, 8), self.dice.choice([1, 2, 7, 1000])
        statuses = self._some(STATUSES, 0.3)
        wanted = HeadFilter(created_after=after, statuses=statuses)
        return lambda store: dict(store.run_slots(wanted, width))

    def draw_unfinished(self) -> Call:
        after, limit = self.dice.choice(["", *RUNS]), self.dice.choice([0, 2, 50])
        return lambda store: store.unfinished(after, limit)

    def draw_due(self) -> Call:
        now, limit = self.dice.randrange(-1, 5), self.dice.choice([0, 2, 50])
        return lambda store: store.due(now, limit)

    def draw_put_definition(self) -> Call:
        definition = Definition(
            fingerprint=self.dice.choice("fgh"),
            dialect="arca",
            name="n",
            source=self.dice.choice(["{}", "[]"]),
        )
        return lambda store: store.put_definition(definition)

    def draw_definition(self) -> Call:
        fingerprint = self.dice.choice("fghi")
        return lambda store: store.definition(fingerprint)

    def draw_put_payload(self) -> Call:
        key, content = sha256(self.dice.choice([b"x", b"v"])), self.dice.choice([b"x", b"v"])
        return lambda store: store.put_payload(key, content)

    def draw_payload(self) -> Call:
        key = sha256(self.dice.choice([b"x", b"y", b"z", b"v", b"w"]))
        return lambda store: store.payload(key)

    def draw_post(self) -> Call:
        run, now = self.dice.choice(RUNS), self.dice.randrange(9)
        return lambda store: store.post(run, b'{"what":"?"}', now)

    def draw_unanswered(self) -> Call:
        limit = self.dice.choice([0, 1, 100])
        return lambda store: store.unanswered(limit)

    def draw_message(self) -> Call:
        message_id = self.dice.randrange(100)
        return lambda store: store.message(message_id)

    def _change(self) -> RecordChange:
        name = self.dice.choice("abcdefgh")
        record = NamedRecord(
            family=self.dice.choice(["schedule", "alias"]),
            name=name,
            body=b'{"drawn":%d}' % self.drawn,
            due=self.dice.choice([None, *range(5)]),
            updated_at=self.drawn,
        )
        known = self.model.record(record.family, name)
        off = self.dice.choice([0, 0, 0, 1])
        return RecordChange(record, (known.version if known else 0) + off)

    def draw_put_record(self) -> Call:
        change = self._change()
        return lambda store: store.put_record(change.record, change.seen)

    def draw_put_records(self) -> Call:
        changes = [self._change() for _ in range(self.dice.choice([0, 1, 2, 4]))]
        return lambda store: store.put_records(changes)

    def draw_records(self) -> Call:
        after, limit = self.dice.choice(["", "c"]), self.dice.choice([0, 2, 50])
        return lambda store: store.records("schedule", after, limit)

    def draw_due_records(self) -> Call:
        now, limit = self.dice.randrange(-1, 5), self.dice.choice([0, 2, 50])
        return lambda store: store.due_records("schedule", now, limit)

    def draw_drop_record(self) -> Call:
        change = self._change()
        return lambda store: store.drop_record("alias", change.record.name, change.seen)

    def draw_changed(self) -> Call:
        return lambda store: store.changed()

    def draw_acquire(self) -> Call:
        return lambda store: store.acquire("an engine")

    def draw_release(self) -> Call:
        return lambda store: store.release()

    def draw_owned(self) -> Call:
        return lambda store: store.owner() is not None  # the text differs, see the suite

    def draw_statistics(self) -> Call:
        return lambda store: {**store.statistics(), "bytes": 0}  # each counts its own bytes


class CallerWithStreams(Caller):
    """For stores that keep the state of a node."""

    def _more(self, batch: Batch) -> None:
        if self.dice.random() < 0.3:
            batch.streams = [self._stream() for _ in range(self.dice.choice([1, 1, 2, 4]))]

    def _stream(self) -> StreamCommit:
        name = f"s/{self.dice.randrange(20)}"
        card = self.model.node_streams.stream(name)
        count = self.dice.choice([1, 1, 2, 3, 0 if self.dice.random() < 0.1 else 1])
        last = (card.seq if card else 0) + count
        if self.dice.random() < 0.05:
            last += self.dice.choice([-1, 1])
        return a_stream(
            name,
            last,
            count,
            family=f"f{int(name[2:]) % 3 + (self.dice.random() < 0.02)}",
            created_at=NOW + int(name[2:]) // 3,
            updated_at=self.drawn,
            open=self.dice.random() < 0.5,
            wake=self.dice.choice([None, 1, 2]),
            group=self.dice.choice(["", "g", "h"]),
        )

    def draw_streams_listed(self) -> Call:
        pick = self.dice.choice
        wanted = StreamFilter(
            family=pick(["f0", "f1", "f2", "f9"]),
            group=pick([None, None, "", "g", "h"]),
            open=pick([None, True, False]),
            before=pick([None, None, (NOW + 3, "s/11")]),
            limit=pick([0, 2, 50]),
        )
        return lambda store: _streams(store).streams(wanted)

    def draw_streams_open(self) -> Call:
        after, limit = self.dice.choice(["", "s/10"]), self.dice.choice([0, 2, 50])
        return lambda store: _streams(store).open_streams(after, limit)

    def draw_streams_read(self) -> Call:
        name, after = f"s/{self.dice.randrange(20)}", self.dice.randrange(6)
        return lambda store: _streams(store).stream_events(name, after)

    def draw_streams_forgotten(self) -> Call:
        family, before = self.dice.choice(["f0", "f1"]), self.drawn - self.dice.choice([50, 300])
        group = self.dice.choice([None, None, "", "g"])
        return lambda store: _streams(store).forget_streams(family, before, 3, group)


def _streams(store: Store) -> Streams:
    assert store.node_streams is not None
    return store.node_streams


def answer(store: Store, call: Call) -> tuple[str, Any]:
    try:
        value = call(store)
    except AnabranchError as error:
        # Who holds a store is told in a store's own words; all else must be the same to the letter.
        return error.code, None if error.code == "store_in_use" else error.message
    if value is None or value is True:
        return "found" if value else "done", value
    return "found" if value else "nothing", value


def kind_of(name: str, outcome: tuple[str, Any]) -> str:
    lookups = ("head", "definition", "payload", "message")
    return "nothing" if name in lookups and outcome[1] is None else outcome[0]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))]
)
def test_sqlite_answers_every_call_like_the_model(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    seen = compare(seed, lambda: SqliteStore(path, synchronous="NORMAL"), CallerWithStreams)
    assert seen >= OF_STREAMS, f"seed {seed} never met {sorted(OF_STREAMS - seen)}"


def test_postgres_answers_every_call_like_the_model(postgres: str) -> None:
    """One partition, whose order is the order over all runs. Its numbers have gaps: a batch that
    only answers messages moves them too."""
    from anabranch.store.postgres.store import PostgresStore

    address = f"{postgres}{'&' if '?' in postgres else '?'}schema=agreed"
    compare(4, lambda: PostgresStore(address, partitions=1), order=in_order)


@pytest.mark.soak
def test_postgres_answers_like_the_model_whatever_its_partitions(postgres: str) -> None:
    """Each partition has an order of its own; nothing else differs."""
    from anabranch.store.postgres.store import PostgresStore

    address = f"{postgres}{'&' if '?' in postgres else '?'}schema=agreed_too"
    compare(5, lambda: PostgresStore(address, partitions=5), order=in_no_order)


def with_positions(store: Store) -> Any:
    return store.feed(0, 1_000_000), store.positions()[0]


def in_order(store: Store) -> Any:
    return [replace(entry, position=0) for entry in store.feed(0, 1_000_000)]


def in_no_order(_store: Store) -> Any:
    return ()


def compare(
    seed: int,
    opened: Callable[[], Store],
    made: type[Caller] = Caller,
    *,
    order: Callable[[Store], Any] = with_positions,
) -> set[tuple[str, str]]:
    model, seen = MemoryStore(), set()
    real = opened()
    caller = made(seed, model)
    try:
        for step in range(STEPS):
            if step % 150 == 0:  # what was answered must not depend on the life of a process
                real.close()
                model.release()
                real = opened()
                model.changed(), real.changed()
            name, call = caller.next()
            expected, found = answer(model, call), answer(real, call)
            assert found == expected, f"seed {seed}, step {step}: {name}"
            seen.add((name, kind_of(name, expected)))
        ends = everything(real, order), everything(model, order)
        assert ends[0] == ends[1], f"seed {seed}: the stores ended differently"
    finally:
        real.close()
    assert seen >= EXPECTED, f"seed {seed} never met {sorted(EXPECTED - seen)}"
    return seen


def everything(store: Store, order: Callable[[Store], Any] = with_positions) -> list[Any]:
    heads = store.heads(HeadFilter(limit=1000))
    tails = store.read_many([head.run for head in heads])
    logs = [store.read(head.run) for head in heads]
    messages = [store.message(n) for n in range(200)]
    counts = store.run_counts(), {**store.statistics(), "bytes": 0}
    return [heads, dict(tails), logs, messages, order(store), counts, state_of_a_node(store)]


def state_of_a_node(store: Store) -> list[Any]:
    if (streams := store.node_streams) is None:
        return []
    names = streams.stream_names()
    return [(streams.stream(name), streams.stream_events(name)) for name in names]


def test_a_difference_would_be_noticed() -> None:
    """The comparison itself: a record that differs in one byte is a different answer."""
    model, other = MemoryStore(), MemoryStore()
    commit = a_commit("r1", 1)
    model.commit(Batch(commits=[commit]))
    other.commit(Batch(commits=[replace(commit, events=b"[1]")]))
    assert everything(model) != everything(other)
