"""The JSON Schema of Arca workflow definitions, and of the templates that they are made from."""

from __future__ import annotations

from anabranch.dialects.arca.fulfilment import ERROR, NOT_FULFILLED, SOURCES
from anabranch.dialects.arca.fulfilment import POLICIES as FULFILMENTS
from anabranch.dialects.arca.orders import OFFER, WHOLE_MAX
from anabranch.dialects.arca.plan import PARALLEL_MAX
from anabranch.dialects.arca.spelling import STEP_NAMES
from anabranch.dialects.arca.steps import STEP_ID
from anabranch.dialects.arca.targets import (
    BOUNDS,
    LIMIT_MAX,
    NEEDS,
    ORDERS,
    POLICIES,
    RESOLVE,
    TARGET_ORDERS,
)
from anabranch.dialects.arca.templates import (
    OWN,
    PARAMETER,
    PASSED_ON,
    SCHEMA,
    TEMPLATE_ID,
)
from anabranch.dialects.arca.timing import DELAY_MS_MAX, FAIL_POLICY, ON_TIMEOUT, TRIES_MAX
from anabranch.dialects.schema import (
    ANYTHING,
    IGNORED,
    Docs,
    Schema,
    choice,
    either,
    flag,
    has,
    is_word,
    iso_duration,
    listed,
    mapping,
    number,
    ref,
    section,
    string,
    text,
    when,
    whole,
)
from anabranch.net.inputs import TYPES

#: Keys that are refused with what to write instead.
_REMOVED = ("deadline_seconds",)


def schema() -> Schema:
    """The schema of definitions; a document with a `template_id` is a template."""
    docs = Docs("arca")
    return {
        "title": "Arca workflow definition",
        "description": "Whom steps ask, by which policy they go on, and what makes a task done.",
        "type": "object",
        **when(has("template_id"), ref("template"), ref("definition")),
        "$defs": {
            "definition": _definition(docs),
            "template": _template(docs),
            "steps": either(listed(ref("step"), least=1), mapping(ref("step_of_map"))),
            "step": _step(docs, named=False),
            "step_of_map": _step(docs, named=True),
            "target": _target(docs),
            "fan_in": _fan_in(docs),
            "timing": _timing(docs),
            "fulfillment": _fulfilment(docs),
            "reference": either(
                string(r"^\{\{[^{}]*\}\}$"),
                {"type": "object", "required": ["from"], "maxProperties": 1},
            ),
        },
    }


def _definition(docs: Docs) -> Schema:
    limits = {"deadline": iso_duration(), "max_parallel_steps": whole(1, PARALLEL_MAX)}
    said = docs("definition")
    plan = section("The plan", {"steps": ref("steps"), **limits}, refused=_REMOVED, docs=said)
    fields = {
        "workflow_id": text(),
        "definition_id": text(),
        "workflow_kind": text(),
        "label": text(),
        "description": text(),
        "schema": IGNORED,
        "schema_version": IGNORED,
        **limits,
        "input": mapping(),
        "plan": plan,
    }
    return section(
        "Arca workflow definition",
        fields,
        old={"steps": ref("steps")},
        refused=_REMOVED,
        docs=said,
        **either(
            {"required": ["steps"]},
            {"required": ["plan"], "properties": {"plan": {"required": ["steps"]}}},
        ),
    )


# -- steps -----------------------------------------------------------------------------------


def _step(docs: Docs, *, named: bool) -> Schema:
    """In a map of steps the key is the id."""
    names = either(string(), listed({**string(), "minLength": 1}))
    fields = {
        "step_id": {"type": ["string", "integer"], "pattern": f"^{STEP_ID.pattern}$"},
        "service_type": text(),
        "input": mapping(),
        "input_from": names,
        "depends_on": names,
        OFFER: ref("reference"),
        "request_units": either(whole(1, WHOLE_MAX), ref("reference")),
        "max_amount": either(whole(0, WHOLE_MAX), ref("reference")),
        "currency": {**string(), "minLength": 2},
        "target": ref("target"),
        "fan_in": ref("fan_in"),
        "timing": ref("timing"),
        "fulfillment": ref("fulfillment"),
        "max_retries": whole(0, TRIES_MAX),
        "retry_delay_ms": whole(0, DELAY_MS_MAX),
        "fail_policy": choice(FAIL_POLICY),
        "label": text(),
        "description": text(),
    }
    fields["currency"] = either({**string(), "minLength": 2, "maxLength": 16}, ref("reference"))
    canonical = {"request_input": "input"}
    old = {
        key: fields[canonical.get(name, name)]
        for key, name in {**STEP_NAMES, "request_input": "request_input"}.items()
        if key not in fields
    }
    old["retry"] = mapping()
    some = has("service_type", "target")
    needs: Schema = {"allOf": [some, when(has("fan_in"), has("target"))]}
    if not named:
        needs["allOf"].append(has("step_id", "id"))
    return section("A step", fields, old=old, refused=_REMOVED, docs=docs("step"), **needs)


def _target(docs: Docs) -> Schema:
    fields = {
        "resolve": choice(RESOLVE),
        "participants": listed({**string(), "minLength": 1}, least=1),
        "capability_id": text(),
        "task_type": text(),
        "filter": mapping(),
        "limit": whole(1, LIMIT_MAX),
        "order": choice(TARGET_ORDERS),
    }
    needs = [when(is_word("resolve", word), has(key)) for word, key in NEEDS.items()]
    said = docs("target")
    return section("Whom to ask", fields, required=("resolve",), docs=said, allOf=needs)


def _fan_in(docs: Docs) -> Schema:
    fields = {
        "policy": choice(POLICIES),
        "min_responses": whole(1, LIMIT_MAX),
        "score_field": text(),
        "score_order": choice(ORDERS),
        **{bound: either({"type": "number"}, ref("reference")) for bound in BOUNDS},
    }
    needs = [
        when(is_word("policy", "quorum"), has("min_responses")),
        when(is_word("policy", "best_of"), has("score_field")),
    ]
    return section("Which answers are enough", fields, docs=docs("fan_in"), allOf=needs)


def _timing(docs: Docs) -> Schema:
    retry = section(
        "How often it is tried again",
        {
            "max_attempts": whole(0, TRIES_MAX),
            "backoff": iso_duration(),
            "backoff_multiplier": number(1, 1000),
        },
        required=("max_attempts",),
        docs=docs("timing.retry"),
    )
    fields = {"timeout": iso_duration(), "on_timeout": choice(ON_TIMEOUT), "retry": retry}
    title = "How long, and how often"
    return section(title, fields, refused=_REMOVED, docs=docs("timing"))


def _fulfilment(docs: Docs) -> Schema:
    source = section(
        "Who decides",
        {
            "kind": choice(SOURCES),
            "capability_id": text(),
            "input": ANYTHING,
            "actors": listed({**string(), "minLength": 1}),
            "ask": text(),
            "timing": ref("timing"),
        },
        docs=docs("decision_source"),
    )
    match = section(
        "Which values mean yes",
        {
            "path": text(),
            "fulfilled_values": listed(ANYTHING, least=1),
            "not_fulfilled_values": listed(ANYTHING),
        },
        required=("path", "fulfilled_values"),
        docs=docs("result_match"),
    )
    fields = {
        "policy": choice(FULFILMENTS),
        "decision_source": source,
        "result_match": match,
        "on_not_fulfilled": choice(NOT_FULFILLED),
        "on_error": choice(ERROR),
    }
    needs = [
        when(is_word("policy", "output_match"), has("result_match")),
        when(is_word("policy", "external_decision"), has("decision_source")),
    ]
    return section("What makes the task done", fields, docs=docs("fulfillment"), allOf=needs)


# -- templates -------------------------------------------------------------------------------


def _template(docs: Docs) -> Schema:
    """A parameter may stand anywhere in the plan, so that is left to `check`."""
    kind = choice(TYPES)
    parameter = section(
        "A parameter",
        {"type": kind, "default": ANYTHING, "required": flag(), "description": text()},
    )
    parameters = {
        **mapping(either(kind, parameter)),
        "propertyNames": {"pattern": f"^{PARAMETER.pattern}$"},
    }
    special = {
        "schema": choice((SCHEMA,)),
        "template_id": string(f"^{TEMPLATE_ID.pattern}$"),
        "template_kind": choice(("workflow",)),
        "parameters": parameters,
        "deleted": flag(),
        "label": text(),
        "description": text(),
    }
    known = [key for key in (*OWN, *PASSED_ON) if key not in _REMOVED]
    return section(
        "Arca workflow template",
        {key: special.get(key, IGNORED) for key in known},
        required=("template_id",),
        refused=_REMOVED,
        docs=docs("template", "definition"),
        **has("plan", "steps"),
    )
