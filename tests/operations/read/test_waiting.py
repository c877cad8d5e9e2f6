"""Who can move an unfinished run, in words: commands that can be copied into a shell, or names."""

from __future__ import annotations

import pytest

from anabranch.kernel.explain import Mover, SlotState, Unfinished
from anabranch.operations.read.waiting import Waiting, in_words, is_command, worded


@pytest.mark.parametrize(
    ("mover", "words"),
    [
        (Mover("resume", "r1"), "anabranch resume r1"),
        (Mover("patch", "r1"), "anabranch patch r1 KEY=VALUE"),
        (Mover("decide", "r1", ("gate-2", "fulfil")), "anabranch decide r1 gate-2 --fulfil"),
        (Mover("decide", "r1", ("gate-2", "ask_again")), "anabranch decide r1 gate-2 --ask-again"),
        (
            Mover("decide", "r1", ("gate-2", "override", "fulfil")),
            "anabranch decide r1 gate-2 --override --fulfil",
        ),
        (Mover("worker", "gpu"), "anabranch worker --pool gpu"),
    ],
)
def test_a_verb_is_worded_as_a_command(mover: Mover, words: str) -> None:
    assert (in_words(mover), is_command(mover)) == (words, True)


def test_a_name_stays_as_it_is_even_one_that_reads_like_a_command() -> None:
    for name in ("the engine", "step a", "anabranch decide r1"):
        assert (in_words(Mover("", name)), is_command(Mover("", name))) == (name, False)
    assert in_words(Mover("wake", "r1", ("2",))) == "a wake-up"
    assert not is_command(Mover("wake", "r1", ("2",)))


def test_everything_else_is_told_as_the_kernel_says_it() -> None:
    slots = (SlotState("a", "any", "open", ("2 at a",)),)
    told = ("job", "1.0", "a", "an answer", 1, 2)
    found = worded(Unfinished(*told, (Mover("", "time"),), slots, "gpu"))
    assert found == Waiting(*told, ("time",), slots, "gpu")
