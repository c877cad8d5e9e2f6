"""Work that nobody waits for any more ends at its next look."""

from __future__ import annotations

import pytest

from anabranch import cancel
from anabranch.cancel import Abandoned, cancellable
from anabranch.dialects.registry import compile_source
from anabranch.net.draw import svg

from .families import built, ladder, playbook


class Looks:
    """Gives up after so many looks, and counts those after that."""

    def __init__(self, patience: int) -> None:
        self.left = patience
        self.after = 0

    def __call__(self) -> bool:
        self.left -= 1
        if self.left >= 0:
            return False
        self.after += 1
        return True


@pytest.mark.parametrize("patience", [0, 1, 100, 400, 700])
def test_a_check_ends_at_its_next_look(patience: int) -> None:
    text = playbook(ladder(60))
    looks = Looks(patience)
    with cancellable(looks), pytest.raises(Abandoned):
        compile_source(text)
    assert looks.after == 1


def test_a_drawing_ends_at_its_next_look() -> None:
    looks = Looks(3)
    with cancellable(looks), pytest.raises(Abandoned):
        svg(built(ladder(30)))
    assert looks.after == 1


def test_nobody_is_asked_outside() -> None:
    looks = Looks(0)
    with cancellable(looks):
        pass
    cancel.poll()
    assert looks.after == 0
