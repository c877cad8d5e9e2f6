"""The arrows of a story: what happens, at which node, and the commit that makes it durable.

Each is seen in a commit of a node, because the host owns everything that counts. A process can be
killed right before that commit, when it has not happened, and right after it, when nothing that
follows has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from anabranch.store.ports import Batch

#: Whose commit it is: the node that buys, or the one that has the order.
Side = Literal["buyer", "provider"]
When = Literal["before", "after"]
Event = Mapping[str, Any]


class Arrow(msgspec.Struct, frozen=True):
    name: str
    side: Side
    words: str
    family: str  # of the streams of a node
    is_it: Callable[[Event], bool]

    def is_in(self, batch: Batch) -> bool:
        return any(
            self.is_it(event)
            for row in batch.streams
            if row.card.family == self.family
            for event in msgspec.json.decode(row.events)
        )


def _typed(*names: str) -> Callable[[Event], bool]:
    return lambda event: event.get("type") in names


def _run(status: str) -> Callable[[Event], bool]:
    return lambda event: event.get("type") == "run-written" and event["run"]["status"] == status


def _fresh(event: Event) -> bool:
    return event.get("type") == "run-written" and event["based_on"] == 0


def _step(status: str) -> Callable[[Event], bool]:
    """Some step has come to it, in a snapshot of the whole run or of one step."""

    def is_it(event: Event) -> bool:
        if event.get("type") == "step-written":
            return bool(event["step"].get("status") == status)
        steps = event["run"].get("steps", ()) if event.get("type") == "run-written" else ()
        return any(step.get("status") == status for step in steps)

    return is_it


#: In the order in which they happen.
ARROWS: tuple[Arrow, ...] = (
    Arrow("offer", "provider", "an offer is signed and published", "local-offer",
          _typed("published")),
    Arrow("passport", "provider", "the passport for the capability is kept", "own-passport",
          _typed("kept")),
    Arrow("run", "buyer", "the run is shown to the host", "workflow-run", _fresh),
    Arrow("asked", "buyer", "providers are asked", "workflow-run", _step("awaiting_fan_out")),
    Arrow("chosen", "buyer", "the first step is completed", "workflow-run", _step("completed")),
    Arrow("ordered", "buyer", "the order is open, its money on hold, its contract made",
          "service-order", _typed("opened")),
    Arrow("prepared", "buyer", "the dispatch request is bound to the order", "service-order",
          _typed("prepared")),
    Arrow("sent", "buyer", "the delivery of the request is taken on", "artifact-delivery",
          _typed("submitted")),
    Arrow("offered", "provider", "the request arrives", "artifact-admission", _typed("offered")),
    Arrow("taken", "provider", "Dator has taken the request", "artifact-admission",
          _typed("decided")),
    Arrow("worked", "provider", "the delivery of the result is taken on", "artifact-delivery",
          _typed("submitted")),
    Arrow("returned", "buyer", "the result arrives", "artifact-admission", _typed("offered")),
    Arrow("admitted", "buyer", "the result closes the work", "service-order", _typed("result")),
    Arrow("released", "buyer", "the money is released, with a receipt", "service-order",
          _typed("moved")),
    Arrow("artifact", "buyer", "the final artifact is written", "module-artifact",
          _typed("artifact-written")),
    Arrow("notified", "buyer", "the operator is told", "module-notification", _typed("notified")),
    Arrow("completed", "buyer", "the run is over", "workflow-run", _run("completed")),
)  # fmt: skip

BY_NAME = {arrow.name: arrow for arrow in ARROWS}
#: Those that happen before a run is submitted.
OF_SETUP = ("offer", "passport")


class Hold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node is told to wait at: the content of the file `hold` in its folder."""

    arrow: str
    when: When = "after"
