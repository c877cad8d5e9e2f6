"""`concurrency` and `priority` of a playbook, and what is wrong with them."""

from __future__ import annotations

import pytest

from anabranch.dialects.schema import schema_of
from anabranch.kernel import stimuli as s
from anabranch.kernel.limits import limits_of
from anabranch.operations.definitions.input_check import require_input
from anabranch.operations.definitions.prepare import check, prepare

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: invoices}\n"
TAIL = "workflow:\n- {step: a, tool: {kind: noop}}\n"


def test_a_limit_of_the_definition_and_one_by_key() -> None:
    given = """\
concurrency:
- {limit: 10, when_full: reject}
- {key: "{{ input.customer }}", limit: 3}
- {key: "{{ labels.team }}", limit: 2, shared: true}
priority: 7
"""
    net = prepare(HEAD + given + TAIL, ()).net
    assert net.priority == 7
    start = s.Start(run="r", labels={"team": "north"})
    found = limits_of(net, start, {"customer": "acme"})
    assert [(one.key, one.limit, one.when_full) for one in found] == [
        ("invoices", 10, "reject"),
        ("invoices[acme]", 3, "queue"),
        ("[north]", 2, "queue"),
    ]
    require_input(net, {"customer": "acme"})  # the key reads it: it has a use


@pytest.mark.parametrize(
    ("given", "code", "word"),
    [
        ("concurrency: {limit: 0}", "bad-number", "from 1 to"),
        ("concurrency: {limit: -1}", "bad-number", "from 1 to"),
        ("concurrency: {limit: many}", "wrong-type", "whole number"),
        ("concurrency: {limit: true}", "wrong-type", "whole number"),
        ("concurrency: {key: x}", "missing-key", "limit"),
        ("concurrency: {limit: 1, when_full: maybe}", "bad-choice", "cancel_oldest"),
        ("concurrency: {limit: 1, wen_full: queue}", "unknown-key", "when_full"),
        ("concurrency: {limit: 1, shared: true}", "missing-key", "key"),
        ("concurrency: []", "bad-number", "0 limits"),
        ("concurrency: 3", "wrong-type", "concurrency"),
        ('concurrency: {limit: 1, key: "{{ input. }}"}', "bad-template", "template"),
        ("concurrency: [" + "{limit: 1}, " * 5 + "{limit: 1}]", "bad-number", "6 limits"),
        ("priority: 1001", "bad-number", "1000"),
        ("priority: high", "wrong-type", "whole number"),
    ],
)
def test_a_mistake_is_found_before_anything_runs(given: str, code: str, word: str) -> None:
    problems = check(f"{HEAD}{given}\n{TAIL}", ()).problems
    found = [one for one in problems if one.code == code]
    assert found, problems
    assert word in f"{found[0].message} {found[0].hint}"
    assert found[0].position.line == 4


def test_a_key_that_grows_without_bound_is_refused_when_a_run_starts() -> None:
    given = """concurrency: {limit: 1, key: "{{ input.text * 100000000 }}"}\n"""
    net = prepare(HEAD + given + TAIL, ()).net
    with pytest.raises(Exception, match="concurrency") as refused:
        limits_of(net, s.Start(run="r"), {"text": "x"})
    assert getattr(refused.value, "code", "") == "limit_key"


def test_a_key_of_input_that_is_missing_is_refused() -> None:
    given = 'concurrency: {limit: 1, key: "{{ input.customer }}"}\n'
    net = prepare(HEAD + given + TAIL, ()).net
    with pytest.raises(Exception, match="concurrency"):
        limits_of(net, s.Start(run="r"), {})


def test_the_schema_takes_what_the_reader_takes() -> None:
    properties = schema_of("noetl")["properties"]
    assert {"concurrency", "priority"} <= properties.keys()
