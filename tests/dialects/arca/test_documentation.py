"""The pages about Arca workflows say what the program does, and every example runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.dialects.arca.fulfilment import ERROR, NOT_FULFILLED, POLICIES, SOURCES
from anabranch.dialects.arca.targets import ORDERS, RESOLVE
from anabranch.dialects.arca.targets import POLICIES as FAN_IN
from anabranch.dialects.arca.timing import FAIL_POLICY, ON_TIMEOUT
from anabranch.dialects.registry import load
from anabranch.net.inputs import TYPES
from anabranch.work.participants.port import NEGATIVE
from surfaces.cli.support import Terminal

from .definitions import read

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "solicit.md").read_text(encoding="utf-8")
FOLDER = ROOT / "examples" / "arca"
WORKFLOWS = ["best_of", "quorum", "publish"]

KEYS = [
    *("workflow_id", "definition_id", "workflow_kind", "label", "description", "deadline", "input"),
    *("max_parallel_steps", "plan.steps", "step_id", "id", "service_type", "request_input"),
    *("input_from", "input_from_step", "depends_on", "target", "fan_in", "timing", "fulfillment"),
    *("max_retries", "retry_delay_ms", "fail_policy", "resolve", "participants", "capability_id"),
    *("task_type", "limit", "filter", "policy", "min_responses", "score_field", "score_order"),
    *("min_score", "max_score", "order", "fixed", "least_recently_asked"),
    *("offer_ref", "request_units", "max_amount", "currency"),
    *("timeout", "on_timeout", "retry.max_attempts", "retry.backoff", "retry.backoff_multiplier"),
    *("decision_source.kind", "result_match.path", "on_not_fulfilled", "on_error"),
    *("deadline_seconds", "missing_parameter", "unknown_parameter", "parameter_type"),
    *("no_targets", "no_reachable_targets", "no_usable_response", "not_enough_responses"),
    *("unresolved_reference", "default", "required: false", "description", "type"),
]
WORDS = [*POLICIES, *NOT_FULFILLED, *ERROR, *SOURCES, *FAN_IN, *RESOLVE, *ORDERS, *ON_TIMEOUT]
WORDS += [*FAIL_POLICY, *TYPES, *NEGATIVE]


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_on_the_page(key: str) -> None:
    assert f"`{key}`" in PAGE


def test_every_word_that_can_be_chosen_is_on_the_page() -> None:
    unmentioned = [word for word in WORDS if f"`{word}`" not in PAGE]
    assert set(unmentioned) <= {"asc"}  # stands in the example


def test_the_definitions_of_the_page_compile_without_a_problem() -> None:
    whole, step = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.S))
    assert read(whole).problems == ()
    assert read({"workflow_id": "w", "plan": {"steps": [step]}}).problems == ()


def test_the_definition_of_the_readme_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (text,) = [each for each in re.findall(r"```json\n(.*?)```", readme, re.S) if "plan" in each]
    assert len(text.splitlines()) <= 12
    people = {name: _asks(price) for name, price in {"north": 3, "south": 1, "west": 2}.items()}
    result = anabranch.run(text, {"text": "hello"}, participants={"participants": people})
    assert (result.status, result.result) == ("completed", {"price": 1, "about": "hello"})


def _asks(price: int) -> Any:
    return lambda request: {"price": price, "about": request["input"]["text"]}


# -- examples --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_example_compiles_without_a_problem(name: str) -> None:
    compiled = load(FOLDER / f"{name}.json")
    assert compiled.problems == ()
    assert compiled.net is not None
    assert compiled.net.name == name


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {*WORKFLOWS, "template"}


@pytest.fixture
def there(tmp_path: Path) -> Terminal:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    return Terminal(tmp_path)


SUMMARY = "An anabranch is a stream that leaves the"


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("best_of", {"price": 4, "summary": SUMMARY}),
        (
            "quorum",
            {"responses": [{"price": 4, "summary": SUMMARY}, {"price": 9, "summary": SUMMARY}]},
        ),
        ("publish", {"price": 4, "summary": SUMMARY}),
    ],
)
def test_every_example_runs_with_the_book_beside_it(
    there: Terminal, name: str, result: Any
) -> None:
    done = there.run("run", f"{name}.json", "--participants", "book.yaml", "--json")
    assert done.code == 0, done
    assert done.json["status"] == "completed"
    assert done.json["result"] == result


def test_the_template_is_put_and_run(there: Terminal) -> None:
    assert there.run("template", "put", "template.json").code == 0
    more = ("--param", "text=hello", "--participants", "book.yaml", "--json")
    done = there.run("template", "run", "solicit.v1", *more)
    assert done.code == 0, done
    prices = [answer["price"] for answer in done.json["result"]["responses"]]
    assert prices == [9, 4]


COMING = (ROOT / "docs" / "coming-from-arca.md").read_text(encoding="utf-8")
STATIC = {"resolve": "static", "participants": ["p"]}


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        (
            {"max_amount": 5, "target": STATIC, "fan_in": {}},
            "conflicting-keys",
            "`max_amount` is for a step that orders from one provider",
        ),
        (
            {"target": STATIC | {"selection_mode": "first-n"}},
            "unknown-key",
            "has no key 'selection_mode'",
        ),
        (
            {"timing": {"timeout": "P1M"}},
            "bad-duration",
            "is not an ISO 8601 duration of weeks, days, hours, minutes and seconds",
        ),
        ({"timing": {"deadline_seconds": 5}}, "removed-key", "is no longer read"),
    ],
)
def test_the_messages_for_what_is_not_there_are_those_of_the_page(
    step: dict[str, Any], code: str, words: str
) -> None:
    document = {
        "workflow_id": "w",
        "plan": {"steps": [{"step_id": "s", "service_type": "x", **step}]},
    }
    (problem,) = read(document).problems
    assert (problem.code, words in problem.message) == (code, True), problem
    assert f"`{code}: " in COMING
    assert words in COMING


def test_every_row_of_what_upstream_has_says_yes_differently_or_no() -> None:
    table = COMING.partition("## What upstream has")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len(rows) > 25
    corpus = ROOT / "tests" / "corpus" / "arca"
    for _, here, get, shown in rows:
        assert here in ("yes", "differently", "no")
        assert here == "yes" or get, "what is missing has its message"
        for name in re.findall(r"`(\w+)`", shown):
            assert (corpus / f"{name}.expect.yaml").exists(), name
