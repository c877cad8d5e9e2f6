"""What is given to a run is held against its definition once, however many inputs there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.net.inputs import Input
from anabranch.net.net import Net, Step
from anabranch.operations.definitions.input_check import LETTERS_SHOWN, require_input

MANY = 300


class Looked(tuple[Input, ...]):
    """Inputs that count how often somebody goes through them."""

    times = 0

    def __iter__(self) -> Iterator[Input]:
        type(self).times += 1
        return super().__iter__()


def wanting(inputs: tuple[Input, ...], workload: dict[str, Any]) -> Net:
    return Net(
        name="many",
        dialect="test",
        fingerprint="many",
        steps={"only": Step("only")},
        entry="only",
        inputs=inputs,
        workload=workload,
    )


def test_inputs_are_gone_through_a_few_times_and_not_once_for_each_name() -> None:
    names = [f"n{number}" for number in range(MANY)]
    inputs = Looked(Input(name, "integer") for name in names)
    net = wanting(inputs, dict.fromkeys(names, 1) | {"more": 1})
    Looked.times = 0
    require_input(net, dict.fromkeys(names, 2) | {"more": 2}, extra=True)
    assert Looked.times < 10
    with pytest.raises(InputError, match="the default of the input 'more' is 1"):
        require_input(net, {"more": "many"}, extra=True)


def test_of_a_large_value_that_is_refused_no_more_is_read_than_is_shown() -> None:
    class Long(list[int]):
        read = 0

        def __iter__(self) -> Iterator[int]:
            for each in range(1_000_000):
                type(self).read += 1
                yield each

    net = wanting((Input("n", "integer"),), {})
    with pytest.raises(InputError, match=r"not \[0, 1, 2"):
        require_input(net, {"n": Long([1])}, extra=True)
    assert Long.read <= LETTERS_SHOWN
