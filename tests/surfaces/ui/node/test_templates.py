"""The pages of templates: parameters, a preview, a start, and an import that is looked at first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.errors import NodeError

from .fake_arca import FakeArca
from .scenes import DIGEST, instant, waiting, write_run
from .support import Browser, TwoNodes, links, section, words

NAME, WAY = "biweekly/summary.v1", "/templates/biweekly%2Fsummary.v1"
TEMPLATE: dict[str, Any] = {
    "schema": "workflow-template.v1",
    "template_id": NAME,
    "label": "A summary every two weeks",
    "description": "Finds the best offer and orders it.",
    "parameters": {
        "topic": {"type": "string", "required": True, "description": "what it is about"},
        "budget": {"type": "integer", "required": False, "default": 300},
    },
    "plan": {"steps": []},
    "updated_at": instant(),
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, arca: FakeArca) -> Iterator[TwoNodes]:
    arca.answers |= {
        "GET /templates": {"items": [TEMPLATE]},
        f"GET {WAY}": {"template": TEMPLATE, "public": False},
        "POST /runs": {"run_id": "run:begun"},
        "POST /templates/materialize": lambda body: {"definition": {"made": body["parameters"]}},
    }
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes")), arca=arca) as running:
        write_run(running, "run:begun", [waiting()])
        yield running


def fields(**more: str) -> dict[str, str]:
    """The form as it is sent: each field with what the page had put there."""
    given = {"was:topic": "", "value:topic": "rain", "was:budget": "300", "value:budget": "300"}
    return {**given, "run_id": "run:drawn", **more}


def test_templates_are_listed_with_what_they_do(operator: Browser) -> None:
    text = operator.page("/templates")
    assert "A summary every two weeks biweekly/summary.v1 Finds the best offer" in words(text)
    assert WAY in links(text)


def test_a_template_has_a_field_for_each_parameter_with_its_default(operator: Browser) -> None:
    card = section(operator.page(WAY).replace('<section class="card asks"', '<section id="u"'), "u")
    assert "topic needed" in words(card)
    assert "what it is about" in words(card)
    assert 'name="value:budget" value="300"' in card


def test_a_preview_shows_what_the_template_comes_to_and_starts_nothing(
    operator: Browser, arca: FakeArca
) -> None:
    found, text = operator.fill(WAY, WAY, **fields(verb="preview"))
    assert found.status == 200
    wish = {"template_id": NAME, "parameters": {"topic": "rain", "budget": 300}}
    assert arca.told == [("/templates/materialize", wish)]
    assert '"made"' in words(text)
    assert 'value="rain"' in text  # as it was typed
    assert 'value="run:drawn"' in text
    assert "data-panel" not in text  # it does not go away by itself


def test_a_start_leads_to_the_run_and_sent_twice_it_is_one_run(
    operator: Browser, arca: FakeArca
) -> None:
    given = fields(verb="start", run_input='{"text": "a"}', **{"value:budget": "10"})
    for _ in range(2):
        found, _ = operator.fill(WAY, WAY, **given)
        assert (found.status, found.headers["Location"]) == (303, "/runs/run:begun?note=started")
    wish = {
        "template_id": NAME,
        "parameters": {"topic": "rain", "budget": 10},
        "input": {"text": "a"},
        "run_id": "run:drawn",
    }
    assert arca.told == [("/runs", wish)] * 2
    drawn = re.findall('name="run_id" value="(run:[0-9a-f]{24})"', operator.page(WAY))
    assert len(drawn) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"value:topic": ""}, "this is needed"),
        ({"value:budget": "much"}, "this is not JSON"),
        ({"run_input": "{"}, "the input of the run is not JSON"),
        ({"run_input": "[]"}, "the input of the run is a JSON object"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_and_nothing_starts(
    operator: Browser, arca: FakeArca, changed: dict[str, str], message: str
) -> None:
    found, text = operator.fill(WAY, WAY, **fields(**{"verb": "start", **changed}))
    assert (found.status, message in words(text)) == (400, True)
    assert arca.told == []


def test_what_arca_refuses_to_start_is_said_and_what_was_typed_stays(
    operator: Browser, arca: FakeArca
) -> None:
    arca.refusal = NodeError(400, "missing_parameter", "the template needs the parameter 'x'")
    found, text = operator.fill(WAY, WAY, **fields(verb="start"))
    assert (found.status, "needs the parameter" in words(text)) == (400, True)
    assert 'value="rain"' in text


def test_a_template_that_is_not_there_is_not_found(operator: Browser) -> None:
    assert operator.send("GET", "/templates/none")[0].status == 404
    assert operator.fill(WAY, "/templates/none", **fields(verb="start"))[0].status == 404


@pytest.mark.parametrize("answer", [None, 5, {}, {"template": None}, {"template": {"label": 5}}])
def test_an_answer_that_is_no_template_is_refused_as_one_of_the_module(
    operator: Browser, arca: FakeArca, answer: Any
) -> None:
    arca.answers["GET /templates/odd"] = lambda _body: answer
    found, text = operator.send("GET", "/templates/odd")
    assert (found.status, "Arca answered with something" in text) == (502, True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (5, "cannot be read"),
        ([], "cannot be read"),
        ({"items": [5, {"template_id": 7}, {}]}, "keeps no template yet"),
        ({"items": {}}, "keeps no template yet"),
    ],
)
def test_a_list_that_is_none_breaks_nothing(
    operator: Browser, arca: FakeArca, answer: Any, said: str
) -> None:
    kept = arca.answers["GET /templates"]
    arca.answers["GET /templates"] = lambda _body: answer
    assert said in words(operator.page("/templates"))
    arca.answers["GET /templates"] = kept


# -- keeping and sharing ---------------------------------------------------------------------


def test_a_template_is_kept_from_its_json(operator: Browser, arca: FakeArca) -> None:
    arca.answers["POST /templates"] = {"status": "stored", "template_id": NAME}
    text = '{"template_id": "biweekly/summary.v1"}'
    found, _ = operator.fill("/templates", "/templates", template=text)
    assert (found.status, found.headers["Location"]) == (303, f"{WAY}?note=template_kept")
    assert arca.told == [("/templates", {"template_id": NAME})]
    arca.told.clear()
    found, page = operator.fill("/templates", "/templates", template='{"template_id"')
    assert (found.status, "the template is not JSON" in words(page)) == (400, True)
    assert arca.told == []
    arca.refusal = NodeError(400, "definition", "line 1: plan is missing")
    found, page = operator.fill("/templates", "/templates", template=text)
    assert (found.status, "line 1: plan is missing" in words(page)) == (400, True)
    assert "{&#34;template_id&#34;: &#34;biweekly/summary.v1&#34;}</textarea>" in page


@pytest.mark.parametrize(
    ("verb", "told", "leads_to"),
    [
        ("publish", (f"{WAY}/publish", {"publish": True}), WAY),
        ("withdraw", (f"{WAY}/publish", {"publish": False}), WAY),
        ("delete", (WAY, None), "/templates"),
    ],
)
def test_a_template_is_published_withdrawn_and_deleted(
    operator: Browser, arca: FakeArca, verb: str, told: Any, leads_to: str
) -> None:
    found, _ = operator.fill(WAY, WAY, verb=verb)
    assert (found.status, found.headers["Location"]) == (303, f"{leads_to}?note=template_{verb}")
    assert arca.told == [told]
    arca.refusal = NodeError(403, "forbidden", "not now")
    found, text = operator.fill(WAY, WAY, verb=verb)
    assert (found.status, "not now" in words(text)) == (403, True)


# -- importing -------------------------------------------------------------------------------


LOOK, KEEP = "POST /templates/import/preview", "/templates/import"


def offered(nodes: TwoNodes, **changes: Any) -> dict[str, Any]:
    return {
        "node_id": nodes.provider.node_id,
        "template_id": NAME,
        "publisher": nodes.provider.participant_id,
        "publisher_runs_node": True,
        "signature": "valid",
        "digest": DIGEST,
        "here": "absent",
        "problems": [],
        "importable": True,
        "template": TEMPLATE,
        **changes,
    }


def look(nodes: TwoNodes, operator: Browser, **more: str) -> tuple[int, str]:
    wish = {"node_id": nodes.provider.node_id, "template_id": NAME, "verb": "look", **more}
    found, text = operator.fill("/templates", "/import-template", **wish)
    return found.status, text


def test_an_import_shows_publisher_and_signature_before_anything_is_kept(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    arca.answers[LOOK] = offered(nodes)
    status, text = look(nodes, operator)
    wish = {"node_id": nodes.provider.node_id, "template_id": NAME}
    assert status == 200
    assert arca.told == [("/templates/import/preview", wish)]
    assert nodes.provider.participant_id in words(text)
    assert "signature valid" in words(text)
    assert "which the publisher runs" in words(text)
    assert "data-panel" not in text
    arca.told.clear()
    seen = {**wish, "digest": DIGEST, "publisher": nodes.provider.participant_id}
    for name, value in seen.items():
        assert f'name="{name}" value="{value}"' in text
    found, _ = operator.fill("/templates", "/import-template", verb="keep", **seen)
    assert (found.status, found.headers["Location"]) == (303, f"{WAY}?note=imported")
    assert arca.told == [(KEEP, seen)]  # what was looked at, and nothing else


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"signature": "invalid"}, "Who wrote this is not proven: its signature is invalid."),
        ({"signature": "missing"}, "Who wrote this is not proven: its signature is missing."),
        ({"signature": 5}, "Who wrote this is not proven: its signature is missing."),
        ({"problems": [{"message": "a step is missing"}]}, "a step is missing"),
        ({"here": "other"}, "This node keeps another template of this id"),
    ],
)
def test_what_must_not_be_kept_is_said_and_has_no_button(
    nodes: TwoNodes, operator: Browser, arca: FakeArca, changes: dict[str, Any], said: str
) -> None:
    arca.answers[LOOK] = offered(nodes, **changes, importable=False)
    _, text = look(nodes, operator)
    assert said in words(text)
    assert 'value="keep"' not in text


def test_without_an_id_the_public_templates_of_a_node_are_listed(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    row = {"template_id": NAME, "publisher": nodes.provider.participant_id, "label": "A summary"}
    arca.answers["POST /templates/browse"] = {"templates": [row, 5], "next": NAME}
    status, text = look(nodes, operator, template_id="")
    assert (status, "A summary biweekly/summary.v1" in words(text)) == (200, True)
    assert arca.told == [("/templates/browse", {"node_id": nodes.provider.node_id})]
    arca.told.clear()
    look(nodes, operator, verb="browse", after=NAME, template_id="")
    asked = {"node_id": nodes.provider.node_id, "after": NAME}
    assert arca.told == [("/templates/browse", asked)]


def test_an_import_that_fails_is_said_at_its_form(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    arca.refusal = NodeError(504, "peer_unreachable", "the node cannot be reached")
    for verb in ("look", "keep", "browse"):
        status, text = look(nodes, operator, verb=verb)
        assert (status, "the node cannot be reached" in words(text)) == (504, True)
        assert f'value="{NAME}"' in text


# -- where Arca is not there -----------------------------------------------------------------


def test_a_node_without_arca_says_how_to_set_it_up(browser_of: Callable[[str], Browser]) -> None:
    text = words(browser_of("provider").page("/templates"))
    assert "does not host Arca" in text
    assert "anabranch node init FOLDER --with arca" in text
