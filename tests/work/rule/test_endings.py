"""What ends how: every row of the table, and the order in which a step looks at things."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel.values import Answer
from anabranch.work.rule.ports import BadAbi, CallOutcome, ExecutorUnavailable

from .rules import NOW, OWNER, RULE, TOKEN, Chain, carried_out

AMOUNT = {"Amount": {"type": "int64"}}
READ = {"to": TOKEN, "function": "f()", "saveAs": {"0": {"key": "R", "type": "uint256"}}}


def read_with(**slot: Any) -> dict[str, Any]:
    return {**READ, "saveAs": {"0": {"key": "R", "type": "uint256", **slot}}}


def calls(execution: Any, **more: Any) -> dict[str, Any]:
    return {"onValid": {"execution": execution}, **more}


def ended(answer: Answer) -> tuple[str, str, Any]:
    return answer.status, answer.outcome, answer.result


def extras(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = answer.record["extras"]
    return found


def error(answer: Answer) -> str:
    assert answer.status == "aborted", answer
    assert answer.fault is not None
    assert answer.outcome == ""
    assert answer.record["error_class"] == answer.fault.kind
    assert answer.record["error_msg"] == answer.fault.message
    return answer.fault.kind


BOTH = {"onValid": {"payload": {"Said": "yes"}}, "onInvalid": {"payload": {"Said": "no"}}}


# -- the rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_a_missing_required_input_is_invalid_and_rules_are_skipped(empty: Any) -> None:
    document = {"payload": AMOUNT, "rules": ["1 / 0 > 0"], **BOTH}
    answer = carried_out(document, {"Amount": empty})
    assert ended(answer) == ("ok", "invalid", {"Said": "no"})
    assert extras(answer)["inputsMissing"] == ["Amount"]


def test_zero_and_false_are_given() -> None:
    document = {"payload": {**AMOUNT, "Flag": {"type": "bool"}}, "rules": ["!Flag"], **BOTH}
    assert carried_out(document, {"Amount": 0, "Flag": False}).outcome == "valid"


def test_typed_rules_are_skipped_too_when_an_input_is_missing() -> None:
    document = {"payload": AMOUNT, "rules": [{"expression": "true", "type": "cancelSession"}]}
    assert carried_out(document).outcome == "invalid"


def test_a_validate_rule_that_is_false_is_invalid() -> None:
    document = {"payload": AMOUNT, "rules": ["[Amount] > 5", "true", "[Amount] > 9"], **BOTH}
    assert ended(carried_out(document, {"Amount": 10})) == ("ok", "valid", {"Said": "yes"})
    answer = carried_out(document, {"Amount": 1})
    assert ended(answer) == ("ok", "invalid", {"Said": "no"})
    assert extras(answer)["rulesFailed"] == [0, 2]


def test_a_rule_that_names_a_missing_key_is_false_even_if_it_could_be_decided() -> None:
    assert carried_out({"rules": ["true || [Nobody] > 1"]}).outcome == "invalid"


def test_a_failed_read_takes_its_default_and_goes_on() -> None:
    document = {"contractReads": [read_with(default="7")], "rules": ["[R] == 7"]}
    answer = carried_out(document, chain=Chain())
    assert ended(answer) == ("ok", "valid", {"R": "7"})
    assert extras(answer)["failures"] == ["contractReads[0]: reverted"]


def test_a_failed_read_without_default_is_invalid_though_nothing_names_it() -> None:
    answer = carried_out({"contractReads": [READ], "rules": ["true"], **BOTH}, chain=Chain())
    assert ended(answer) == ("ok", "invalid", {"Said": "no"})
    assert extras(answer)["softInvalid"] == ["R could not be had and has no default"]


def test_a_failed_extract_without_default_is_invalid_though_nothing_names_it() -> None:
    call = {
        "name": "a", "method": "GET", "contentType": "json",
        "urlTemplate": "http://127.0.0.1:1/",
        "extractMap": {"X": {"type": "bool", "value": "resp"}},
    }  # fmt: skip
    assert carried_out({"apiCalls": [call], **BOTH}).outcome == "invalid"


def test_a_missing_key_in_the_valid_payload_switches_the_whole_step() -> None:
    document = {
        "onValid": {
            "payload": {"Kept": 1, "Gone": "[Nobody]"},
            "execution": {"to": TOKEN},
            "waitSec": 9,
        },
        "onInvalid": {"payload": {"Said": "no"}, "waitSec": 5},
    }
    chain = Chain()
    answer = carried_out(document, chain=chain)
    assert ended(answer) == ("ok", "invalid", {"Said": "no"})
    assert answer.wait_ms == 5000
    assert chain.calls == []
    assert extras(answer)["softInvalid"] == ["onValid: there is no Nobody"]


@pytest.mark.parametrize(
    "execution",
    [
        {"to": "[Nobody]"},
        {"to": TOKEN, "args": [{"type": "int64", "value": "[Nobody]"}]},
        {"to": TOKEN, "value": {"type": "uint256", "value": "[Nobody] * 2"}},
    ],
)
def test_a_missing_key_in_the_valid_execution_switches_the_whole_step(execution: Any) -> None:
    document = {"onValid": {"execution": execution}, "onInvalid": {"payload": {"Said": "no"}}}
    assert ended(carried_out(document, chain=Chain())) == ("ok", "invalid", {"Said": "no"})


def test_a_missing_key_in_the_invalid_branch_drops_that_output_and_the_execution() -> None:
    branch = {
        "payload": {"Kept": 1, "Gone": "[Nobody]"},
        "execution": {"to": "[Nobody]"},
        "waitSec": "[Nobody]",
    }
    chain = Chain()
    answer = carried_out({"rules": ["false"], "onInvalid": branch}, chain=chain)
    assert ended(answer) == ("ok", "invalid", {"Kept": 1})
    assert extras(answer)["dropped"] == ["Gone", "execution", "wait"]
    assert (chain.calls, answer.wait_ms) == ([], 0)


def test_an_execution_that_reverts_flips_validity_and_calls_nothing_again() -> None:
    document = {
        "onValid": {"payload": {"Said": "yes"}, "execution": {"to": TOKEN}, "waitSec": 1},
        "onInvalid": {"payload": {"Said": "no"}, "execution": {"to": RULE}, "waitSec": 2},
    }
    chain = Chain(outcome=CallOutcome(ok=False, error="out of funds"))
    answer = carried_out(document, chain=chain)
    assert ended(answer) == ("ok", "invalid", {"Said": "no"})
    assert answer.wait_ms == 2000
    assert [call.to for call in chain.calls] == [TOKEN]
    assert (extras(answer)["execError"], answer.record["execResult"]) == ("out of funds", False)


def test_an_execution_of_the_invalid_branch_that_reverts_leaves_it_invalid() -> None:
    document = {
        "rules": ["false"],
        "onInvalid": {"payload": {"A": 1}, "execution": {"to": TOKEN}},
    }
    answer = carried_out(document, chain=Chain(outcome=CallOutcome(ok=False, error="no")))
    assert ended(answer) == ("ok", "invalid", {"A": 1})


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ("{}", "schema"),
        ('{"payload": {"A": {"type": "money"}}}', "schema"),
        ({"rules": ["true"] * 65}, "schema"),
        ({"rules": ["1 +"]}, "schema"),
        ({"rules": ["1 + 'a' == 2"]}, "expression"),
        ({"rules": ["1 / 0 > 0"]}, "expression"),
        ({"rules": ["false", "5"]}, "expression"),
        ({"rules": ["9223372036854775807 + 1 > 0"]}, "expression"),
        ({"rules": ["[Text] - 1 > 0"], "payload": {"Text": {"type": "string"}}}, "expression"),
        ({"payload": {"Big": {"type": "int64"}}}, "overflow"),
        ({"payload": {"Text": {"type": "int64"}}}, "cast"),
        ({"onValid": {"payload": {"X": "1.0 / 0.0"}}}, "expression"),
        ({"onValid": {"payload": {"X": "[from] * 2"}}}, "expression"),
        (calls({"to": "[Word]"}, payload={"Word": {"type": "string"}}), "bad_to"),
        (calls({"to": TOKEN, "args": [{"type": "int64", "value": "[from]"}]}), "cast"),
        (calls({"to": TOKEN, "value": {"type": "int64", "value": "-1"}}), "overflow"),
        ({"onValid": {"waitSec": "0 - size([from])"}}, "limit"),
        ({"onValid": {"waitSec": "[from]"}}, "cast"),
        ({"contractReads": [{**READ, "function": "bad()"}]}, "abi"),
        ({"contractReads": [{**READ, "function": "large()"}]}, "overflow"),
        ({"contractReads": [{**READ, "to": "[pid]"}]}, "bad_to"),
        ("XGR1.AESGCM256.rid.blob", "encrypted_rule"),
    ],
)  # fmt: skip
def test_a_hard_error_aborts_the_process(document: Any, kind: str) -> None:
    payload = {"Text": "abc", "Big": 2**63, "Word": "nowhere"}
    chain = Chain({"bad()": BadAbi("no such type"), "large()": [2**256]})
    answer = carried_out(document, payload, chain)
    assert error(answer) == kind
    assert chain.calls == []


def test_a_value_out_of_range_takes_the_default_of_its_field() -> None:
    slots = {
        "0": {"key": "Kept", "type": "uint256"},
        "1": {"key": "Slot", "type": "int64", "default": 5},
    }
    arg = {"type": "uint64", "value": "[Big] - [Big] - 1", "default": 9}
    document = {
        "payload": {"Big": {"type": "int256"}, "In": {"type": "int64", "default": 3}},
        "contractReads": [{"to": TOKEN, "function": "two()", "saveAs": slots}],
        **calls({"to": TOKEN, "function": "f(uint64)", "args": [arg]}),
    }
    document["onValid"]["payload"] = {"In": "[In]"}
    chain = Chain({"two()": [7, 2**255]})
    answer = carried_out(document, {"Big": 2**80, "In": 2**63}, chain)
    assert ended(answer) == ("ok", "valid", {"Kept": "7", "Slot": 5, "In": 3})
    assert [call.args for call in chain.calls] == [(9,)]
    assert extras(answer)["failures"] == [
        "input In: it is out of the range of int64, so its default is taken",
        "contractReads[0], Slot: it is out of the range of int64",
    ]


def test_an_input_that_is_no_number_is_an_error_default_or_not() -> None:
    document = {"payload": {"In": {"type": "int64", "default": 3}}}
    assert error(carried_out(document, {"In": "many"})) == "cast"


def test_an_execution_nobody_can_send_is_a_hard_error() -> None:
    for outcome, kind in ((ExecutorUnavailable("no key"), "execution"), (BadAbi("x"), "abi")):
        chain = Chain(outcome=outcome)
        answer = carried_out({"onValid": {"execution": {"to": TOKEN}}}, chain=chain)
        assert error(answer) == kind
        assert answer.record["execContract"] == TOKEN


def test_abort_step_aborts_the_process_and_does_nothing_else() -> None:
    document = {
        "rules": [{"expression": "true", "type": "abortStep"}],
        "onValid": {"execution": {"to": TOKEN}},
    }
    chain = Chain()
    answer = carried_out(document, chain=chain)
    assert error(answer) == "abort_step"
    assert chain.calls == []


def test_cancel_session_ends_the_run() -> None:
    answer = carried_out({"rules": [{"expression": "true", "type": "cancelSession"}]})
    assert answer.status == "cancel_run"
    assert answer.fault is not None
    assert answer.fault.kind == answer.record["error_class"] == "cancel_session"


def test_cancelling_comes_before_aborting_and_that_before_validating() -> None:
    cancel = {"expression": "true", "type": "cancelSession"}
    abort = {"expression": "true", "type": "abortStep"}
    assert carried_out({"rules": ["1 / 0 > 0", abort, cancel]}).status == "cancel_run"
    assert carried_out({"rules": ["1 / 0 > 0", abort]}).record["error_class"] == "abort_step"
    calm = [{**cancel, "expression": "[Nobody]"}, {**abort, "expression": "false"}]
    assert carried_out({"rules": calm}).outcome == "valid"


# -- environment and results -----------------------------------------------------------------


def test_reads_come_before_calls_and_a_later_read_may_use_an_earlier_one() -> None:
    reads = [
        {"to": TOKEN, "function": "next()", "saveAs": {"0": {"key": "To", "type": "address"}}},
        {"to": "[To]", "function": "f(uint256)", "rpc": "side",
         "args": [{"type": "uint256", "value": "[A] + 1"}],
         "saveAs": {"1": {"key": "R", "type": "uint256"},
                    "4": {"key": "S", "type": "bool", "default": True}}},
    ]  # fmt: skip
    chain = Chain({"next()": [RULE], "f(uint256)": [1, 10**30]})
    document = {
        "payload": {"A": {"type": "uint256"}},
        "contractReads": reads,
        "rules": ["[R] > [A]"],
    }
    answer = carried_out(document, {"A": str(10**20)}, chain)
    assert ended(answer) == ("ok", "valid", {"To": RULE, "R": str(10**30), "S": True})
    assert chain.reads[1] == {
        "to": RULE, "args": [10**20 + 1], "types": {1: "uint256", 4: "bool"}, "rpc": "side",
    }  # fmt: skip
    assert type(chain.reads[1]["args"][0]) is int


def test_only_the_slot_whose_cast_fails_takes_its_default() -> None:
    saves = {
        "0": {"key": "A", "type": "address", "default": TOKEN},
        "1": {"key": "B", "type": "int64", "default": 9},
    }
    document = {"contractReads": [{"to": TOKEN, "function": "f()", "saveAs": saves}]}
    answer = carried_out(document, chain=Chain({"f()": ["0x12", 5]}))
    assert answer.result == {"A": TOKEN, "B": 5}


def test_outputs_do_not_see_each_other_and_saved_values_are_weaker_than_outputs() -> None:
    document = {
        "payload": AMOUNT,
        "contractReads": [read_with(default=1)],
        "onValid": {"payload": {"Amount": "[Amount] + 1", "Next": "[Amount] + 2", "R": "[R] + 1"}},
    }
    answer = carried_out(document, {"Amount": 5, "Other": "not declared"}, Chain())
    assert answer.result == {"R": "2", "Amount": 6, "Next": 7}


def test_engine_names_are_there_and_declared_inputs_win_over_the_short_ones() -> None:
    payload = {"a": "[from]", "b": "[pid]", "c": "[__sessionId]", "d": "[__pid]", "e": "[__stepId]",
               "f": "[__iteration]"}  # fmt: skip
    expected = {"a": OWNER, "b": "17:3", "c": "17", "d": "17:3", "e": "Check", "f": 3}
    assert carried_out({"onValid": {"payload": payload}}).result == expected
    document = {"payload": {"from": {"type": "string"}}, "onValid": {"payload": {"a": "[from]"}}}
    assert carried_out(document, {"from": "me"}).result == {"a": "me"}


@pytest.mark.parametrize(
    ("branch", "milliseconds"),
    [
        ({}, 0), ({"waitSec": 0}, 0), ({"waitSec": 90}, 90_000),
        ({"waitSec": "size([from]) - 40"}, 2000),
        ({"waitMs": 1500}, 1500), ({"waitUntilMs": NOW + 250}, 250), ({"waitUntilMs": NOW - 9}, 0),
        ({"waitSec": 5, "waitUntilMs": NOW + 1}, 1),
    ],
)  # fmt: skip
def test_the_wait_of_the_branch_is_put_on_what_follows(branch: Any, milliseconds: int) -> None:
    assert carried_out({"onValid": branch}).wait_ms == milliseconds


def test_a_call_is_resolved_with_the_key_of_the_process() -> None:
    document = {
        "payload": {"A": {"type": "uint256"}},
        "onValid": {
            "execution": {
                "to": TOKEN,
                "function": "pay(uint256,string)",
                "args": [
                    {"type": "uint256", "value": "[A] * 2"},
                    {"type": "string", "value": "[Nobody]", "default": "none"},
                ],
                "value": {"type": "uint256", "value": "[A]"},
                "gas": {"limit": 50000},
            }
        },
    }
    chain = Chain()
    answer = carried_out(document, {"A": 10**20}, chain)
    (call,) = chain.calls
    assert (call.args, call.value) == ((2 * 10**20, "none"), 10**20)
    assert (call.function, call.gas_limit, call.key) == ("pay(uint256,string)", 50000, "17:3")
    assert answer.record["execContract"] == TOKEN
    assert answer.record["execResult"] is True
    assert extras(answer)["execTx"] == "0xbeef"
