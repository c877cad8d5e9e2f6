"""Spellings of rules that published documents use: reads that keep nothing, days from a key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.xrc137.read import read_rule
from anabranch.expressions.cel.values import CelEvalError, Uint256
from anabranch.expressions.placeholders import compile_expression

from .rules import TOKEN, Chain, carried_out

FRIEND = "0x" + "0d" * 20


def record_of(document: Any, payload: Any = None, chain: Chain | None = None) -> Any:
    return carried_out(document, payload, chain).record


def test_a_read_that_keeps_nothing_is_made_and_never_makes_a_step_invalid() -> None:
    read = {"to": TOKEN, "function": "touch()"}
    chain = Chain()
    record = record_of({"contractReads": [read]}, chain=chain)
    assert len(chain.reads) == 1
    assert record["extras"]["valid"] is True, "it failed, and nothing of it was wanted"
    _, (note,) = read_rule(json.dumps({"payload": {}, "contractReads": [read]}))
    assert (note.code, note.severity) == ("nothing-saved", "note")


def test_a_grant_may_take_its_days_from_a_key() -> None:
    grant = {"address": FRIEND, "rights": 1, "expireDays": "[Days]"}
    document = {
        "payload": {"Days": {"type": "int64"}},
        "onValid": {"grants": [grant], "logExpireDays": 9},
        "onInvalid": {"grants": [grant], "logExpireDays": 9},
    }
    record = record_of(document, {"Days": 30})
    assert record["extras"]["grants"] == [{"address": FRIEND, "rights": 1, "expireDays": 30}]
    missing = record_of(document, {})
    assert missing["extras"]["grants"][0]["expireDays"] == 9, "as long as the log"
    assert record_of(document, {"Days": 0})["error_class"] == "limit"


def test_address_reads_texts_and_numbers() -> None:
    def value(text: str, **names: object) -> object:
        return compile_expression(text).evaluate_checked(names)

    assert value("address([A]) == [A]", A=FRIEND) is True
    assert value("address(0)") == "0x" + "0" * 40
    assert value("address([N])", N=Uint256(2**160 - 1)) == "0x" + "f" * 40
    for wrong in ("'0x12'", "'nobody'", "-1", "1.5", "[[1]]"):
        with pytest.raises(CelEvalError, match="address"):
            value(f"address({wrong})")
    with pytest.raises(CelEvalError, match="20 bytes"):
        value("address([N])", N=Uint256(2**160))
