"""Reading the log afterwards: nothing lost, nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.kernel import events as e
from anabranch.kernel import laws
from anabranch.kernel.state import State, encode_state
from anabranch.runtime.live_run import history, load_state
from anabranch.store.ports import Store
from anabranch.store.sqlite.store import SqliteStore


@dataclass
class Story:
    """What the log of one run says."""

    run: str
    pairs: list[tuple[int, e.Event]]
    state: State
    steps: dict[int, str] = field(default_factory=dict)  # token → step
    endings: Counter[str] = field(default_factory=Counter)  # step → how many step runs ended

    @property
    def events(self) -> Iterator[e.Event]:
        return (event for _, event in self.pairs)

    @property
    def scheduled(self) -> set[str]:
        """The keys of all work that was ever meant to be done."""
        return {self.key(x.job) for x in self.events if isinstance(x, e.JobScheduled)}

    def reported(self, *steps: str) -> set[str]:
        """The keys of the jobs of these steps that came back with an answer."""
        jobs = {x.job: x.token for x in self.events if isinstance(x, e.JobScheduled)}
        done = {x.job for x in self.events if isinstance(x, e.JobReported)}
        return {self.key(job) for job in done if self.steps[jobs[job]] in steps}

    def started(self) -> Counter[str]:
        """How often each piece of work was handed out."""
        return Counter(self.key(x.job) for x in self.events if isinstance(x, e.JobStarted))

    def key(self, job: str) -> str:
        return f"{self.run}/{job}"


def read_story(path: Path, run: str) -> Story:
    """Reads the log of a run and checks what holds of every log."""
    store = SqliteStore(path, read_only=True)
    try:
        return story_in(store, run)
    finally:
        store.close()


def story_in(store: Store, run: str) -> Story:
    """The same in a store that is open."""
    head = None
    while head is None or head != store.head(run):  # an engine may be writing
        head, rows = store.head(run), store.read(run)
        tail = store.read_many([run])[run]
        assert head is not None
    expected = 1
    for row in rows:
        assert row.first_seq == expected, f"a gap before {row.first_seq}"
        expected += row.count
    assert head.seq == expected - 1, "the head does not stand at the end of the log"
    pairs = history(rows)
    assert len(pairs) == head.seq
    state = load_state(None, rows, run)
    laws.check_rest(state)
    assert encode_state(state) == encode_state(load_state(*tail, run)), (
        "the snapshot tells otherwise"
    )
    return _checked(Story(run, pairs, state))


def _checked(story: Story) -> Story:
    created, finished = Counter[int](), Counter[int]()
    kinds = Counter[tuple[str, str, int]]()
    for event in story.events:
        match event:
            case e.TokenCreated():
                created[event.token] += 1
                story.steps[event.token] = event.step
            case e.TokenFinished():
                finished[event.token] += 1
                story.endings[story.steps[event.token]] += 1
            case e.JobScheduled() | e.JobStarted() | e.JobReported() | e.JobLost():
                kinds[type(event).__name__, event.job, event.attempt] += 1
            case _:
                pass
    assert set(created.values()) == {1}, "a token was created twice"
    assert set(finished.values()) <= {1}, "a token finished twice"
    assert [key for key, count in kinds.items() if count > 1] == [], "an attempt counted twice"
    if story.state.finished:
        assert created == finished, "a token was lost"
        assert sum(isinstance(event, e.RunFinished) for event in story.events) == 1
        assert isinstance(story.pairs[-1][1], e.RunFinished)
    return story
