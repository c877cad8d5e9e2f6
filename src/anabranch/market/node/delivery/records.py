"""Deliveries: their events, what they come to, and the bytes they carry."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from anabranch.market.node.delivery.plan import Outcome, Stage
from anabranch.market.node.entities import Family
from anabranch.market.node.ids import derived

Status = Literal[
    "accepted", "running", "succeeded", "partial", "failed-retryable", "failed-permanent", "expired"
]
TERMINAL: frozenset[str] = frozenset({"succeeded", "partial", "failed-permanent", "expired"})
HISTORY_KEPT = 50  # attempts of one delivery that are listed; the log has all of them


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """What is delivered; the bytes are kept under their digest."""

    schema: str
    content_type: str
    digest: str
    size: int
    ref: str = ""  # where the bytes came from, if not with the envelope


class Submitted(msgspec.Struct, frozen=True, kw_only=True, tag="submitted"):
    component_id: str
    artifact: Artifact
    plan_digest: str
    stages: tuple[Stage, ...]
    at: int
    expires_at: int
    route_ref: str = ""
    idempotency_key: str = ""
    privacy: str = ""
    again: bool = True  # at-least-once; False is best-effort
    stage_ms: int = 0
    order_id: str = ""  # of a dispatch request: its order is told what becomes of it


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """An attempt begins."""

    at: int


class StageFailed(msgspec.Struct, frozen=True, kw_only=True, tag="stage-failed"):
    """The attempt goes on with another stage."""

    at: int
    stage_id: str
    outcomes: tuple[Outcome, ...]
    next: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """An attempt has ended."""

    at: int
    status: Literal["succeeded", "partial", "failed-retryable", "failed-permanent"]
    stage_id: str = ""
    outcomes: tuple[Outcome, ...] = ()
    failure_class: str = ""
    diagnostic: str = ""
    next_at: int = 0


class Reopened(msgspec.Struct, frozen=True, kw_only=True, tag="reopened"):
    """The node went down during an attempt."""

    at: int


class Expired(msgspec.Struct, frozen=True, kw_only=True, tag="expired"):
    at: int


class Promised(msgspec.Struct, frozen=True, kw_only=True, tag="promised"):
    """Its outcome was promised to the caller, as a deferred operation."""

    at: int


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """The order knows what became of its dispatch."""

    at: int


Event = Submitted | Started | StageFailed | Ended | Reopened | Expired | Promised | Told


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not end the delivery."""

    number: int
    at: int
    failure_class: str
    diagnostic: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery as it stands."""

    submitted: Submitted
    updated_at: int
    status: Status = "accepted"
    attempts: int = 0
    stage: int = 0  # the one that is tried, or with which the next attempt begins
    outcomes: dict[str, tuple[Outcome, ...]] = {}  # by stage, those tried so far
    failure_class: str = ""
    diagnostic: str = ""
    next_at: int = 0  # when it is tried again
    history: tuple[Attempt, ...] = ()
    promised: bool = False  # there is a deferred operation
    told: bool = False


def evolve(state: Delivery | None, event: Event) -> Delivery:
    if isinstance(event, Submitted):
        return Delivery(submitted=event, updated_at=event.at)
    assert state is not None
    change: dict[str, Any] = {"updated_at": event.at}
    match event:
        case Started():
            change |= {"status": "running", "attempts": state.attempts + 1, "next_at": 0}
        case StageFailed():
            change |= {
                "stage": event.next,
                "outcomes": {**state.outcomes, event.stage_id: event.outcomes},
            }
        case Ended():
            change |= _ended(state, event)
        case Reopened():
            note = "the node went down during the attempt"
            change |= {"status": "failed-retryable", "next_at": event.at}
            change |= _failed(state, event.at, "adapter-transient", note)
        case Expired():
            note = state.diagnostic or "it was not delivered in time"
            change |= {"status": "expired", "next_at": 0, "diagnostic": note}
        case Promised():
            change |= {"promised": True}
        case Told():
            change |= {"told": True}
    return msgspec.structs.replace(state, **change)


def _ended(state: Delivery, event: Ended) -> dict[str, Any]:
    change: dict[str, Any] = {"status": event.status, "stage": 0, "next_at": event.next_at}
    if event.stage_id:
        change["outcomes"] = {**state.outcomes, event.stage_id: event.outcomes}
    if event.status == "succeeded":
        return {**change, "failure_class": "", "diagnostic": ""}
    if event.status != "failed-retryable":
        return {
            **change,
            "failure_class": event.failure_class,
            "diagnostic": event.diagnostic,
        }
    return change | _failed(state, event.at, event.failure_class, event.diagnostic)


def _failed(state: Delivery, at: int, failure_class: str, diagnostic: str) -> dict[str, Any]:
    attempt = Attempt(
        number=state.attempts, at=at, failure_class=failure_class, diagnostic=diagnostic
    )
    return {
        "failure_class": failure_class,
        "diagnostic": diagnostic,
        "history": (*state.history, attempt)[-HISTORY_KEPT:],
    }


def _is_open(state: Delivery) -> bool:
    return state.status not in TERMINAL or bool(state.submitted.order_id and not state.told)


def _wake(state: Delivery) -> int | None:
    match state.status:
        case "accepted":
            return state.submitted.expires_at
        case "failed-retryable":
            return min(state.next_at, state.submitted.expires_at)
    return None  # an attempt ends by its own timeouts


DELIVERIES: Family[Delivery] = Family(
    "artifact-delivery",
    Delivery,
    Event,
    evolve,
    is_open=_is_open,
    wake=_wake,
    group=lambda state: state.submitted.component_id,
)


# -- bytes -----------------------------------------------------------------------------------


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="kept"):
    """Bytes under their digest, in standard base64; `brief` where a delivery alone needs them."""

    base64: str
    size: int
    brief: bool = False
    at: int = 0


class Content(msgspec.Struct, frozen=True, kw_only=True):
    base64: str
    size: int
    brief: bool = False
    at: int = 0


BRIEF = "brief"  # the group of those that a delivery alone needs

CONTENTS: Family[Content] = Family(
    "artifact-content",
    Content,
    Kept,
    lambda _state, event: Content(
        base64=event.base64, size=event.size, brief=event.brief, at=event.at
    ),
    group=lambda state: BRIEF if state.brief else "",
    begins_anew=lambda _event: True,
)


def delivery_id_of(component_id: str, digest: str, plan_digest: str, key: str) -> str:
    name = derived(
        "anabranch artifact-delivery.delivery.v1", component_id, digest, plan_digest, key
    )
    return f"delivery:{name}"
