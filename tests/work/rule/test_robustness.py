"""Whatever the payload holds, a step answers; nothing but an answer comes out of the performer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import run
from .rules import Chain, performer, rule_task

DOCUMENT = {
    "payload": {
        "A": {"type": "uint256"},
        "B": {"type": "double", "default": 1},
        "C": {"type": "string", "default": "x"},
        "D": {"type": "timestamp_ms", "default": 0},
    },
    "contractReads": [
        {
            "to": "0x" + "1" * 40,
            "function": "f()",
            "saveAs": {"0": {"key": "R", "type": "int64", "default": 1}},
        }
    ],
    "rules": ["[A] * 2 > [B]", "size([C]) < 5", {"expression": "[D] == 7", "type": "abortStep"}],
    "onValid": {"payload": {"Sum": "[A] + [D]", "Text": "[C] and [R]", "Half": "[B] / 2"}},
    "onInvalid": {"payload": {"Text": "[C]", "Odd": "[A] % 2"}, "waitSec": "[D]"},
}
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**260), st.floats(), st.text(max_size=8),
    st.lists(st.integers(), max_size=2), st.just({"a": None}),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from("ABCDE"), values), st.lists(values, max_size=2))
def test_every_payload_gets_an_answer_that_can_be_written_down(
    payload: dict[str, Any], returned: list[Any]
) -> None:
    worker = performer(Chain({"f()": returned}))
    answer = run(worker.perform(rule_task(DOCUMENT, payload)))
    assert (answer.status, answer.outcome) in {("ok", "valid"), ("ok", "invalid"), ("aborted", "")}
    assert json.loads(json.dumps(answer.record, allow_nan=False))
    assert msgspec.json.encode(answer)
