"""A rule document is read whole, with every part compiled and cast."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.nodes import Fields
from anabranch.dialects.source import read_source
from anabranch.dialects.xrc137.document import RuleBranch, RuleDocument
from anabranch.dialects.xrc137.read import read_rule, rule_from
from anabranch.expressions.cel.values import Uint256

TOKEN = "0x" + "ab" * 20
FULL: dict[str, Any] = {
    "payload": {
        "Amount": {"type": "uint256"},
        "Asset": {"type": "string", "default": "eth"},
        "Limit": {"type": "uint256", "default": "1000000000000000000000"},
        "Target": {"type": "address"},
    },
    "contractReads": [
        {
            "to": TOKEN,
            "function": "balanceOf(address)(uint256)",
            "args": [{"type": "address", "value": "[Target]"}],
            "saveAs": {"0": {"key": "Balance", "type": "uint256", "default": 0}},
            "rpc": "main",
        },
        {
            "to": "[Target]",
            "function": "decimals()",
            "saveAs": {"0": {"key": "Dec", "type": "int64"}},
        },
    ],
    "apiCalls": [
        {
            "name": "price",
            "method": "POST",
            "urlTemplate": "https://api.test/[Asset]/price",
            "contentType": "json",
            "headers": {"X-Key": "[Asset]"},
            "bodyTemplate": '{"a": "[Asset]", "d": [Dec]}',
            "timeoutMs": 2500,
            "extractMap": {
                "Price": {"type": "double", "value": "resp.data[[0]].price", "default": "1.5"},
                "Twice": {"type": "double", "value": "[Price] * 2.0", "save": False},
            },
        }
    ],
    "rules": [
        "[Amount] > 0",
        {"expression": "[Amount] <= [Limit]"},
        {"expression": "[Price] < 0.0", "type": "abortStep"},
        {"expression": "[Asset] == 'stop'", "type": "cancelSession"},
    ],
    "onValid": {
        "payload": {
            "Total": "double([Balance]) * [Price]",
            "Note": "paid for [Asset]",
            "Copy": "[Amount]",
            "Fixed": {"nested": ["[Amount]", 1]},
            "Count": 3,
        },
        "execution": {
            "to": "[Target]",
            "function": "pay(uint256)",
            "args": [{"type": "uint256", "value": "[Amount]"}],
            "value": {"type": "uint256", "value": "0"},
            "gas": {"limit": 90000},
            "extras": {"tag": "x"},
        },
        "waitSec": "[Dec] * 60",
        "wakeUps": [
            {"runner": TOKEN, "sessionId": "17", "stepId": "Next", "payload": {"From": "[pid]"}}
        ],
        "grants": [{"address": "[from]", "rights": 5, "expireDays": 30}],
        "encryptLogs": True,
        "logExpireDays": 90,
    },
    "onInvalid": {"payload": {"Reason": "not now"}, "waitSec": 60},
}


def read(document: Any) -> RuleDocument:
    found, problems = read_rule(json.dumps(document))
    assert found is not None, "\n".join(map(str, problems))
    return found


def test_a_full_document_has_no_problem() -> None:
    document, problems = read_rule(json.dumps(FULL).encode())
    assert problems == ()
    assert document is not None


def test_inputs_keep_their_type_and_their_cast_default() -> None:
    amount, asset, limit, _ = read(FULL).inputs
    assert (amount.name, amount.type, amount.required) == ("Amount", "uint256", True)
    assert asset.default is not None
    assert asset.default.value == "eth"
    assert limit.default is not None
    assert type(limit.default.value) is Uint256


def test_reads_keep_signature_arguments_slots_and_endpoint() -> None:
    first, second = read(FULL).reads
    assert (first.function, first.rpc) == ("balanceOf(address)(uint256)", "main")
    assert first.args[0].value.sort == "copy"
    assert [(slot.index, slot.key, slot.type) for slot in first.slots] == [
        (0, "Balance", "uint256")
    ]
    assert second.rpc is None


def test_calls_keep_templates_and_extracts_in_document_order() -> None:
    (call,) = read(FULL).calls
    assert (call.method, call.timeout_ms, call.url.placeholders) == ("POST", 2500, 1)
    assert [each.alias for each in call.extracts] == ["Price", "Twice"]
    assert [each.save for each in call.extracts] == [True, False]
    assert call.extracts[0].default is not None
    assert call.extracts[0].default.value == 1.5
    assert call.extracts[1].value.names == {"Price"}


def test_rules_have_their_kinds() -> None:
    kinds = [rule.kind for rule in read(FULL).rules]
    assert kinds == ["validate", "validate", "abortStep", "cancelSession"]


def test_branches_hold_values_execution_wait_wake_ups_and_grants() -> None:
    branch = read(FULL).on_valid
    assert {key: value.sort for key, value in branch.payload.items()} == {
        "Total": "expression",
        "Note": "text",
        "Copy": "copy",
        "Fixed": "literal",
        "Count": "literal",
    }
    assert branch.payload["Fixed"].evaluate({}) == {"nested": ["[Amount]", 1]}
    assert branch.execution is not None
    assert (branch.execution.function, branch.execution.gas_limit) == ("pay(uint256)", 90000)
    assert branch.execution.extras == {"tag": "x"}
    assert branch.wait is not None
    assert (branch.wait.unit, branch.wait.value.sort) == ("seconds", "expression")
    assert branch.wake_ups[0].step.evaluate({}) == "Next"
    (grant,) = branch.grants
    assert grant.expire_days is not None
    assert (grant.rights, grant.expire_days.evaluate({})) == (5, 30)
    assert (branch.encrypt_logs, branch.log_expire_days) == (True, 90)


def test_what_is_left_out_is_empty() -> None:
    document = read({"payload": {}})
    assert document == RuleDocument()
    assert document.on_valid == RuleBranch()
    assert document.on_valid.encrypt_logs is None


def test_metadata_of_bundles_and_deploy_tools_is_stripped() -> None:
    wrapped = {"id": 1, "bundleId": "b", "meta": {"x": 1}, "name": "n", "address": TOKEN,
               "contractId": "c", "payload": {}}  # fmt: skip
    document, problems = read_rule(json.dumps(wrapped))
    assert document == RuleDocument()
    assert problems == ()


def test_the_outputs_of_a_document_are_what_a_step_may_hand_on() -> None:
    expected = {"Balance", "Dec", "Price", "Total", "Note", "Copy", "Fixed", "Count", "Reason"}
    assert read(FULL).outputs == expected


def test_a_rule_inside_another_document_keeps_its_places() -> None:
    text = '{"rules": {\n  "one": {"payload": {}, "rulez": []}}}'
    outer = read_source(text, file="bundle.json").root
    assert isinstance(outer, Fields)
    rules = outer.fields["rules"]
    assert isinstance(rules, Fields)
    one = rules.fields["one"]
    assert isinstance(one, Fields)
    document, (problem,) = rule_from(one)
    assert document is None
    assert str(problem).startswith("bundle.json:2:26: unknown-key:")
    assert "did you mean 'rules'?" in str(problem)


@pytest.mark.parametrize("to", ["", None])
def test_an_execution_without_a_target_is_none(to: str | None) -> None:
    document = read({"payload": {}, "onValid": {"execution": {"to": to, "function": "f()"}}})
    assert document.on_valid.execution is None


def old_spellings(document: Any) -> list[str]:
    found, problems = read_rule(json.dumps(document))
    assert found is not None, problems
    assert {problem.severity for problem in problems} == {"warning"}
    return [problem.message for problem in problems if problem.code == "old-spelling"]


def test_old_spellings_work_and_are_told() -> None:
    call = {
        "name": "a",
        "method": "get",
        "urlTemplate": "http://x.test",
        "contentType": "json",
        "extractMap": {"A": {"type": "string", "expr": "resp.a"}, "B": "resp.b"},
    }
    assert len(old_spellings({"payload": {}, "apiCalls": [call]})) == 2
    assert len(old_spellings({"payload": {}, "onValid": {"waitMs": 1500}})) == 1
    assert len(old_spellings({"payload": {}, "onInvalid": {"waitUntilMs": 1700000000000}})) == 1


def test_an_instant_to_wait_until_is_preferred() -> None:
    branch = read({"payload": {}, "onValid": {"waitSec": 5, "waitUntilMs": 99}}).on_valid
    assert branch.wait is not None
    assert (branch.wait.unit, branch.wait.value.evaluate({})) == ("until", 99)


def test_an_old_extract_without_a_type_is_kept_as_it_comes() -> None:
    call = {"name": "a", "method": "GET", "urlTemplate": "http://x.test", "contentType": "json",
            "extractMap": {"B": "resp.b"}}  # fmt: skip
    document = read({"payload": {}, "apiCalls": [call]})
    assert document.calls[0].extracts[0].type == ""
