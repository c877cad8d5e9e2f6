"""A participant may be named by what an earlier step chose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.operations.definitions.prepare import check


def definition(participant: str) -> str:
    first = {
        "step_id": "solicit",
        "service_type": "quote",
        "target": {"resolve": "static", "participants": ["ann", "bob"]},
        "fan_in": {"policy": "best_of", "score_field": "/price", "score_order": "asc"},
        "timing": {"timeout": "PT5S"},
    }
    second = {
        "step_id": "order",
        "service_type": "order",
        "depends_on": ["solicit"],
        "target": {"resolve": "static", "participants": [participant]},
    }
    return json.dumps({"workflow_id": "w", "plan": {"steps": [first, second]}}, indent=1)


def answering(name: str, price: Any) -> Any:
    def answer(request: Any) -> Any:
        return {"provider": name, "price": price, "of": [name], "asked": request["service_type"]}

    return answer


PEOPLE = {"participants": {"ann": answering("ann", 5), "bob": answering("bob", 3)}}


def test_an_ordinary_step_asks_exactly_the_one_that_was_chosen() -> None:
    result = anabranch.run(definition("{{steps.solicit.output.provider}}"), participants=PEOPLE)
    assert result.status == "completed"
    assert (result.result["provider"], result.result["asked"]) == ("bob", "order")


@pytest.mark.parametrize("where", ["price", "of", "nothing_there"])
def test_a_reference_that_comes_to_no_name_fails_the_step_and_asks_nobody(where: str) -> None:
    result = anabranch.run(definition(f"{{{{steps.solicit.output.{where}}}}}"), participants=PEOPLE)
    assert result.status == "failed"
    assert result.problem is not None


def test_a_reference_that_cannot_be_read_is_found_before_anything_runs() -> None:
    found = check(definition("{{}}"))
    assert [problem.code for problem in found.problems if problem.severity == "error"] == [
        "bad-template"
    ]


def test_the_order_step_of_the_documentation_orders_from_the_winner() -> None:
    """Whatever the answers say of themselves, and although another is cheaper in the book."""
    page = (Path(__file__).parents[3] / "docs" / "solicit.md").read_text()
    text = page.partition("```json\n")[2].partition("```")[0]
    document = json.loads(text)
    names = ["ann", "bob", "cy"]
    document["plan"]["steps"][0]["target"] = {"resolve": "static", "participants": names}
    asked: list[tuple[str, Any]] = []

    def provider(name: str, price: int) -> Any:
        def answer(request: Any) -> Any:
            asked.append((name, request["step_id"]))
            return {"provider": "ann", "price": price}

        listed = {"ann": 1, "bob": 9, "cy": 2}[name]
        return {"function": answer, "service_types": ["text/summarise"], "price": listed}

    prices = zip(names, (7, 3, 5), strict=True)
    book = {"participants": {name: provider(name, price) for name, price in prices}}
    result = anabranch.run(json.dumps(document), {"text": "A long text."}, participants=book)
    assert result.status == "completed"
    assert [name for name, step in asked if step == "order"] == ["bob"]
