"""One small definition of each language, for whoever looks at an empty editor."""

from __future__ import annotations

import json
from collections.abc import Mapping

_PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: greetings, description: Greets some people at once and goes on with all answers.}
workload: {people: [Ada, Bob, Cyd], loud: false}
workflow:
  - step: greet
    loop: {in: "{{ workload.people }}", iterator: person, spec: {mode: parallel}}
    tool: {kind: noop, result: "Hello, {{ iter.person }}"}
    next: {arcs: [{step: report}]}
  - step: report
    tool: {kind: noop, result: "{{ workload.people | length }} greeted"}
"""

_ORCHESTRATION = {
    "id": "second_opinion",
    "structure": {
        "ORDER": {
            "rule": "cm:xrc137:ORDER",
            "onValid": {
                "spawns": ["WEIGHT", "STOCK", "CREDIT"],
                "join": {
                    "joinid": "APPROVE",
                    "mode": "kofn",
                    "k": 2,
                    "waitonjoin": "kill",
                    "from": [
                        {"node": node, "when": "valid"} for node in ("WEIGHT", "STOCK", "CREDIT")
                    ],
                },
            },
        },
        **{
            node: {"rule": f"cm:xrc137:{node}"} for node in ("WEIGHT", "STOCK", "CREDIT", "APPROVE")
        },
    },
}
_AMOUNT = {"amount": {"type": "int64", "default": 5}}
_RULES = {
    "ORDER": {"payload": _AMOUNT, "rules": ["[amount] > 0"]},
    "WEIGHT": {"payload": _AMOUNT, "rules": ["[amount] * 3 < 600"]},
    "STOCK": {"payload": _AMOUNT, "rules": ["[amount] <= 50"]},
    "CREDIT": {"payload": _AMOUNT, "rules": ["[amount] <= 100"]},
    "APPROVE": {"payload": {}},
}

_WORKFLOW = {
    "workflow_id": "best_offer",
    "description": "Asks several at once and takes the cheapest answer that comes in time.",
    "deadline": "PT1M",
    "plan": {
        "steps": [
            {
                "step_id": "solicit",
                "service_type": "text/summarise",
                "input": {"text": "{{input.text}}"},
                "target": {"resolve": "static", "participants": ["north", "south"]},
                "fan_in": {"policy": "best_of", "score_field": "/price", "score_order": "asc"},
                "timing": {"timeout": "PT5S", "on_timeout": "fail"},
            }
        ]
    },
}


def _text(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"


#: word → the text, and the rules beside it
EXAMPLES: Mapping[str, tuple[str, str]] = {
    "a playbook": (_PLAYBOOK, ""),
    "an orchestration": (_text(_ORCHESTRATION), _text(_RULES)),
    "a workflow definition": (_text(_WORKFLOW), ""),
}
