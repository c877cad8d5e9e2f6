"""The states of an execution, and what leads from one to the next.

    opened ─▶ dispatch_prepared ─▶ dispatched ─▶ awaiting_acceptance | awaiting_manual_release
                                                       └─▶ released
                                   any of these ─▶ failed | rejected | expired | disputed

`TRANSITIONS` is the whole machine: from a state, by a trigger, to a state, with what becomes of the
hold and which receipt is written. What is not in it cannot happen.
"""

from __future__ import annotations

from typing import NamedTuple

WORKING = ("opened", "dispatch_prepared", "dispatched")  # the provider has to do something
SENT = ("dispatch_prepared", "dispatched")  # an answer may come before we know that it arrived
AWAITING = ("awaiting_acceptance", "awaiting_manual_release")
TERMINAL = ("released", "failed", "rejected", "expired")
STATES = (*WORKING, *AWAITING, "disputed", *TERMINAL)


class Step(NamedTuple):
    """Where a trigger leads. `hold` is released, refunded or frozen, "" where it stays as it is;
    `receipt` is the outcome of the receipt, "" where none is written."""

    to: str
    hold: str = ""
    receipt: str = ""


RELEASED = Step("released", "released", "settled")

TRANSITIONS: dict[tuple[str, str], Step] = {
    ("opened", "prepare"): Step("dispatch_prepared"),
    ("dispatch_prepared", "dispatch"): Step("dispatched"),
    ("dispatch_prepared", "dispatch-failure"): Step("failed", "refunded", "rejected"),
    **{(state, "work-by"): Step("expired", "refunded", "expired") for state in WORKING},
    # A result, by its status; what is completed also by the mode of confirmation.
    **{(state, "completed-for-acceptance"): Step("awaiting_acceptance") for state in SENT},
    **{(state, "completed-for-review"): Step("awaiting_manual_release") for state in SENT},
    **{(state, "completed"): RELEASED for state in SENT},
    **{(state, "failed"): Step("failed", "refunded", "rejected") for state in SENT},
    **{(state, "rejected"): Step("rejected", "refunded", "rejected") for state in SENT},
    # What people say to a completed one, or time.
    **{(state, "accept"): RELEASED for state in AWAITING},
    **{(state, "release"): RELEASED for state in AWAITING},
    ("awaiting_acceptance", "auto-release"): RELEASED,
    ("awaiting_acceptance", "dispute"): Step("disputed", "frozen"),
    ("disputed", "for-payer"): Step("rejected", "refunded", "rejected"),
    ("disputed", "for-payee"): RELEASED,
}


def step(state: str, trigger: str) -> Step | None:
    return TRANSITIONS.get((state, trigger))


def trigger_of_result(status: str, mode: str, *, on_hold: bool) -> str:
    """The trigger that a result is. Without money on hold there is nothing to confirm."""
    if status != "completed" or not on_hold or not mode:
        return status
    return "completed-for-review" if mode == "manual-review-only" else "completed-for-acceptance"
