"""References of definitions: placeholders in texts, `{"from": …}` as values, one pass."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.references import compile_references, document_of, substitute

NAMES = {
    "workload": {"text": "hello", "n": 3, "deep": {"list": [1, 2]}, "odd": "{{input.text}}"},
    "run": "run-1",
    "results": {"draft": {"title": "T", "tags": ["x"]}, "a.b": {"c": 1}, "nothing": None},
}


def rendered(value: Any) -> Any:
    return compile_references(value).render(document_of(NAMES))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{{input.text}}", "hello"),
        ("{{ input.n }}", 3),
        ("{{input.deep.list}}", [1, 2]),
        ("{{input.deep.list[1]}}", 2),
        ("say {{input.text}}, {{input.n}} times", "say hello, 3 times"),
        ("{{input.deep}}!", '{"list": [1, 2]}!'),
        ("{{run.id}}", "run-1"),
        ("{{steps.draft.output.title}}", "T"),
        ("{{steps.a.b.output.c}}", 1),
        ({"from": "/steps/draft/output/tags/0"}, "x"),
        ({"from": "/steps/nothing/output"}, None),
        ({"from": "/input"}, NAMES["workload"]),
        ({"from": "/input/n", "and": "more"}, {"from": "/input/n", "and": "more"}),
        ({"from": 5}, {"from": 5}),
        ({"a": ["{{input.n}}", 1, None, True]}, {"a": [3, 1, None, True]}),
        ("{ {input.n} }", "{ {input.n} }"),
        ("{{{input.n}}}", "{3}"),
        ("", ""),
    ],
)
def test_a_reference_reads(written: Any, value: Any) -> None:
    assert rendered(written) == value


def test_there_is_one_pass() -> None:
    assert rendered("{{input.odd}}") == "{{input.text}}"
    assert rendered("<{{input.odd}}>") == "<{{input.text}}>"


@pytest.mark.parametrize(
    "written",
    ["{{input.none}}", "x {{steps.other.output}}", {"from": "/steps/draft/output/none"}],
)
def test_what_is_not_there_is_an_unresolved_reference(written: Any) -> None:
    with pytest.raises(ExpressionError, match="there is nothing at") as caught:
        rendered(written)
    assert caught.value.code == "unresolved_reference"


@pytest.mark.parametrize("written", ["{{}}", "{{ a b..c }}", {"from": "/~9"}, ["{{a[}}"]])
def test_what_cannot_be_read_is_refused_when_it_is_compiled(written: Any) -> None:
    with pytest.raises(ExpressionError):
        compile_references(written)


def test_the_references_of_a_value_are_known() -> None:
    value = {"a": "{{input.x}} {{steps.s.output}}", "b": [{"from": "/run/id"}]}
    assert [reference.root for reference in compile_references(value).references()] == [
        *("input", "steps", "run")
    ]


# -- putting parameters in -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("{{params.topic}}", "rivers"),
        ("{{ params.n }}", 2),
        ("{{params['n']}}", 2),
        ("on {{params.topic}}: {{input.text}}", "on rivers: {{input.text}}"),
        ({"from": "/params/list/1"}, "b"),
        ({"from": "/input/params"}, {"from": "/input/params"}),
        ([{"params.topic": "{{params.list}}"}], [{"params.topic": ["a", "b"]}]),
        ("params.topic", "params.topic"),
        ("{{steps.params.output}}", "{{steps.params.output}}"),
        (7, 7),
    ],
)
def test_parameters_are_put_in_and_nothing_else(written: Any, value: Any) -> None:
    values = {"topic": "rivers", "n": 2, "list": ["a", "b"]}
    assert substitute(written, "params", values) == value


def test_a_parameter_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ExpressionError, match=r"params\.none"):
        substitute("{{params.none}}", "params", {})
