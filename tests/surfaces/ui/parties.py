"""Participants on real sockets of this machine who answer when a test lets them, and workflows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from work.participants.loopback_participants import Behaviour, Party, Visit, closed_port, reply

EXAMPLES = Path(__file__).parents[3] / "examples"
TYPE = "text/summarise"


class Market:
    """A book of participants; each has a door, and answers once it is open."""

    def __init__(self) -> None:
        self._doors: dict[str, threading.Event] = {}
        self._answers: dict[str, Any] = {}
        self._names: list[str] = []
        self.party: Party

    def add(self, name: str, answer: Any) -> None:
        self._names.append(name)
        self._answers[name] = answer
        self._doors[name] = threading.Event()

    def open(self, *names: str) -> None:
        for name in names:
            self._doors[name].set()

    def shut(self, *names: str) -> None:
        for name in names:
            self._doors[name].clear()

    def says(self, name: str, answer: Any) -> None:
        self._answers[name] = answer

    def behaviours(self) -> dict[str, Behaviour]:
        return {name: self._behaviour(name) for name in self._names}

    def _behaviour(self, name: str) -> Behaviour:
        async def answer(writer: asyncio.StreamWriter, _visit: Visit) -> None:
            while not self._doors[name].is_set():
                await asyncio.sleep(0.005)
            writer.write(reply(json.dumps(self._answers[name])))

        return answer

    def book(self) -> dict[str, Any]:
        nobody = {"url": f"http://127.0.0.1:{closed_port()}/"}
        known = {
            name: {"url": self.party.url(name), "service_types": [TYPE]}
            for name in self._names
            if "." not in name
        }
        reviewer = {"url": self.party.url("reviewer"), "service_types": ["role.reviewer"]}
        sources = {"publication.verify": {"url": self.party.url("publication.verify")}}
        people = {**known, "away": nobody, "reviewer": reviewer}
        return {"participants": people, "capabilities": sources}


@contextmanager
def market() -> Iterator[Market]:
    """Three who offer, one who says no, one without a price; a reviewer and a judge."""
    made = Market()
    for name, answer in (
        ("north", {"price": 9, "summary": "long"}),
        ("south", {"price": 4, "summary": "short"}),
        ("east", {"price": 4, "summary": "as short"}),
        ("west", {"status": "no_offer_available"}),
        ("odd", {"price": "almost nothing"}),
        ("reviewer", {"verdict": "accepted"}),
        ("publication.verify", {"ok": True}),
    ):
        made.add(name, answer)
    with Party(made.behaviours()) as party:
        made.party = party
        yield made


def example(name: str, **of_step: Any) -> str:
    """A definition of `examples/arca`, with other values in its first step."""
    document = json.loads((EXAMPLES / "arca" / name).read_text())
    document["plan"]["steps"][0].update(of_step)
    return json.dumps(document, indent=2)


def solicit(*names: str, policy: str, name: str = "ask", **more: Any) -> str:
    """A definition of one step that asks those."""
    fan_in: dict[str, Any] = {"policy": policy}
    if policy == "best_of":
        fan_in |= {"score_field": "/price", "score_order": "asc"}
    if policy == "quorum":
        fan_in["min_responses"] = 2
    step: Mapping[str, Any] = {
        "step_id": "ask",
        "service_type": TYPE,
        "input": {"text": "{{input.text}}"},
        "target": {"resolve": "static", "participants": list(names)},
        "fan_in": fan_in,
        "timing": {"timeout": "PT10M"},
        **more,
    }
    document = {"workflow_id": name, "input": {"text": "x"}, "plan": {"steps": [step]}}
    return json.dumps(document, indent=1)
