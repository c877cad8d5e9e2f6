"""`workflow.template.sign` signs templates as their publisher, and nothing else in the world."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.market.documents import check, digest_of
from anabranch.market.identities import canonical, is_signed_by
from anabranch.market.node.modules.api.template_signing import TEMPLATE_BYTES
from anabranch.testing.market import Answered, NodeSpec, World
from anabranch.testing.market.nodes import WorldSigner

from ....documents.examples import SEAL, STRANGER_ID, offer, order
from ..support import ScriptedModule, run

GRANT = "workflow.template.sign"
STEP = {"step_id": "a", "service_type": "text/summarise", "input": {"of": "{{params.topic}}"}}


def template(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "workflow-template.v1",
        "template_id": "weekly.v1",
        "label": "Weekly",
        "parameters": {"topic": {"type": "string"}},
        "plan": {"steps": [STEP]},
        **changes,
    }


async def sign(body: Any, *, grants: tuple[str, ...] = (GRANT,), times: int = 1) -> list[Answered]:
    """What the host answers to a module with these grants, asked so often."""
    module = {"arca": lambda _host: ScriptedModule("arca")}
    async with World(nodes=[{"name": "a", "modules": module, "grants": grants}]) as world:
        path = f"/v1/host/capabilities/{GRANT}"
        return [await world["a"].request("POST", path, body, as_="arca") for _ in range(times)]


def signed_by(**more: Any) -> Answered:
    (answer,) = run(sign(**more))
    return answer


PUBLISHER = WorldSigner(NodeSpec(name="a")).participant_id


def test_a_template_is_signed_by_the_participant_of_the_node_always_the_same_way() -> None:
    first, again = run(sign({"template": template()}, times=2))
    signed = first.body["template"]
    assert signed["participant_id"] == PUBLISHER
    assert {**template(), "participant_id": PUBLISHER} == {
        key: value for key, value in signed.items() if key != "signature"
    }
    assert is_signed_by(signed, PUBLISHER)
    assert check(signed) == []
    assert first.body["digest"] == digest_of(canonical(signed))
    own = signed_by(body={"template": template(participant_id=PUBLISHER)})
    assert first.body == again.body == own.body


#: What a module might want to have signed with the key of the participant.
FORGED: dict[str, Any] = {
    "an offer": {key: value for key, value in offer().items() if key != "signature"},
    "an order": {key: value for key, value in order().items() if key != "signature"},
    "an offer that is a template, too": {**offer(signature=None), **template()},
    "a template with the fields of an offer": template(**{"offer/id": "offer:a", "schema/v": 1}),
    "a template with the id of a passport": template(passport_id="passport:capability:a"),
    "another schema": template(schema="capability-passport.v1"),
    "no schema": {key: value for key, value in template().items() if key != "schema"},
    "another kind": template(template_kind="offer", service_type="text/summarise"),
    "one that is deleted": template(deleted=True),
    "a plan with a cycle": template(plan={"steps": [{**STEP, "depends_on": ["a"]}]}),
    "deadline_seconds": template(deadline_seconds=5),
    "a parameter that is not declared": template(parameters={}),
    "a number with a point": template(input={"share": 0.5}),
    "a number beyond all": template(input={"many": 2**60}),
    "one that is too deep": template(
        plan={"steps": [{**STEP, "input": {"a": json.loads("[" * 70 + "]" * 70)}}]}
    ),
    "a list": [template()],
    "nothing": None,
}


@pytest.mark.parametrize("what", FORGED)
def test_nothing_but_a_template_is_signed(what: str) -> None:
    refused = signed_by(body={"template": FORGED[what]})
    assert refused.status in (400, 409), refused.body
    assert "template" not in refused.body


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"template": template(participant_id=STRANGER_ID)}, 403, "other_publisher"),
        ({"template": template(signature=SEAL)}, 409, "already_signed"),
        ({"template": template(description="x" * TEMPLATE_BYTES)}, 413, "too_large"),
        ({"template": template(), "as": STRANGER_ID}, 400, "schema"),
        (template(), 400, "schema"),
    ],
)
def test_what_is_refused_has_its_class(body: Any, status: int, code: str) -> None:
    refused = signed_by(body=body)
    assert (refused.status, refused.body["code"]) == (status, code)


def test_a_module_without_the_grant_has_nothing_signed() -> None:
    refused = signed_by(body={"template": template()}, grants=("offers.*",))
    assert (refused.status, refused.body["code"]) == (403, "host_capability_forbidden")
