"""What the roles of the stories do: the same input always gives the same output.

Each is a role module of Dator (`work`, or a function that stands for a variant): it gets the input
of an order and the whole request, and returns the output. Roles of story 009 keep what they make as
facts and answer with pointers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from anabranch.surfaces.stories.facts import FILE, Facts

Given = Mapping[str, Any]
SUMMARY_WORDS = 9


def work(given: Given, task: Mapping[str, Any]) -> dict[str, Any]:
    return TASKS[task["service_type"]](given)


async def stalled(given: Given, task: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Takes every order and never answers."""
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


def rejecting(given: Given, task: Mapping[str, Any]) -> dict[str, Any]:
    """Reviews without mercy; everything else as usual."""
    if task["service_type"] == "text/review":
        return reviewed(given, "rejected")
    return work(given, task)


# -- story 006 -----------------------------------------------------------------------------------


def summarise(given: Given) -> dict[str, Any]:
    words = str(given["text"]).split()
    return {"summary": " ".join(words[:SUMMARY_WORDS]), "words": len(words)}


# -- story 009 -----------------------------------------------------------------------------------


def research(given: Given) -> dict[str, Any]:
    notes = [f"{given['subject']}: note {number}" for number in range(1, 4)]
    return _made("researched", {"kind": "draft", "words": given["words"], "notes": notes})


def illustrate(given: Given) -> dict[str, Any]:
    return _made("illustrated", {"kind": "image", "shows": given["subject"], "of": given["draft"]})


def reviewed(given: Given, status: str) -> dict[str, Any]:
    made = _made(status, {"kind": "review", "of": given["draft"], "status": status})
    return {**made, "review": {"status": status}}


def review(given: Given) -> dict[str, Any]:
    return reviewed(given, "accepted")


def publish(given: Given) -> dict[str, Any]:
    """Only what was reviewed; the pointers of all parts are needed."""
    missing = [name for name in ("draft", "image", "review") if not given.get(name)]
    parts = {name: given.get(name) for name in ("draft", "image", "review")}
    made = _made("published", {"kind": "post", **parts})
    verdict = {"status": "not_fulfilled", "missing": missing} if missing else {}
    return {**made, "verification": verdict or {"status": "fulfilled"}}


def announce(given: Given) -> dict[str, Any]:
    fact = {"kind": "workflow-completed", "event": given["event"], "run": given["run"],
            "post": given["post"]}  # fmt: skip
    return {**_made("announced", fact), "event": given["event"]}


TASKS: dict[str, Callable[[Given], dict[str, Any]]] = {
    "text/summarise": summarise,
    "text/research": research,
    "image/illustrate": illustrate,
    "text/review": review,
    "site/publish": publish,
    "workflow/announce": announce,
}


def _made(outcome: str, fact: Mapping[str, Any]) -> dict[str, Any]:
    """A pointer to what was made."""
    home = os.environ.get("ORBIPLEX_MIDDLEWARE_HOME", "")
    return {"outcome": outcome, "record_id": _facts(home).keep(fact)}


@cache
def _facts(home: str) -> Facts:
    return Facts(Path(home) / FILE if home else None)
