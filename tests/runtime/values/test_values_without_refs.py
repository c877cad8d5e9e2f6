"""A value in which nothing stands for another is not gone through part by part."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import ContextPatch, succeeded
from anabranch.runtime.values import payloads
from anabranch.runtime.values.payloads import brings_ref
from anabranch.work.values.payloads import KIND, PLACE, REF, containers, holds_ref

PLAIN = {"rows": [{"n": number, "tags": ["a", "b"]} for number in range(100)]}
A_REF = {REF: {"kind": KIND, "ref": PLACE + "0" * 64, "bytes": 9}}


def bringing(value: Any) -> list[s.Stimulus]:
    return [
        s.Start(run="r", input={"given": value}),
        s.PatchContext((ContextPatch("k", value),)),
        s.Wake(1, payload={"given": value}),
        s.Skip("step", answered=True, result=value),
        s.JobReport("1.0", 1, succeeded(value)),
        s.JobReport("1.0", 1, succeeded(1, patches=(ContextPatch("k", value),))),
    ]


def test_what_holds_no_ref_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []

    def walk(value: Any) -> bool:
        walked.append(value)
        return False

    monkeypatch.setattr(payloads, "holds_ref", walk)
    assert not any(map(brings_ref, bringing(PLAIN)))
    assert walked == []


def test_a_ref_is_found_wherever_it_stands() -> None:
    assert all(map(brings_ref, bringing({"rows": [1, "two", [None, A_REF]]})))
    said = {"rows": [1, KIND, [None, {REF: "no place"}]]}
    assert not any(map(brings_ref, bringing(said))), "somebody only writes the word"


def test_of_many_numbers_and_texts_none_is_looked_into() -> None:
    assert containers([1, 2.5, "three", None, True]) == ()
    assert containers({"a": [], "b": 1, "c": {}}.values()) == [[], {}]
    assert holds_ref([1, [2, A_REF]])
