"""Whatever stands in a definition or a template, reading ends in a net or in problems."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dialects.arca.templates import read_template
from anabranch.dialects.registry import compile_source
from anabranch.errors import DefinitionError, InputError

from ..support import check_outcome
from .definitions import read, step

FULL: dict[str, Any] = {
    "workflow_id": "full",
    "workflow_kind": "service-order-orchestration",
    "label": "l",
    "description": "d",
    "deadline": "PT5M",
    "max_parallel_steps": 2,
    "input": {"text": "hello"},
    "plan": {
        "steps": [
            {
                "step_id": "solicit",
                "service_type": "text/summarise",
                "input": {"text": "{{input.text}}"},
                "target": {
                    "resolve": "capability",
                    "capability_id": "offer-catalog",
                    "filter": {"service_type": "text/summarise"},
                    "limit": 5,
                },
                "fan_in": {"policy": "best_of", "score_field": "/price", "score_order": "asc"},
                "timing": {
                    "timeout": "PT30S",
                    "retry": {"max_attempts": 3, "backoff": "PT5S", "backoff_multiplier": 2.0},
                    "on_timeout": "skip",
                },
                "fulfillment": {
                    "policy": "external_decision",
                    "decision_source": {
                        "kind": "capability",
                        "capability_id": "verify",
                        "input": {"a": {"from": "/steps/solicit/output/price"}},
                    },
                    "result_match": {
                        "path": "/status",
                        "fulfilled_values": ["yes"],
                        "not_fulfilled_values": ["no"],
                    },
                    "on_not_fulfilled": "pause",
                    "on_error": "fail",
                },
            },
            {
                "step_id": "buy",
                "service_type": "text/buy",
                "request_input": {"n": 1},
                "input_from": ["solicit"],
                "depends_on": ["solicit"],
                "max_retries": 2,
                "retry_delay_ms": 10,
                "fail_policy": "skip",
                "target": {"resolve": "static", "participants": ["p1"]},
            },
            {
                "step_id": "order",
                "service_type": "text/buy",
                "depends_on": ["solicit"],
                "offer_ref": {"from": "/steps/solicit/output/offer"},
                "request_units": 2,
                "max_amount": "{{input.text}}",
                "currency": "ORC",
            },
        ]
    },
}
WORDS = st.sampled_from(
    ["", "p", "PT1S", "solicit", "static", "{{input.x}}", "{{", "/a/b", "~", "\x00", "é" * 300]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
ODD = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from paths(inner, (*before, key))
        else:
            yield (*before, key)


PATHS = list(paths(FULL))[1:]


def changed(path: tuple[Any, ...], value: Any, *, rename: bool) -> Any:
    document = copy.deepcopy(FULL)
    *way, last = path
    place = document
    for key in way:
        place = place[key]
    if rename and isinstance(place, dict):
        place[f"{last}x"] = place.pop(last)
    else:
        place[last] = value
    return document


def test_the_full_definition_compiles_as_it_stands() -> None:
    assert read(FULL).problems == ()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PATHS), ODD, st.booleans())
def test_one_odd_value_gives_a_net_or_problems(path: Any, value: Any, rename: bool) -> None:
    compiled = compile_source(json.dumps(changed(path, value, rename=rename)), file="x.json")
    check_outcome(compiled)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*FULL, "steps", "id", "x"]), ODD, max_size=4))
def test_any_document_gives_a_net_or_problems(document: dict[str, Any]) -> None:
    compiled = compile_source(json.dumps(document), file="x.json")
    assert (compiled.net is None) == bool(compiled.errors)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["schema", "template_id", "parameters", "plan", "deadline", "x"]), ODD
    ),
    st.dictionaries(WORDS, ODD, max_size=2),
)
def test_any_template_is_read_and_filled_or_refused(document: Any, given_: Any) -> None:
    with contextlib.suppress(DefinitionError, InputError):
        read_template(json.dumps(document)).materialise(given_)


@pytest.mark.parametrize("spread", [lambda n: [f"s{n - 1}"] if n else [], lambda _: []])
def test_a_large_plan_compiles_in_reasonable_time(spread: Any) -> None:
    steps = [step(f"s{n}", depends_on=spread(n)) for n in range(1_000)]
    began = time.thread_time()
    compiled = read({"workflow_id": "large", "plan": {"steps": steps}})
    assert compiled.net is not None
    assert time.thread_time() - began < 10


def test_a_fan_out_to_very_many_participants_is_read_in_reasonable_time() -> None:
    target = {"resolve": "static", "participants": [f"p{n}" for n in range(20_000)] + ["p19999"]}
    began = time.thread_time()
    compiled = read({"workflow_id": "w", "plan": {"steps": [step(target=target, fan_in={})]}})
    assert compiled.net is not None
    assert time.thread_time() - began < 10
