"""The JSON Schemas say of a definition what its reader says, as far as one place can tell."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tools import keyword_docs

from anabranch.dialects.durations import PATTERN, parse_duration
from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields, plain
from anabranch.dialects.noetl.respell.playbook import respelled
from anabranch.dialects.noetl.tasks.keys import KINDS
from anabranch.dialects.port import ToolSignature
from anabranch.dialects.schema import DOCS, LANGUAGES, schema_of
from anabranch.dialects.schema import keyword_docs as kept_docs
from anabranch.dialects.source import read_source
from seeds import SHARE, seeds

from .schema_cases import UNREAD, Definition, Judge, accepted, errors_of, judge, problems_of
from .schema_probes import probes

pytestmark = pytest.mark.slow

EVERY_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)
#: Complaints about a value itself, and not about what it refers to.
OF_THE_SHAPE = {"wrong-type", "bad-choice", "bad-number", "bad-duration", "unknown-key"}
CHANGES = 4_000 if SHARE < 1 else 10_000  # of which a test run takes a part


def of(language: str) -> list[Definition]:
    return [each for each in accepted() if each.language == language]


# -- definitions -----------------------------------------------------------------------------


@EVERY_LANGUAGE
def test_it_is_a_schema(language: str) -> None:
    schema = schema_of(language)
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    used = set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)))
    assert used <= schema["$defs"].keys()
    assert json.loads(json.dumps(schema)) == schema


def test_there_are_definitions_of_every_language() -> None:
    counts = Counter(each.language for each in accepted())
    least = {"noetl": 400, "arca": 35, "xrc729": 15, "xrc137": 20}
    assert {name: counts[name] >= number for name, number in least.items()} == dict.fromkeys(
        least, True
    ), counts


@EVERY_LANGUAGE
def test_every_definition_that_the_reader_takes_is_valid(language: str) -> None:
    refused = [
        f"{each.name}: {judge(language).told(each.document)}"
        for each in of(language)
        if not judge(language).takes(each.document)
    ]
    assert refused == []


def test_a_definition_is_not_valid_in_another_language() -> None:
    for each in accepted():
        others = [name for name in LANGUAGES if name != each.language]
        assert [name for name in others if judge(name).takes(each.document)] == [], each.name


# -- wrong ones ------------------------------------------------------------------------------

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: quotes, labels: {team: blue}}
executor: {profile: local, spec: {on_failure: handled, deadline: 1h, join: each}}
keychain: [{name: api, kind: env, variable: TOKEN}]
workload: {item: anchor}
workbook: {tasks: {hello: {kind: noop, result: hi}}}
workflow:
  - step: ask
    desc: asks
    spec:
      timeout: 30s
      retry: {attempts: 3, delay: 1s, backoff: exponential}
      policy: {admit: {rules: [{when: "{{ workload.item }}", then: {allow: true}}]}}
    loop: {in: [1, 2], iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool:
      - name: get
        kind: http
        url: "https://shop.example/"
        timeout: {connect: 1s, total: 5s}
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry}}]}}
      - {kind: python, code: "result = 1", set_ctx: {total: {reduce: sum, value: 1}}}
    next: {spec: {mode: exclusive}, arcs: [{step: tell, when: "{{ true }}", args: {a: 1}}]}
  - step: tell
    tool: {kind: decision, ask: "Go?", actors: [kim], on_reject: pause}
"""
ORCHESTRATION = """
{"id": "second", "structure": {
  "A": {"rule": "cm:xrc137:A", "onValid": {"spawns": ["B", "C"],
        "join": {"joinid": "J", "mode": "kofn", "k": 2, "waitonjoin": "kill",
                 "from": [{"node": "B", "when": "valid"}, {"node": "C"}]}}},
  "B": {"rule": "cm:xrc137:A"}, "C": {"rule": "cm:xrc137:A"}, "J": {"rule": "cm:xrc137:A"}}}
"""
RULE = """
{"payload": {"Amount": {"type": "uint256", "default": "5"}},
 "contractReads": [{"to": "0x00000000000000000000000000000000000000aa", "function": "f()(uint256)",
                    "saveAs": {"0": {"key": "Got", "type": "uint256"}}}],
 "apiCalls": [{"name": "price", "method": "GET", "urlTemplate": "https://x.example/[Amount]",
               "contentType": "json",
               "extractMap": {"Price": {"type": "double", "value": "resp.p"}}}],
 "rules": ["[Amount] > 0", {"expression": "[Price] > 0.0", "type": "abortStep"}],
 "onValid": {"payload": {"Note": "sold"}, "waitSec": 60}}
"""
WORKFLOW = """
{"workflow_id": "cheapest", "deadline": "PT5M", "input": {"text": "x"}, "plan": {"steps": [
  {"step_id": "ask", "service_type": "text/summarise", "input": {"text": "{{input.text}}"},
   "target": {"resolve": "static", "participants": ["a", "b"], "limit": 2},
   "fan_in": {"policy": "best_of", "score_field": "/price", "score_order": "asc"},
   "timing": {"timeout": "PT30S", "retry": {"max_attempts": 1}, "on_timeout": "fail"}},
  {"step_id": "pay", "service_type": "pay", "input_from": "ask", "max_retries": 2,
   "fulfillment": {"policy": "output_match",
                   "result_match": {"path": "/ok", "fulfilled_values": [true]}}}]}}
"""
GOOD = {"noetl": PLAYBOOK, "xrc729": ORCHESTRATION, "xrc137": RULE, "arca": WORKFLOW}
GONE = "(taken away)"

#: Language, place, and what is put there.
WRONG: list[tuple[str, str, Any]] = [
    ("noetl", "workflow", GONE),
    ("noetl", "workflow", []),
    ("noetl", "workflow", {}),
    ("noetl", "apiVersion", "v1"),
    ("noetl", "kind", "Flow"),
    ("noetl", "vars", {"a": 1}),
    ("noetl", "worklod", {"a": 1}),
    ("noetl", "rows", 5),
    ("noetl", "metadata.labels", "blue"),
    ("noetl", "executor.profil", "local"),
    ("noetl", "executor.spec.on_failure", "ignore"),
    ("noetl", "executor.spec.deadline", "soon"),
    ("noetl", "executor.spec.fail_fast", "yes"),
    ("noetl", "keychain.0.kind", "vault"),
    ("noetl", "keychain.0.variable", GONE),
    ("noetl", "keychain.0.name", "a b"),
    ("noetl", "workbook", {"task": {}}),
    ("noetl", "workflow.0.step", GONE),
    ("noetl", "workflow.0.tols", {"kind": "noop"}),
    ("noetl", "workflow.0.eval", [{"when": "x"}]),
    ("noetl", "workflow.0.spec.timout", "30s"),
    ("noetl", "workflow.0.spec.timeout", "half an hour"),
    ("noetl", "workflow.0.spec.timeout", -1),
    ("noetl", "workflow.0.spec.args", {"a": 1}),
    ("noetl", "workflow.0.spec.on_timeout", "explode"),
    ("noetl", "workflow.0.spec.retry.attempts", 0),
    ("noetl", "workflow.0.spec.retry.attempt", 3),
    ("noetl", "workflow.0.spec.policy.admit.rules", []),
    ("noetl", "workflow.0.spec.policy.admit.rules.0.then.allow", "maybe"),
    ("noetl", "workflow.0.loop.in", "a list"),
    ("noetl", "workflow.0.loop.in", GONE),
    ("noetl", "workflow.0.loop.iterator", "ctx"),
    ("noetl", "workflow.0.loop.spec.mode", "random"),
    ("noetl", "workflow.0.loop.spec.max_in_flight", 0),
    ("noetl", "workflow.0.loop.spec.fanout", {"reducers": {"a": "set"}}),
    ("noetl", "workflow.0.tool", "htp"),
    ("noetl", "workflow.0.tool", []),
    ("noetl", "workflow.0.tool", [5]),
    ("noetl", "workflow.0.tool.0.kind", GONE),
    ("noetl", "workflow.0.tool.0.url", GONE),
    ("noetl", "workflow.0.tool.0.url", 5),
    ("noetl", "workflow.0.tool.0.code", "result = 1"),
    ("noetl", "workflow.0.tool.0.timeout.conect", "1s"),
    ("noetl", "workflow.0.tool.0.spec.policy.rules.0.then.do", "again"),
    ("noetl", "workflow.0.tool.0.spec.policy.rules.0.then", GONE),
    ("noetl", "workflow.0.tool.0.spec.policy.rules.0.wen", "x"),
    ("noetl", "workflow.0.tool.1.script", {"uri": "x.py"}),
    ("noetl", "workflow.0.tool.1.timeout", {"connect": 1}),
    ("noetl", "workflow.0.tool.1.set_ctx.total.reduce", "product"),
    ("noetl", "workflow.0.tool.1.set_ctx", {"a b": 1}),
    ("noetl", "workflow.0.next.arcs", GONE),
    ("noetl", "workflow.0.next.arcs.0.step", GONE),
    ("noetl", "workflow.0.next.arcs.0.if", "x"),
    ("noetl", "workflow.0.next.spec.mode", "first"),
    ("noetl", "workflow.1.tool.ask", GONE),
    ("noetl", "workflow.1.tool.url", "https://x.example"),
    ("xrc729", "structure", GONE),
    ("xrc729", "structure", {}),
    ("xrc729", "structur", {}),
    ("xrc729", "structure.B", "A"),
    ("xrc729", "structure.B.rule", GONE),
    ("xrc729", "structure.B.rule", " "),
    ("xrc729", "structure.1B", {"rule": "x"}),
    ("xrc729", "structure.B.onvalid", {}),
    ("xrc729", "structure.A.onValid.spawn", ["B"]),
    ("xrc729", "structure.A.onValid.spawns", "B"),
    ("xrc729", "structure.A.onValid.join.joinid", GONE),
    ("xrc729", "structure.A.onValid.join.from", []),
    ("xrc729", "structure.A.onValid.join.k", GONE),
    ("xrc729", "structure.A.onValid.join.mode", "most"),
    ("xrc729", "structure.A.onValid.join.waitonjoin", "wait"),
    ("xrc729", "structure.A.onValid.join.from.0.when", "never"),
    ("xrc137", "payload", GONE),
    ("xrc137", "payload.Amount.type", "number"),
    ("xrc137", "payload.Amount.type", GONE),
    ("xrc137", "payload.a-b", {"type": "string"}),
    ("xrc137", "rule", ["true"]),
    ("xrc137", "rules", "true"),
    ("xrc137", "rules.1.type", "warn"),
    ("xrc137", "rules.1.expression", GONE),
    ("xrc137", "contractReads.0.function", GONE),
    ("xrc137", "contractReads.0.saveAs", {"first": {"key": "a", "type": "string"}}),
    ("xrc137", "apiCalls.0.method", "DELETE"),
    ("xrc137", "apiCalls.0.contentType", "xml"),
    ("xrc137", "apiCalls.0.extractMap.Price.value", GONE),
    ("xrc137", "apiCalls.0.timeoutMs", 0),
    ("xrc137", "onValid.waitSec", 1.5),
    ("xrc137", "onValid.paylod", {}),
    ("xrc137", "onValid.grants", [{"address": "0x", "rights": 9}]),
    ("arca", "plan", GONE),
    ("arca", "plan.steps", []),
    ("arca", "deadline", "5m"),
    ("arca", "deadline_seconds", 5),
    ("arca", "max_parallel_steps", 0),
    ("arca", "plan.steps.0.step_id", GONE),
    ("arca", "plan.steps.0.step_id", "a b"),
    ("arca", "plan.steps.0.target", GONE),
    ("arca", "plan.steps.0.target.resolve", "random"),
    ("arca", "plan.steps.0.target.participants", GONE),
    ("arca", "plan.steps.0.target.limit", 0),
    ("arca", "plan.steps.0.fan_in.policy", "most"),
    ("arca", "plan.steps.0.fan_in.score_field", GONE),
    ("arca", "plan.steps.0.fan_in.quorum", 2),
    ("arca", "plan.steps.0.timing.timeout", 30),
    ("arca", "plan.steps.0.timing.retry.max_attempts", GONE),
    ("arca", "plan.steps.1.service_type", GONE),
    ("arca", "plan.steps.1.max_retries", -1),
    ("arca", "plan.steps.1.fail_policy", "retry"),
    ("arca", "plan.steps.1.fulfillment.policy", "later"),
    ("arca", "plan.steps.1.fulfillment.result_match", GONE),
    ("arca", "plan.steps.1.fulfillment.result_match.fulfilled_values", []),
]


def changed(language: str, place: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(GOOD[language])
    *path, last = place.split(".")
    inner: Any = document
    for part in path:
        inner = inner[int(part) if part.isdigit() and isinstance(inner, list) else part]
    if value == GONE:
        del inner[last]
    else:
        inner[last] = value
    return document


@EVERY_LANGUAGE
def test_the_good_ones_are_good(language: str) -> None:
    document = yaml.safe_load(GOOD[language])
    assert errors_of(json.dumps(document)) == []
    assert judge(language).told(document) == ""


def test_what_the_reader_refuses_for_its_shape_is_not_valid() -> None:
    taken = []
    for language, place, value in WRONG:
        document = changed(language, place, value)
        if not errors_of(json.dumps(document)):
            taken.append((language, place, value, "by the reader"))
        if not judge(language).told(document):
            taken.append((language, place, value, "by the schema"))
    assert taken == []


# -- the readers -----------------------------------------------------------------------------


def canonical(definition: Definition) -> bool:
    """Older spellings are read from another tree than the one that was written."""
    if definition.language != "noetl":
        return "template_id" not in definition.document
    root = read_source(json.dumps(definition.document), file="x.json").root
    assert isinstance(root, Fields)
    return bool(plain(respelled(root, Findings())) == definition.document)


@pytest.mark.slow
@EVERY_LANGUAGE
def test_it_has_every_key_that_the_readers_ask_for_and_the_answers_that_they_take(
    language: str,
) -> None:
    seen: set[tuple[str, str]] = set()
    complaints, count = [], 0
    for definition in filter(canonical, of(language)):
        for probe in probes(definition, seen):
            count += 1
            _, found = problems_of(json.dumps(probe.document))
            errors = {each.code for each in found if each.severity == "error"}
            valid = judge(language).takes(probe.document)
            if not errors and not valid and not UNREAD & {each.code for each in found}:
                complaints.append(f"{probe.place}: {probe.key}: {probe.answer!r} is not in it")
            if valid and probe.fails and errors & OF_THE_SHAPE:
                complaints.append(f"{probe.place}: {probe.key}: {probe.answer!r} is valid")
    assert complaints == []
    least = {"noetl": 700, "arca": 120, "xrc729": 60, "xrc137": 100}
    assert count > least[language], count


# -- random changes --------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2.5, 10**13, "", "x", "{{ ctx.x }}", "5", "30s", "soon"),
    *("P1D", [], ["x"], {}, {"x": 1}, [{}]),
)


def mutated(document: dict[str, Any], dice: random.Random, words: list[str]) -> dict[str, Any]:
    """The document with one thing changed: a value, a key, an entry."""
    made = deepcopy(document)
    holders = list(holding(made))
    holder = dice.choice(holders)
    other = deepcopy(dice.choice([*ODD, dice.choice(holders)]))
    if isinstance(holder, list):
        holder.insert(dice.randrange(len(holder) + 1), other)
        return made
    key = dice.choice(list(holder))
    match dice.randrange(4):
        case 0:
            holder[key] = other
        case 1:
            del holder[key]
        case 2:
            holder[dice.choice([f"{key}x", key[:-1], key.upper(), dice.choice(words)])] = (
                holder.pop(key)
            )
        case _:
            holder[dice.choice(words)] = other
    return made


def holding(node: Any) -> Iterator[Any]:
    """Every list, and every mapping that has a key."""
    if isinstance(node, list) or (isinstance(node, dict) and node):
        yield node
    for inner in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from holding(inner)


def keys(node: Any) -> Iterator[str]:
    for inner in holding(node):
        if isinstance(inner, dict):
            yield from inner


def in_workbook(document: dict[str, Any], found: Judge) -> bool:
    """A task of the workbook that no step uses is not read."""
    less = {key: value for key, value in document.items() if key != "workbook"}
    return "workbook" in document and found.takes(less)


@pytest.mark.slow
@EVERY_LANGUAGE
def test_whatever_is_changed_it_is_never_stricter_than_the_reader(language: str) -> None:
    definitions = [each.document for each in of(language) if "template_id" not in each.document]
    words = sorted({word for each in definitions for word in keys(each)})
    taken = refused = 0
    for seed in seeds(CHANGES):
        dice = random.Random(seed)
        document = mutated(dice.choice(definitions), dice, words)
        read_as, problems = problems_of(json.dumps(document))
        if read_as != language:
            continue
        valid = judge(language).takes(document)
        codes = {each.code for each in problems}
        if any(each.severity == "error" for each in problems):
            refused += not valid
        elif not codes & UNREAD and not in_workbook(document, judge(language)):
            taken += 1
            assert valid, (seed, judge(language).told(document))
    assert taken > 50
    assert refused > 100


def test_durations_have_the_form_that_the_reader_takes() -> None:
    dice = random.Random(7)
    parts = ["1", "2.5", "d", "h", "m", "s", "ms", "P", "T", "W", "D", "H", "M", "S", " ", "p", "-"]
    pattern = re.compile(f"^(?:{PATTERN})$")
    taken = 0
    for _ in range(20_000):
        text = "".join(dice.choice(parts) for _ in range(dice.randint(1, 7)))
        try:
            parse_duration(text)
        except ValueError:
            fraction = re.search(r"P.*\..*\D.*\d", text)  # only the last part may have one
            assert fraction or not pattern.match(text), text
        else:
            taken += 1
            assert pattern.match(text), text
    assert taken > 500


# -- kinds -----------------------------------------------------------------------------------


def test_any_kind_may_be_a_tool_unless_the_tools_are_named() -> None:
    document = changed("noetl", "workflow.1.tool", {"kind": "price", "item": "x"})
    assert judge("noetl").takes(document)
    for tools, valid in (((), False), ((ToolSignature("price"),), True)):
        validator = Draft202012Validator(schema_of("noetl", tools))
        assert validator.is_valid(document) is valid
        assert validator.is_valid(yaml.safe_load(PLAYBOOK))
        assert not validator.is_valid(changed("noetl", "workflow.1.tool", {"kind": "htp"}))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_has_a_shape_of_its_own(kind: str) -> None:
    shape = schema_of("noetl")["$defs"][f"{kind}_task"]
    assert set(KINDS[kind]) <= shape["properties"].keys()
    assert shape["properties"]["kind"]["const"] == kind


# -- descriptions ----------------------------------------------------------------------------

#: Parts that no page has a heading or a row for, key by key.
WITHOUT_A_PAGE = {
    "A document as its text", "A frame of rows", "A parameter", "A part of a result",
    "A side of a transfer", "A task", "A task of the workbook", "Otherwise", "Policies of a loop",
    "So many of them", "What the playbook is called", "What to do then", "Where a script runs",
    "Where it was read",
}  # fmt: skip


def sections(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "title" in node and isinstance(node.get("properties"), dict):
            yield node
        for inner in node.values():
            yield from sections(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from sections(inner)


@EVERY_LANGUAGE
def test_every_key_is_described(language: str) -> None:
    schema = schema_of(language)
    defined = schema["$defs"]
    bare = [
        (each["title"], key)
        for each in sections(schema)
        if each["title"] not in WITHOUT_A_PAGE
        for key, value in each["properties"].items()
        if "description" not in {**defined.get(value.get("$ref", "")[8:], {}), **value}
        and value.get("type") != "null"
    ]
    assert bare == []


def test_the_descriptions_are_those_of_the_pages() -> None:
    """If this fails: python tools/keyword_docs.py"""
    assert kept_docs() == keyword_docs.written()
    text = DOCS.read_text(encoding="utf-8")
    assert not re.search(r"\]\(|\*\*|docs/", text), "links and emphasis are for pages"


def test_the_page_says_how_an_editor_uses_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    part = page.partition("\n## anabranch schema\n")[2].partition("\n## ")[0]
    assert "# yaml-language-server: $schema=" in part
    assert all(f"`{language}`" in part for language in LANGUAGES)
