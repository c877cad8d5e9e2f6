"""`offer_ref`, `request_units`, `max_amount` and `currency`: what an ordinary step orders."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anabranch
from anabranch.dialects.arca.normal import normal_form
from anabranch.dialects.arca.requests import Facts, Inputs
from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import read_template
from anabranch.operations.definitions.inputs import inputs_of
from anabranch.operations.participants import needs_of
from anabranch.testing import play, simulate
from anabranch.work.participants.book import Book

from .definitions import (
    STATIC,
    definition,
    fan_out,
    line_of,
    lowered,
    net_of,
    problem_of,
    read,
    step,
)

REF = {"from": "/input/offer"}
OFFER = {"offer/id": "offer:a", "provider/participant-id": "ann", "pricing/amount": 3}
ALL: dict[str, Any] = {"offer_ref": REF, "request_units": 2, "max_amount": 9, "currency": "ORC"}


def request_of(found: Any, **names: Any) -> dict[str, Any]:
    """What the job that asks the provider gets."""
    assert found.work is not None
    assert isinstance(found.work.inputs, Inputs)
    given: dict[str, Any] = found.work.inputs.evaluate({"slot": "ann", **names})
    return given


# -- lowering ----------------------------------------------------------------------------------


def test_an_offer_is_looked_up_when_the_step_runs_and_its_provider_is_the_one_slot() -> None:
    found = lowered(offer_ref=REF)
    assert found.fan is not None
    assert found.fan.targets is not None
    assert (found.fan.targets.kind, found.fan.keeps_targets) == ("targets", True)
    assert isinstance(found.fan.targets.inputs, Facts)
    assert found.fan.targets.inputs.evaluate({"workload": {"offer": OFFER}}) == {
        "resolve": "offer",
        "service_type": "text/summarise",
        "one": True,
        "offer": OFFER,
    }
    assert found.fan.over.evaluate({"found": {"targets": ["ann", "bob"]}}) == ["ann"]


def test_the_request_has_the_offer_and_the_terms_beside_all_it_had() -> None:
    found = lowered(**ALL, input={"a": 1}, timing={"timeout": "PT9S"})
    assert request_of(found, workload={"offer": OFFER}) == {
        "step_id": "s",
        "service_type": "text/summarise",
        "timeout_ms": 9_000,
        "target": "ann",
        "offer": OFFER,
        "request_units": 2,
        "max_amount": 9,
        "currency": "ORC",
        "input": {"a": 1},
    }


def test_a_step_that_says_nothing_orders_one_unit_of_any_offer_at_any_price() -> None:
    given = request_of(lowered())
    terms = {key: given[key] for key in ("offer", "request_units", "max_amount", "currency")}
    assert terms == {"offer": None, "request_units": 1, "max_amount": None, "currency": ""}


def test_terms_may_stand_beside_a_target_that_chooses_one_provider() -> None:
    found = lowered(target=STATIC, request_units=4, max_amount=0)
    given = request_of(found)
    assert (given["offer"], given["request_units"], given["max_amount"]) == (None, 4, 0)
    assert found.fan is not None
    assert found.fan.targets is None


def test_terms_may_be_references_to_what_the_run_knows() -> None:
    found = lowered(
        request_units={"from": "/input/units"},
        max_amount="{{input.budget}}",
        currency="{{input.currency}}",
    )
    workload = {"units": 7, "budget": 70, "currency": "ORC"}
    given = request_of(found, workload=workload)
    assert (given["request_units"], given["max_amount"], given["currency"]) == (7, 70, "ORC")


def test_a_fan_out_asks_for_no_order() -> None:
    assert "offer" not in request_of(lowered(target=STATIC, fan_in={}))


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("key", ALL)
def test_every_key_of_an_order_is_refused_beside_a_fan_in(key: str) -> None:
    document = definition(fan_out("s", None, **{key: ALL[key]}))
    problem = problem_of(document, "conflicting-keys")
    assert f"`{key}` is for a step that orders from one provider" in problem.message
    assert "a step of its own" in problem.hint
    assert problem.position.line == line_of(document, f'"{key}"')


def test_an_offer_beside_a_target_is_a_conflict() -> None:
    document = definition(step(offer_ref=REF, target=STATIC))
    problem = problem_of(document, "conflicting-keys")
    assert "`target` says whom to ask" in problem.message
    assert problem.position.line == line_of(document, '"offer_ref"')


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"offer_ref": "offer:a"}, "wrong-type", '{"from": "/steps/solicit/output/offer"}'),
        ({"offer_ref": OFFER}, "wrong-type", '{"from":'),
        ({"offer_ref": "the {{input.offer}}"}, "wrong-type", '{"from":'),
        ({"offer_ref": {"from": "/input/a", "x": 1}}, "wrong-type", '{"from":'),
        ({"request_units": 0}, "bad-number", "from 1"),
        ({"request_units": 1.5}, "wrong-type", "whole number"),
        ({"request_units": True}, "wrong-type", "whole number"),
        ({"request_units": 2**53}, "bad-number", "2^53"),
        ({"request_units": "3"}, "wrong-type", "whole number"),
        ({"max_amount": -1}, "bad-number", "from 0"),
        ({"max_amount": "{{input.budget}} ORC"}, "wrong-type", "{{input.budget}}"),
        ({"currency": "O"}, "wrong-type", "2 to 16 characters"),
        ({"currency": "O" * 17}, "wrong-type", "2 to 16 characters"),
        ({"currency": 5}, "wrong-type", "2 to 16 characters"),
        ({"currency": "{{input.a}}{{input.b}}"}, "wrong-type", "2 to 16 characters"),
        ({"offer_ref": {"from": "/steps/later/output/offer"}}, "unknown-reference", ""),
        ({"max_amount": "{{steps.s.output.price}}"}, "unknown-reference", "`fulfillment`"),
    ],
)
def test_terms_that_cannot_be_are_refused_at_their_place(
    fields: dict[str, Any], code: str, words: str
) -> None:
    document = definition(step(**fields))
    problem = problem_of(document, code)
    assert words in problem.hint
    (key,) = fields
    assert problem.position.line == line_of(document, f'"{key}"')


def test_a_reference_to_a_step_that_need_not_have_run_is_found_by_check() -> None:
    ask = fan_out("ask")
    order = step("order", offer_ref={"from": "/steps/ask/output/offer"})
    problem = problem_of(definition(ask, order), "unknown-reference")
    assert "depends_on" in problem.hint
    assert read(definition(ask, {**order, "depends_on": ["ask"]})).net is not None


def test_an_input_that_looks_like_a_slip_is_a_warning() -> None:
    document = definition(step(max_amount="{{input.budgt}}"), input={"budget": 5})
    assert problem_of(document, "unknown-input", "warning").position.line > 1


# -- runs --------------------------------------------------------------------------------------


def ordering(**fields: Any) -> str:
    return json.dumps(definition(step("order", offer_ref=REF, **fields), input={"offer": None}))


def book(asked: list[Any]) -> dict[str, Any]:
    def answer(request: Any) -> Any:
        asked.append(request)
        return {"done": len(asked)}

    return {"participants": dict.fromkeys(("ann", "bob"), answer)}


def test_a_run_with_a_book_asks_the_provider_of_the_offer_and_nobody_else() -> None:
    asked: list[Any] = []
    result = anabranch.run(ordering(request_units=2), {"offer": OFFER}, participants=book(asked))
    assert result.status == "completed"
    (request,) = asked
    assert (request["offer"], request["request_units"]) == (OFFER, 2)
    assert "max_amount" not in request


@pytest.mark.parametrize(
    "offer",
    [
        None,
        "offer:a",
        [OFFER],
        {"offer": OFFER},
        {"offer/id": "offer:a"},
        {**OFFER, "offer/id": ""},
        {**OFFER, "provider/participant-id": 5},
    ],
)
def test_what_is_no_offer_fails_the_step_and_nobody_is_asked(offer: Any) -> None:
    asked: list[Any] = []
    result = anabranch.run(ordering(), {"offer": offer}, participants=book(asked))
    assert (result.status, asked) == ("failed", [])
    assert result.problem is not None
    assert result.problem["code"] == "unresolved_reference"
    assert "/input/offer, which is no offer" in result.problem["message"]


def test_an_offer_that_is_not_there_is_an_unresolved_reference() -> None:
    asked: list[Any] = []
    text = json.dumps(definition(step("order", offer_ref={"from": "/input/nothing"})))
    result = anabranch.run(text, {}, participants=book(asked))
    assert (result.status, asked) == ("failed", [])
    assert result.problem is not None
    assert result.problem["code"] == "unresolved_reference"


@pytest.mark.parametrize(("units", "budget"), [(0, 5), (1.5, 5), (True, 5), ("2", 5), (2, -1)])
def test_terms_that_come_to_nothing_useful_fail_the_step_and_nobody_is_asked(
    units: Any, budget: Any
) -> None:
    asked: list[Any] = []
    text = ordering(request_units="{{input.units}}", max_amount="{{input.budget}}")
    given = {"offer": OFFER, "units": units, "budget": budget}
    result = anabranch.run(text, given, participants=book(asked))
    assert (result.status, asked) == ("failed", [])
    assert "which is no whole number" in str(result.problem)


def test_every_attempt_orders_from_the_same_provider() -> None:
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request["offer"]["offer/id"])
        return {"status": "failed"} if len(asked) < 3 else {"done": True}

    text = ordering(max_retries=2)
    people = {"participants": {"ann": answer}}
    result = anabranch.run(text, {"offer": OFFER}, participants=people)
    assert (result.status, asked) == ("completed", ["offer:a"] * 3)


def test_a_play_asks_the_provider_of_the_offer_whatever_a_search_would_find() -> None:
    net = net_of(
        fan_out("ask", target={"resolve": "static", "participants": ["p1"]}),
        step("order", depends_on=["ask"], offer_ref={"from": "/steps/ask/output/offer"}),
    )
    script = {"p1": {"offer": {**OFFER, "provider/participant-id": "p9"}}, "p9": {"done": True}}
    played = play(net, script=script)
    assert (played.status, played.result) == ("completed", {"done": True})


# -- what else knows the keys --------------------------------------------------------------------


def test_the_normal_form_keeps_the_keys_in_their_place() -> None:
    written = definition(step(currency="ORC", max_amount=9, offer_ref=REF, fail_policy="skip"))
    (found,) = normal_form(json.dumps(written))["plan"]["steps"]
    names = ["step_id", "service_type", "offer_ref", "max_amount", "currency", "fail_policy"]
    assert list(found) == names
    assert read(normal_form(json.dumps(written))).net is not None


def test_the_inputs_of_a_run_include_what_the_order_reads() -> None:
    net = net_of(step(offer_ref=REF, max_amount="{{input.budget}}"))
    assert {one.name for one in inputs_of(net)} == {"offer", "budget"}


def test_a_template_may_leave_the_terms_to_its_parameters() -> None:
    template = json.dumps(
        {
            "template_id": "order.v1",
            "parameters": {"budget": "integer", "units": {"type": "integer", "default": 2}},
            "plan": {
                "steps": [
                    step(
                        offer_ref=REF,
                        max_amount="{{params.budget}}",
                        request_units="{{params.units}}",
                    )
                ]
            },
        }
    )
    assert template_problems(template) == []
    (found,) = read_template(template).materialise({"budget": 40})["plan"]["steps"]
    assert (found["max_amount"], found["request_units"]) == (40, 2)


def test_a_book_is_not_asked_for_providers_of_an_offer_that_a_run_will_find() -> None:
    net = net_of(step(offer_ref=REF), step("plain"))
    found = needs_of(net, Book({"participants": {"ann": lambda _request: {}}}), None)
    assert [(one.code, "'plain'" in one.message) for one in found] == [("nobody-to-ask", True)]


def test_a_simulation_orders_under_faults() -> None:
    net = net_of(
        fan_out("ask", target={"resolve": "static", "participants": ["p1"]}),
        step("order", depends_on=["ask"], offer_ref={"from": "/steps/ask/output/offer"}),
    )
    script = {"p1": {"offer": {**OFFER, "provider/participant-id": "p9"}}, "p9": {"done": True}}
    assert simulate(net, 20, script=script).statuses["completed"] > 0
