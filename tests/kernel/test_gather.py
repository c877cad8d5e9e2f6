"""The gather: how it closes, selects and combines, against an independent model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.kernel import events as e
from anabranch.kernel.evolve import evolve
from anabranch.kernel.gather import Verdict, combine, expire, needed, open_slots, select, weigh
from anabranch.kernel.state import Gather, State, decode_state, encode_state
from anabranch.net.net import GatherRule

TARGET = 1


def opened(rule: GatherRule, slots: int) -> State:
    """A state in which a gather with so many slots has just opened."""
    state = State()
    evolve(state, e.RunStarted("run", "d", "n", {}), 0)
    evolve(state, e.TokenCreated(TARGET, "target", 0, 0, "join"), 0)
    labels = [f"s{slot}" for slot in range(slots)]
    evolve(state, e.GatherOpened("j1", "join", TARGET, rule, labels, ["any"] * slots), 0)
    return state


def gather_of(state: State) -> Gather:
    return state.gathers["j1"]


def deliver(state: State, slot: int, value: Any = None, score: float | None = None) -> None:
    evolve(state, e.Delivered("j1", slot, str(100 + slot), "ok", score, value), 0)


def lose(state: State, slot: int, *, excluded: bool = False) -> None:
    evolve(state, e.SlotLost("j1", slot, str(100 + slot), "gone", excluded), 0)


def verdict_of(state: State) -> Verdict | None:
    gather = gather_of(state)
    return weigh(gather, open_slots(gather))


def closed_with(
    rule: GatherRule, values: Sequence[tuple[int, Any, float | None]], slots: int
) -> Any:
    """What the gather combines to once these (slot, value, score) have come in that order."""
    state = opened(rule, slots)
    for slot, value, score in values:
        deliver(state, slot, value, score)
    verdict = verdict_of(state)
    assert verdict is not None
    assert verdict.verdict == "closed"
    evolve(state, e.GatherSettled("j1", "closed", verdict.selected), 0)
    return combine(gather_of(state))


# -- closing -----------------------------------------------------------------------------------


def test_any_closes_with_the_first_delivery() -> None:
    state = opened(GatherRule("any"), 3)
    lose(state, 0)
    assert verdict_of(state) is None
    deliver(state, 2)
    assert verdict_of(state) == Verdict("closed", (2,))


def test_quorum_closes_with_the_kth_delivery() -> None:
    state = opened(GatherRule("quorum", k=2), 4)
    deliver(state, 3)
    assert verdict_of(state) is None
    deliver(state, 1)
    assert verdict_of(state) == Verdict("closed", (1, 3))


def test_all_waits_for_the_last() -> None:
    state = opened(GatherRule("all"), 2)
    deliver(state, 0)
    assert verdict_of(state) is None
    deliver(state, 1)
    assert verdict_of(state) == Verdict("closed", (0, 1))


def test_best_of_waits_for_everybody_who_can_still_answer() -> None:
    state = opened(GatherRule("best_of", select="score"), 3)
    deliver(state, 0, score=1.0)
    deliver(state, 1, score=5.0)
    assert verdict_of(state) is None
    lose(state, 2)
    assert verdict_of(state) == Verdict("closed", (1,))


@pytest.mark.parametrize("mode", ["any", "quorum", "all", "best_of"])
def test_nothing_delivered_and_nothing_possible_is_impossible(mode: Any) -> None:
    state = opened(GatherRule(mode, k=1), 2)
    lose(state, 0)
    lose(state, 1)
    verdict = verdict_of(state)
    assert verdict is not None
    assert verdict.verdict == "impossible"
    assert "needed" in verdict.reason


def test_impossible_is_known_as_soon_as_too_few_are_left() -> None:
    state = opened(GatherRule("quorum", k=3), 4)
    lose(state, 0)
    assert verdict_of(state) is None
    lose(state, 1)
    assert verdict_of(state) == Verdict("impossible", (), "0 delivered, 2 possible, 3 needed")


@pytest.mark.parametrize(("empty_closes", "expected"), [(True, "closed"), (False, "impossible")])
@pytest.mark.parametrize("mode", ["any", "quorum", "all", "best_of"])
def test_a_gather_over_nothing(mode: Any, empty_closes: bool, expected: str) -> None:
    verdict = verdict_of(opened(GatherRule(mode, empty_closes=empty_closes), 0))
    assert verdict is not None
    assert verdict.verdict == expected


@pytest.mark.parametrize(
    ("rule", "slots", "need"),
    [
        (GatherRule("all", tolerate=2), 5, 3),
        (GatherRule("all", tolerate=9), 5, 0),
        (GatherRule("all", tolerate_percent=50.0), 5, 3),
        (GatherRule("all", tolerate_percent=29.0), 100, 71),
        (GatherRule("all", tolerate_percent=32.3), 1000, 677),
        (GatherRule("all", tolerate=1, tolerate_percent=60.0), 10, 4),
        (GatherRule("quorum", k=4), 10, 4),
        (GatherRule("any"), 10, 1),
        (GatherRule("best_of"), 10, 1),
        (GatherRule("best_of", k=3), 10, 3),
    ],
)
def test_how_many_are_needed(rule: GatherRule, slots: int, need: int) -> None:
    assert needed(gather_of(opened(rule, slots))) == need


@settings(database=None, deadline=None)
@given(st.integers(1, 2_000), st.integers(0, 10_000))
def test_a_percentage_is_exact_to_the_hundredth(slots: int, hundredths: int) -> None:
    rule = GatherRule("all", tolerate_percent=hundredths / 100)
    allowed = Fraction(slots) * hundredths / 10_000
    assert needed(gather_of(opened(rule, slots))) == slots - allowed.__floor__()


def test_tolerated_gaps_do_not_close_all_before_everybody_is_heard() -> None:
    state = opened(GatherRule("all", tolerate=1), 3)
    deliver(state, 0)
    deliver(state, 1)
    assert verdict_of(state) is None
    lose(state, 2)
    assert verdict_of(state) == Verdict("closed", (0, 1))


def test_unreachable_parties_leave_the_denominator_of_all() -> None:
    state = opened(GatherRule("all", exclude_lost=True), 3)
    lose(state, 1, excluded=True)
    deliver(state, 0)
    deliver(state, 2)
    assert verdict_of(state) == Verdict("closed", (0, 2))


def test_unreachable_parties_lower_a_quorum_but_never_below_one() -> None:
    state = opened(GatherRule("quorum", k=3, exclude_lost=True), 4)
    lose(state, 0, excluded=True)
    lose(state, 1, excluded=True)
    deliver(state, 2)
    assert verdict_of(state) is None
    deliver(state, 3)
    assert verdict_of(state) == Verdict("closed", (2, 3))


@pytest.mark.parametrize("mode", ["any", "quorum", "all", "best_of"])
def test_nobody_reachable_is_impossible_not_complete(mode: Any) -> None:
    state = opened(GatherRule(mode, k=2, exclude_lost=True), 2)
    lose(state, 0, excluded=True)
    lose(state, 1, excluded=True)
    verdict = verdict_of(state)
    assert verdict is not None
    assert verdict.verdict == "impossible"


def test_a_negative_answer_stays_in_the_denominator() -> None:
    state = opened(GatherRule("all", exclude_lost=True), 2)
    lose(state, 0)
    verdict = verdict_of(state)
    assert verdict is not None
    assert verdict.verdict == "impossible"


# -- time is up ----------------------------------------------------------------------------------


def test_expiry_without_partial_answers_is_expired() -> None:
    state = opened(GatherRule("all"), 2)
    deliver(state, 0)
    verdict = expire(gather_of(state))
    assert (verdict.verdict, verdict.reason) == ("expired", "time is up: 1 of 2 delivered")


def test_expiry_with_partial_answers_closes_with_what_there_is() -> None:
    rule = GatherRule("best_of", select="score", order="asc", partial_on_expiry=True)
    state = opened(rule, 3)
    assert expire(gather_of(state)).verdict == "expired", "nothing is not partial"
    deliver(state, 0, score=7.0)
    deliver(state, 2, score=3.0)
    assert expire(gather_of(state)) == Verdict("closed", (2,), "time is up")


def test_the_best_is_chosen_from_as_many_as_are_needed() -> None:
    rule = GatherRule("best_of", k=2, select="score", partial_on_expiry=True)
    state = opened(rule, 3)
    deliver(state, 0, score=7.0)
    assert expire(gather_of(state)).verdict == "expired"
    deliver(state, 2, score=9.0)
    assert expire(gather_of(state)) == Verdict("closed", (2,), "time is up")


# -- selecting and combining -----------------------------------------------------------------------

ANSWERS: list[tuple[int, Any, float | None]] = [
    (2, {"id": "c", "x": 1}, 5.0),
    (0, {"id": "a", "y": 1}, 5.0),
    (1, {"id": "b"}, None),
]


@pytest.mark.parametrize(
    ("choice", "order", "ids"),
    [
        ("slot", "desc", ["a", "b", "c"]),
        ("arrival", "desc", ["c", "a", "b"]),
        ("score", "desc", ["c", "a", "b"]),
        ("score", "asc", ["c", "a", "b"]),
    ],
)
def test_what_is_selected_first(choice: Any, order: Any, ids: list[str]) -> None:
    """Ties go by arrival; without a score one comes last either way."""
    rule = GatherRule("all", select=choice, order=order)
    answers = closed_with(rule, ANSWERS, 3)["responses"]
    assert [answer["id"] for answer in answers] == ids


def test_scores_rank_in_both_directions() -> None:
    answers = [(slot, slot, float(score)) for slot, score in enumerate([3, -1, 8])]
    for order, best in (("asc", 1), ("desc", 2)):
        rule = GatherRule("best_of", select="score", order=order, combine="one")  # type: ignore[arg-type]
        assert closed_with(rule, answers, 3) == best


def test_combining_one() -> None:
    assert closed_with(GatherRule("any", combine="one"), ANSWERS[:1], 3) == ANSWERS[0][1]


def test_combining_merges_in_slot_order_whatever_was_selected_first() -> None:
    rule = GatherRule("all", select="arrival", combine="merge")
    assert closed_with(rule, ANSWERS, 3) == {"id": "c", "y": 1, "x": 1}


def test_combining_counts() -> None:
    state = opened(GatherRule("all", combine="counts", tolerate=1), 3)
    deliver(state, 0)
    lose(state, 1)
    deliver(state, 2)
    verdict = verdict_of(state)
    assert verdict is not None
    evolve(state, e.GatherSettled("j1", "closed", verdict.selected), 0)
    assert combine(gather_of(state)) == {"total": 3, "succeeded": 2, "failed": 1}


# -- against a model -------------------------------------------------------------------------------


@dataclass
class Model:
    """The definition of a gather, written for reading: it looks at everything every time."""

    rule: GatherRule
    slots: int
    answers: list[tuple[int, float | None]] = field(default_factory=list)  # in arrival order
    lost: dict[int, bool] = field(default_factory=dict)  # slot → was it unreachable

    def verdict(self) -> tuple[str, list[int]] | None:
        have, unheard = len(self.answers), self.slots - len(self.answers) - len(self.lost)
        if self.slots == 0:
            return ("closed", []) if self.rule.empty_closes else ("impossible", [])
        need, patient = self._need(), self.rule.mode in ("all", "best_of")
        if have >= need and not (patient and unheard):
            return "closed", self.selected()
        return ("impossible", []) if have + unheard < max(need, 1) else None

    def _need(self) -> int:
        reached = self.slots
        if self.rule.exclude_lost:
            reached -= sum(self.lost.values())
        if self.rule.mode in ("quorum", "best_of"):
            return max(1, min(self.rule.k, reached)) if self.rule.exclude_lost else self.rule.k
        if self.rule.mode != "all" or reached == 0:
            return 1
        percent = Fraction(str(self.rule.tolerate_percent)) / 100 * self.slots
        return max(0, reached - max(self.rule.tolerate, percent.__floor__()))

    def selected(self) -> list[int]:
        left, chosen = list(range(len(self.answers))), list[int]()
        wanted = {"all": len(left), "quorum": self._need()}.get(self.rule.mode, 1)
        while left and len(chosen) < wanted:
            best = left[0]
            for other in left[1:]:
                if self._better(other, best):
                    best = other
            left.remove(best)
            chosen.append(self.answers[best][0])
        return sorted(chosen) if self.rule.combine == "merge" else chosen

    def _better(self, one: int, other: int) -> bool:
        (slot, score), (other_slot, other_score) = self.answers[one], self.answers[other]
        if self.rule.select == "arrival":
            return one < other
        if self.rule.select == "slot":
            return slot < other_slot
        if score is None or other_score is None:
            return score is not None or (other_score is None and one < other)
        if score == other_score:
            return one < other
        return (score < other_score) == (self.rule.order == "asc")


rules = st.builds(
    GatherRule,
    mode=st.sampled_from(["any", "quorum", "all", "best_of"]),
    k=st.integers(1, 6),
    select=st.sampled_from(["slot", "arrival", "score"]),
    order=st.sampled_from(["asc", "desc"]),
    combine=st.sampled_from(["one", "list", "merge", "counts"]),
    losers=st.sampled_from(["kill", "drain"]),
    tolerate=st.integers(0, 3),
    tolerate_percent=st.sampled_from([0.0, 10.0, 33.3, 50.0, 100.0]),
    exclude_lost=st.booleans(),
    partial_on_expiry=st.booleans(),
    empty_closes=st.booleans(),
)
scores = st.one_of(st.none(), st.integers(-2, 2).map(float))


@settings(database=None, deadline=None, max_examples=400)
@given(rules, st.integers(0, 6), st.randoms(use_true_random=False), st.lists(scores, min_size=6))
def test_every_verdict_and_selection_agrees_with_the_model(
    rule: GatherRule, slots: int, random: Any, marks: list[float | None]
) -> None:
    state, model = opened(rule, slots), Model(rule, slots)
    order = random.sample(range(slots), slots)
    for slot in [None, *order]:
        if slot is not None and random.random() < 0.6:
            deliver(state, slot, {"slot": slot}, marks[slot])
            model.answers.append((slot, marks[slot]))
        elif slot is not None:
            model.lost[slot] = random.random() < 0.5
            lose(state, slot, excluded=model.lost[slot])
        state = decode_state(encode_state(state))
        verdict = verdict_of(state)
        expected = model.verdict()
        assert (verdict and (verdict.verdict, list(verdict.selected))) == expected
        if verdict is not None:
            break
    late = expire(gather_of(state))
    least = model._need() if rule.mode == "best_of" else 1
    if rule.partial_on_expiry and len(model.answers) >= least:
        assert (late.verdict, list(late.selected)) == ("closed", model.selected())
    assert list(select(gather_of(state))) == model.selected()
