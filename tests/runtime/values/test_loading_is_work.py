"""To load a large value is work: paid for before it is done, and done once for an evaluation."""

from __future__ import annotations

import gzip
import threading
from typing import Any

import pytest

import anabranch
from anabranch.errors import AnabranchError
from anabranch.expressions.budget import (
    BYTES_OF_UNIT,
    HELD_BYTES_MAX,
    PAUSE,
    TURN_WORK_MAX,
    TakesLong,
    TurnBudget,
    share_budget,
    unshare_budget,
    within_one_budget,
)
from anabranch.runtime.values.loading import Fetch, Loader, read_payload
from anabranch.runtime.values.payloads import Resolved, lighten
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.work.evaluations import evaluate, share_of_loop
from anabranch.work.values.payloads import encoded, hash_of

from ..support import engine, playbook, run, start, step

BIG = list(range(250_000))  # more than the event loop may be held for
SMALL = list(range(20_000))  # less
LOOK = "{% for i in range(40) %}{{ workload.big[0] }}{% endfor %}"


class Reads:
    """Of payloads: the size of each, and whether it held the event loop."""

    def __init__(self) -> None:
        self.made: list[tuple[int, bool]] = []
        self._loop = threading.get_ident()

    def note(self, content: bytes | None) -> bytes | None:
        self.made.append((len(content or b""), threading.get_ident() == self._loop))
        return content

    @property
    def held(self) -> list[int]:
        return [size for size, on_the_loop in self.made if on_the_loop and size > HELD_BYTES_MAX]

    def of(self, *contents: bytes) -> Fetch:
        kept = {hash_of(content): content for content in contents}
        return lambda sha256: self.note(kept.get(sha256))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    seen, payload = Reads(), MemoryStore.payload

    def noted(store: MemoryStore, sha256: str) -> bytes | None:
        return seen.note(payload(store, sha256))

    monkeypatch.setattr(MemoryStore, "payload", noted)
    return seen


def play(text: str, **settings: Any) -> Any:
    given = {"big": BIG, "small": SMALL}
    return anabranch.run(text, given, settings=Settings(**settings))


def reading(template: str) -> str:
    return playbook(step("a", result=template), workload={"big": [], "small": []})


@pytest.mark.parametrize("name", ["big", "small"])
def test_an_evaluation_loads_a_payload_once_however_often_it_looks(name: str, reads: Reads) -> None:
    result = play(reading(LOOK.replace("big", name)))
    assert result.status == "completed", result.problem
    assert len(reads.made) <= 2


#: Where templates of work look at the input of their run.
PLACES = {
    "inputs": step("a", result=LOOK),
    "a pipeline": {
        "step": "a",
        "tool": [{"name": "t", "kind": "noop", "result": LOOK}, {"name": "u", "kind": "noop"}],
    },
    "a rule": step("a", spec={})
    | {
        "tool": {
            "kind": "noop",
            "spec": {
                "policy": {"rules": [{"when": "{{ workload.big[0] }}", "then": {"do": "break"}}]}
            },
        }
    },
    "items": {
        "step": "a",
        "loop": {"in": {"range": 3}, "iterator": "n"},
        "tool": {"kind": "noop", "result": "{{ workload.big[iter.n] }}"},
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_nothing_large_is_loaded_for_work_on_the_event_loop(place: str, reads: Reads) -> None:
    result = play(playbook(PLACES[place], workload={"big": [], "small": []}))
    assert result.status == "completed", result.problem
    assert reads.made
    assert not reads.held


def test_many_small_ones_are_not_loaded_on_the_event_loop_either() -> None:
    """All that one evaluation loads there counts together."""
    contents = [encoded([number] * 50_000) for number in range(50)]
    reads = Reads()
    load = Loader(reads.of(*contents))

    async def work() -> None:
        with pytest.raises(TakesLong):
            share_of_loop().evaluate(lambda: [load(hash_of(one), len(one)) for one in contents])
        found = await evaluate(lambda: [load(hash_of(one), len(one))[0] for one in contents])
        assert found == list(range(50))

    run(work())
    assert 0 < sum(size for size, on_the_loop in reads.made if on_the_loop) <= 2 * HELD_BYTES_MAX


def test_a_stand_in_that_says_too_little_helps_once() -> None:
    content = encoded(["a lie", *BIG])
    reads = Reads()
    fetch = reads.of(content)

    async def work() -> None:
        for _ in range(5):
            await evaluate(lambda: Loader(fetch)(hash_of(content), 1))

    run(work())
    assert len(reads.held) == 1
    assert len(reads.made) == 6


def test_what_is_packed_is_paid_for_before_it_is_unpacked() -> None:
    packed = gzip.compress(b"[" + b"0," * 20_000_000 + b"0]", mtime=0)
    assert len(packed) < HELD_BYTES_MAX
    paid: list[int] = []

    def charge(size: int) -> None:
        paid.append(size)
        if sum(paid) > HELD_BYTES_MAX:
            raise AnabranchError("enough")

    with pytest.raises(AnabranchError, match="enough"):
        read_payload({"x": packed}.get, "x", len(packed), charge)
    assert sum(paid) < 2 * HELD_BYTES_MAX


def resolved_names(payloads: dict[str, bytes], **values: Any) -> Resolved:
    def kept(value: Any) -> Any:
        light = lighten(value, 1000)
        if light.sha256:
            payloads[light.sha256] = light.content
        return light.result

    return Resolved({name: kept(value) for name, value in values.items()}, Loader(payloads.get))


def test_a_look_at_what_is_loaded_or_holds_no_large_value_is_charged_as_well() -> None:
    """It is walked through, or copied, each time."""
    wide = {f"k{number}": number for number in range(5000)}
    payloads: dict[str, bytes] = {}
    names = resolved_names(payloads, wide=wide)
    inline = Resolved({"rows": list(range(5000))}, Loader(payloads.get))
    for values, name in ((names, "wide"), (inline, "rows")):
        with within_one_budget() as budget:
            values[name]
            before = budget.used
            values[name]
            assert budget.used - before > 5000
            budget.begin_again()


def test_in_turns_each_load_is_charged_and_others_may_go_on_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is cached: a turn ends at the same place after a restart."""
    targets = [f"z{number}" for number in range(4)]
    arcs = [{"step": one, "when": "{{ workload.big[7] == 7 }}"} for one in targets]
    first = step("a", next={"spec": {"mode": "inclusive"}, "arcs": arcs})
    text = playbook(first, *map(step, targets), workload={"big": []})
    charged: list[int] = []
    pauses: list[int] = []
    charge_load = TurnBudget.charge_load

    def charge(budget: TurnBudget, size: int) -> None:
        seen, used = len(pauses), budget.used
        charge_load(budget, size)
        assert len(pauses) > seen
        assert budget.used - used >= size // BYTES_OF_UNIT
        charged.append(size)

    async def work() -> None:
        PAUSE.set(lambda: pauses.append(1))
        async with engine() as made:
            state = await made.wait(await start(made, text, input={"big": BIG}))
            assert state.status == "completed"

    monkeypatch.setattr(TurnBudget, "charge_load", charge)
    run(work())
    assert charged == [len(encoded(BIG))] * 4


def test_the_budget_of_a_turn_ends_what_is_loaded_again_and_again() -> None:
    payloads: dict[str, bytes] = {}
    big = resolved_names(payloads, big=BIG)
    size = len(encoded(BIG))
    budget = TurnBudget(TURN_WORK_MAX, bytes_max=5 * size)
    shared = share_budget(budget)
    try:
        for _ in range(5):
            assert big["big"][7] == 7
            budget.loaded = None
        with pytest.raises(AnabranchError, match="bytes_max"):
            big["big"]
    finally:
        unshare_budget(shared)
    assert budget.used >= 5 * size // BYTES_OF_UNIT


@pytest.mark.parametrize("where", ["inputs", "a pipeline"])
def test_work_that_reads_too_much_fails_and_names_the_limit(where: str, reads: Reads) -> None:
    text = playbook(PLACES[where], workload={"big": [], "small": []})
    result = play(text, expression_bytes_max=1_200_000)
    assert result.status == "failed"
    assert "ANABRANCH_EXPRESSION_BYTES_MAX" in str(result.problem)
    assert not reads.made
