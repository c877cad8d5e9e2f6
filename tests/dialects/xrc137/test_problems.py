"""Whatever is wrong with a rule document is refused with its place and the change that mends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.xrc137.read import read_rule
from anabranch.net.problems import CODES, Problem

CALL: dict[str, Any] = {
    "name": "a",
    "method": "GET",
    "urlTemplate": "http://x.test",
    "contentType": "json",
    "extractMap": {},
}
READ: dict[str, Any] = {"to": "0x" + "1" * 40, "function": "f()", "saveAs": {}}


def problems(document: Any) -> tuple[Problem, ...]:
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    found, listed = read_rule(text)
    errors = [problem for problem in listed if problem.severity == "error"]
    assert (found is None) == bool(errors)
    return listed


def rule(**parts: Any) -> dict[str, Any]:
    return {"payload": {}, **parts}


def call(**parts: Any) -> dict[str, Any]:
    return rule(apiCalls=[{**CALL, **parts}])


def extract(given: Any) -> dict[str, Any]:
    return call(extractMap={"A": given})


def read(**parts: Any) -> dict[str, Any]:
    return rule(contractReads=[{**READ, **parts}])


def branch(**parts: Any) -> dict[str, Any]:
    return rule(onValid=parts)


NAMED = dict.fromkeys([f"k{n}" for n in range(65)], 1)
WAKE = {"runner": "0x", "sessionId": "1", "stepId": "A"}
ADDRESS = "0x" + "1" * 40
SAVES_B = {"0": {"key": "B", "type": "address"}}
ARG = {"type": "int64", "value": "1"}


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        # the text
        (b"\xff\xfe", "not-utf8", "UTF-8"),
        ("[]", "wrong-type", "a mapping"),
        ("{", "syntax", "ends too early"),
        ("{'payload': {}}", "syntax", "double quotes"),
        ('{"payload": {}, "payload": {}}', "duplicate-key", "again"),
        ('{"payload": NaN}', "syntax", "a value is expected"),
        ('{"payload": {"A": {"type": "double", "default": 1e999}}}', "bad-value", "too large"),
        ("XGR1.AESGCM256.abc.def", "encrypted-rule", "decryptor"),
        (" " * 131_073, "too-large", "131,072"),
        # the top
        ({}, "missing-key", "no `payload`"),
        (rule(rule=[]), "unknown-key", "did you mean 'rules'"),
        (rule(onvalid={}), "unknown-key", "did you mean 'onValid'"),
        (rule(rules={}), "wrong-type", "a list"),
        (rule(payload=[]), "wrong-type", "a mapping"),
        # inputs
        (rule(payload={"A": {}}), "missing-key", "no `type`"),
        (rule(payload={"A": {"type": "int"}}), "bad-choice", "did you mean"),
        (rule(payload={"A": {"type": "int64", "default": "x"}}), "bad-value", "no int64"),
        (rule(payload={"A": {"type": "uint64", "default": -1}}), "bad-value", "out of the range"),
        (rule(payload={"A": {"type": "int64", "value": 1}}), "unknown-key", "'value'"),
        (rule(payload={"A-B": {"type": "int64"}}), "bad-name", "letters, digits"),
        (rule(payload={"in": {"type": "int64"}}), "bad-name", "expression language"),
        (rule(payload={"A" * 65: {"type": "int64"}}), "bad-name", "at most 64"),
        (rule(payload={key: {"type": "bool"} for key in NAMED}), "too-many", "65, where 64"),
        # rules
        (rule(rules=["1 +"]), "bad-expression", "character 4"),
        (rule(rules=["medain([1]) > 0"]), "bad-expression", "did you mean median"),
        (rule(rules=[5]), "wrong-type", "an expression in quotes"),
        (rule(rules=["true"] * 65), "too-many", "65, where 64"),
        (rule(rules=["'" + "x" * 1030 + "' == ''"]), "too-large", "1024"),
        (rule(rules=[{"expression": "true", "type": "abort"}]), "bad-choice", "did you mean"),
        (rule(rules=[{"type": "validate"}]), "missing-key", "`expression`"),
        (rule(rules=[{"expression": "true", "kind": "x"}]), "unknown-key", "'kind'"),
        # reads
        (read(to=None), "missing-key", "`to`"),
        (read(function=None), "missing-key", "balanceOf"),
        (read(function="balance"), "bad-value", "no signature"),
        (read(saveAs={"x": {"key": "A", "type": "bool"}}), "bad-key", 'count from "0"'),
        (read(saveAs={"0": {"type": "bool"}}), "missing-key", "`key`"),
        (read(saveAs={"0": {"key": "A", "type": "tuple"}}), "bad-choice", "no type"),
        (read(saveAs={str(n): {"key": "A", "type": "bool"} for n in range(2)}),
         "duplicate-label", "there already"),
        (read(saveAs={str(n): {"key": f"A{n}", "type": "bool"} for n in range(65)}),
         "too-many", "65, where 64"),
        (read(args=[{"type": "int64"}]), "missing-key", "`value`"),
        (read(args=[{"type": "int64", "value": "1", "expr": "1"}]), "conflicting-keys", "`expr`"),
        (read(args=[{"type": "int64", "value": "[A] * ("}]), "bad-expression", "args[0]"),
        (read(arg=[]), "unknown-key", "did you mean 'args'"),
        (rule(contractReads=[READ] * 17), "too-many", "17, where 16"),
        # calls
        (call(method="DELETE"), "bad-choice", "GET"),
        (call(method=None), "missing-key", "`method`"),
        (call(contentType="xml"), "bad-choice", "json"),
        (call(contentType=None), "missing-key", "json"),
        (call(name=None), "missing-key", "`name`"),
        (call(name="a b"), "bad-name", "a call"),
        (call(urlTemplate=None), "missing-key", "`urlTemplate`"),
        (call(urlTemplate=5), "wrong-type", "text"),
        (call(urlTemplate="http://x/" + "y" * 2048), "too-large", "2048"),
        (call(bodyTemplate="y" * 8193), "too-large", "8192"),
        (call(headers={"a b": "c"}), "bad-name", "header"),
        (call(timeoutMs=0), "bad-number", "from 1"),
        (call(timeoutMs="8s"), "wrong-type", "a whole number"),
        (call(extractMap=None), "missing-key", "`extractMap`"),
        (call(extractMap=NAMED), "too-many", "65, where 64"),
        (call(urltemplate="x"), "unknown-key", "did you mean 'urlTemplate'"),
        (rule(apiCalls=[CALL, CALL]), "duplicate-label", "'a'"),
        (rule(apiCalls=[{**CALL, "name": f"c{n}"} for n in range(17)]), "too-many", "17, where 16"),
        (rule(apiCalls=[{**CALL, "name": n, "extractMap": {"X": {"type": "bool", "value": "true"}}}
                        for n in "ab"]), "duplicate-label", "'X'"),
        (extract({"type": "double", "value": "resp.", "default": 1}), "bad-expression", "a name"),
        (extract({"type": "double", "value": "resp.a", "expr": "resp.b"}), "conflicting-keys", ""),
        (extract({"type": "double"}), "missing-key", "`value`"),
        (extract({"type": "double", "value": "resp.a", "save": "no"}), "wrong-type", "true or"),
        (extract({"type": "double", "value": "resp.a", "defualt": 1}), "unknown-key", "'default'"),
        # branches
        (branch(payload=NAMED), "too-many", "65, where 64"),
        (branch(payload={"a b": 1}), "bad-name", "an output"),
        (branch(payload={"A": "[from] * ("}), "bad-expression", "onValid.payload.A"),
        (branch(execution={"to": "somewhere"}), "bad-value", "40 hexadecimal"),
        (branch(execution={"to": ADDRESS, "args": [ARG] * 17}), "too-many", "17, where 16"),
        (branch(execution={"to": ADDRESS, "value": 5}), "wrong-type", "a mapping"),
        (branch(execution={"to": ADDRESS, "gas": {"limit": -1}}), "bad-number", "from 0"),
        (branch(execution={"to": ADDRESS, "gasLimit": 1}), "unknown-key", "'gasLimit'"),
        (branch(waitSec=-1), "bad-number", "-1"),
        (branch(waitSec=1.5), "wrong-type", "whole number"),
        (branch(waitSec=1, waitMs=2), "conflicting-keys", "keep `waitSec`"),
        (branch(grants=[{"address": ADDRESS, "rights": 8}]), "bad-number", "from 1 to 7"),
        (branch(grants=[{"address": ADDRESS}]), "missing-key", "READ 1"),
        (branch(grants=[{"rights": 1}]), "missing-key", "`address`"),
        (branch(grants=[{"address": ADDRESS, "rights": 1}] * 17), "too-many", "17, where 16"),
        (branch(wakeUps=[{"runner": "0x"}]), "missing-key", "`sessionId`"),
        (branch(wakeUps=[WAKE] * 17), "too-many", "17, where 16"),
        (branch(encryptLogs="yes"), "wrong-type", "true or false"),
        (branch(logExpireDays=0), "bad-number", "from 1"),
        (branch(payload={"A": "x" * 8193}), "too-large", "8192"),
        (branch(wait=5), "unknown-key", "did you mean"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_a_hint(document: Any, code: str, words: str) -> None:
    found = [problem for problem in problems(document) if problem.severity == "error"]
    matching = [problem for problem in found if problem.code == code and words in str(problem)]
    assert matching, "\n".join(map(str, found))
    assert all(problem.hint for problem in matching if problem.code not in ("syntax",))
    assert all(problem.code in CODES for problem in found)


def test_every_problem_is_reported_at_once_and_in_order() -> None:
    text = '{\n "payload": {"A": {"type": "text"}},\n "rules": ["1 +"],\n "onvalid": {}\n}'
    places = [(each.position.line, each.code) for each in problems(text)]
    assert places == [(2, "bad-choice"), (3, "bad-expression"), (4, "unknown-key")]


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (rule(rules=["[Amuont] > 0"], payload={"Amount": {"type": "int64"}}),
         "unknown-name", "did you mean 'Amount'"),
        (call(urlTemplate="http://x.test/[Later]"), "unknown-name", "'Later'"),
        (rule(contractReads=[{**READ, "to": "[B]"}, {**READ, "saveAs": SAVES_B}]),
         "unknown-name", "nothing before it sets"),
        (branch(payload={"Why": "value > limit"}), "text-candidate", "taken as text"),
        (branch(payload={"Half": "1/2"}), "text-candidate", "computed"),
        (rule(rules=["'a'.matches('{2}')"]), "bad-pattern", "there is nothing to repeat"),
        (rule(rules=["true || [from].matches('(?=a)')"]), "bad-pattern", "look-around"),
    ],
)  # fmt: skip
def test_what_is_only_suspicious_is_a_warning(document: Any, code: str, words: str) -> None:
    found = problems(document)
    assert [problem.code for problem in found] == [code]
    assert words in str(found[0])
    assert found[0].severity == "warning"


def test_limits_are_kept_at_their_edge() -> None:
    inputs = {f"k{n}": {"type": "bool"} for n in range(64)}
    outputs = {f"k{n}": 1 for n in range(64)}
    at_limit = rule(
        payload=inputs, rules=["true"] * 64, onValid={"payload": outputs},
        contractReads=[READ] * 16, apiCalls=[{**CALL, "name": f"c{n}"} for n in range(16)],
    )  # fmt: skip
    assert problems(at_limit) == ()
