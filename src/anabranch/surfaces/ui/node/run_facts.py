"""What the page of a run says, put together from what the node answers. PURE.

Outputs come from strangers: of a large one there is only its beginning, and nothing here trusts
its shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from anabranch.surfaces.ui.node.views import milliseconds

CLOSED_RUNS = ("completed", "failed", "cancelled", "deadline_exceeded", "step_timeout")
CLOSED_STEPS = (*CLOSED_RUNS, "skipped")
SHOWN_BYTES = 1024  # of an output; the whole of it is where it was delivered
DISPATCHES_SHOWN = 100  # of a step
OFFERS_SHOWN = 100
_SEARCH_DEPTH, _SEARCH_VALUES = 6, 500  # how far offers are looked for in an output
#: What can be said to a run in a status; the module refuses the rest.
VERBS: Mapping[str, tuple[str, ...]] = {
    "pending": ("pause", "cancel"),
    "running": ("pause", "cancel"),
    "paused": ("resume", "cancel"),
}
PAID, RETURNED = ("released",), ("failed", "rejected", "expired")

#: What the codes of failures mean.
WORDS: Mapping[str, str] = {
    "no_targets": "No participant was found that could be asked.",
    "unknown_participant": "It is not known here which node the participant runs.",
    "quorum_unreachable": "Fewer participants can be asked than have to agree.",
    "no_usable_answer": "No participant gave an answer that can be used.",
    "no_offer": "No provider that is trusted here offers this service.",
    "step_timeout": "The step ran out of time.",
    "deadline_exceeded": "The deadline of the run has passed.",
    "cancelled": "The run was cancelled.",
    "not_fulfilled": "The work was done, and judged not to fulfil the task.",
    "offer-not-found": "The offer is not known here any more, or its provider is not trusted.",
    "offer-expired": "The offer has expired, or was withdrawn.",
    "offer-seq-mismatch": "The offer has changed since it was chosen.",
    "provider-mismatch": "The offer is one of another provider.",
    "service-type-mismatch": "The offer is for another service.",
    "currency-mismatch": "The offer is in another currency.",
    "price-exceeded": "The price is above the most that the step may pay.",
    "queue-saturated": "The provider takes no more orders for now.",
    "custodian-mismatch": "The order names another custodian than this node has.",
    "settlement-blocked": "The money cannot be put on hold: the balance is too low, or blocked.",
    "expired": "The provider did not deliver in time; the money came back.",
    "rejected": "The provider rejected the order; the money came back.",
}


class Money(NamedTuple):
    """What the orders of a run come to, in one currency."""

    currency: str
    paid: int
    held: int
    returned: int


class Asked(NamedTuple):
    """One of those whom a fan-out asked. There is no answer of theirs in it."""

    target: str
    node: str
    status: str
    outcome: str
    attempt: int
    at: str
    took: int | None
    due: str


class Compared(NamedTuple):
    """An offer beside the others that a step could have taken."""

    offer: Mapping[str, Any]
    trust: str
    is_known: bool  # it has a page here
    is_chosen: bool
    is_ordered: bool
    duration: int | None  # milliseconds


class Preview(NamedTuple):
    """The beginning of a value, and how many bytes all of it has."""

    text: str
    size: int
    is_cut: bool


def progress(run: Mapping[str, Any]) -> tuple[int, int]:
    """How many steps have ended, of how many."""
    ended = sum(step["status"] in CLOSED_STEPS for step in run["steps"])
    return ended, len(run["steps"])


def current(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The steps that something happens at, or that ended badly."""
    calm = ("pending", "completed", "skipped", "cancelled")
    return [step for step in run["steps"] if step["status"] not in calm]


def awaiting_decision(run: Mapping[str, Any]) -> list[str]:
    """The steps at which a person may say whether the task is fulfilled."""
    if run["status"] in CLOSED_RUNS:
        return []
    return [one["step_id"] for one in run["steps"] if one["status"] == "awaiting_fulfillment"]


def in_words(error: Mapping[str, Any] | None) -> str:
    """What a failure means; "" where its message has to do."""
    return WORDS.get(str(error.get("code", "")), "") if error else ""


def money_of(executions: Iterable[Mapping[str, Any]]) -> list[Money]:
    sums: dict[str, list[int]] = {}
    for one in executions:
        payment = one["payment"]
        paid, held, returned = sums.setdefault(payment["currency"], [0, 0, 0])
        amount = payment["amount"]
        if one["state"] in PAID:
            paid += amount
        elif one["state"] in RETURNED:
            returned += amount if one["hold_id"] else 0
        else:
            held += amount if one["hold_id"] else 0
        sums[payment["currency"]] = [paid, held, returned]
    return [Money(currency, *found) for currency, found in sorted(sums.items())]


def asked_of(step: Mapping[str, Any]) -> list[Asked]:
    """The newest attempt first."""
    rows = sorted(step["dispatches"], key=lambda one: -one.get("attempt", 0))
    return [_asked(one) for one in rows[:DISPATCHES_SHOWN]]


def _asked(dispatch: Mapping[str, Any]) -> Asked:
    began, ended = milliseconds(dispatch["dispatched_at"]), dispatch.get("responded_at")
    answered = milliseconds(ended) if ended else None
    took = answered - began if answered is not None and began is not None else None
    return Asked(
        target=dispatch["target"],
        node=dispatch.get("target_node_id") or "",
        status=dispatch["status"],
        outcome=dispatch.get("outcome") or "",
        attempt=dispatch.get("attempt", 0),
        at=dispatch["dispatched_at"],
        took=max(took, 0) if took is not None else None,
        due=dispatch.get("timeout_at") or "" if dispatch["status"] == "pending" else "",
    )


def compared(
    step: Mapping[str, Any], rows: Iterable[Mapping[str, Any]], ordered: frozenset[str]
) -> list[Compared]:
    """The offers of those who were asked, the cheapest first, and the one that was chosen."""
    asked = {name for one in step["dispatches"] for name in _names(one)}
    known = {row["offer"]["offer/id"]: row for row in rows if _is_of(row["offer"], asked)}
    found = {offer["offer/id"]: offer for offer in offers_in(step.get("selected_output"))}
    chosen = next(iter(found)) if len(found) == 1 else ""
    offers = {**found, **{name: row["offer"] for name, row in known.items()}}
    made = [
        Compared(
            offer,
            str(known[name]["trust_level"]) if name in known else "",
            name in known,
            name == chosen,
            name in ordered,
            _duration(offer),
        )
        for name, offer in offers.items()
    ]
    return sorted(made, key=_by_price)[:OFFERS_SHOWN]


def _names(dispatch: Mapping[str, Any]) -> tuple[str, str]:
    return str(dispatch["target"]), str(dispatch.get("target_node_id") or "")


def _is_of(offer: Mapping[str, Any], asked: set[str]) -> bool:
    return bool(asked & {offer["provider/node-id"], offer["provider/participant-id"]})


def _duration(offer: Mapping[str, Any]) -> int | None:
    seconds = offer.get("delivery/max-duration-sec")
    return seconds * 1000 if isinstance(seconds, int) and 0 < seconds < 10**9 else None


def _by_price(one: Compared) -> tuple[bool, bool, int, str]:
    amount = one.offer.get("pricing/amount")
    known = amount if isinstance(amount, int) else None
    return not one.is_chosen, known is None, known or 0, one.offer["offer/id"]


def offers_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """The offers inside an output of any shape, as far as they can be found quickly."""
    level: Sequence[Any] = [value]
    seen = 0
    for _ in range(_SEARCH_DEPTH):
        below: list[Any] = []
        for one in level[: _SEARCH_VALUES - seen]:
            seen += 1
            if isinstance(one, dict) and isinstance(one.get("offer/id"), str):
                yield one
            elif isinstance(one, dict | list):
                below += list(one.values() if isinstance(one, dict) else one)[:_SEARCH_VALUES]
        level = below


def preview(value: Any) -> Preview:
    data = msgspec.json.encode(value)
    if len(data) > SHOWN_BYTES:
        return Preview(data[:SHOWN_BYTES].decode(errors="ignore"), len(data), True)
    return Preview(json.dumps(value, indent=2, ensure_ascii=False), len(data), False)
