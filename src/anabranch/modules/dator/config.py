"""How Dator is set up: the section `dator` of its configuration, from all layers together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.market.identities import public_key
from anabranch.market.node.modules.config import is_module_path, loopback_address

SECTION = "dator"
EXECUTE_PATH = "/v1/role/execute"
OFFERS_MAX = 256
OPEN_MAX = 400  # requests that are not done; the host lists no more than 500 records at once

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
_Seconds = Annotated[int, msgspec.Meta(ge=1, le=3650 * 86_400)]
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=768 * 1024)]  # a record of the host has 1 MiB

UnitKind = Literal["per-item", "per-character-block", "per-request", "per-task", "flat"]
ConfirmationMode = Literal["automatic", "arbiter-confirmed", "self-confirmed", "manual-review-only"]


class DispatchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who does the work."""

    kind: Literal["role-module"] = "role-module"
    capability_id: _Text
    required_sensorium_actions: tuple[_Text, ...] = ()  # told to the role, which decides


class OfferConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One offer, and who does what is ordered from it."""

    service_type: _Text
    pricing_amount: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]  # minor units, for one unit
    dispatch: DispatchConfig
    service_description: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    pricing_currency: Annotated[str, msgspec.Meta(min_length=2, max_length=16)] = "ORC"
    pricing_unit: _Text = "request"
    pricing_unit_kind: UnitKind = "per-request"
    delivery_max_duration_sec: _Seconds = 3_600
    queue_auto_accept: bool = True  # false: an operator decides about every order
    queue_max_depth: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 16
    hybrid: bool = False
    model_first: bool = False
    confirmation_mode: ConfirmationMode | None = None  # `automatic` is not published
    offer_id: str = ""  # "" is one for each type of service


class RoleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a role module listens, and what is asked of it."""

    endpoint: str = ""  # http://127.0.0.1:48001
    invoke_path: str = EXECUTE_PATH
    auth_header: str = ""  # "" shows no token
    token_file: str = ""
    timeout_sec: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    max_concurrent: _Count = 4
    max_answer_bytes: _Bytes = 512 * 1024
    #: Whether work that a crash has interrupted is asked for again, under the same dispatch id.
    repeat_interrupted: bool = True


class PushConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told at once that an offer has changed."""

    node_ids: tuple[_Text, ...] = ()
    capabilities: tuple[_Text, ...] = ()  # all nodes with a passport for one of them
    askers: bool = True  # nodes that have asked for the offers since this module was started


class DatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    offers: Annotated[tuple[OfferConfig, ...], msgspec.Meta(max_length=OFFERS_MAX)] = ()
    roles: dict[str, RoleConfig] = {}  # by capability id
    push: PushConfig = PushConfig()
    offer_valid_sec: _Seconds | None = None  # None is what the host gives
    #: How often an offer is published again only because its queue has become longer or shorter.
    depth_interval_sec: Annotated[float, msgspec.Meta(ge=0.1, le=86_400)] = 30.0
    #: How long orders are taken that name a version of an offer which was replaced.
    superseded_grace_sec: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 900
    max_open: Annotated[int, msgspec.Meta(ge=1, le=OPEN_MAX)] = 256
    max_request_bytes: _Bytes = 512 * 1024
    #: How long a result is sent again that did not arrive, from the deadline of its order on.
    resend_sec: _Seconds = 86_400
    #: How old an order may be when it comes, and how long those that have ended are remembered.
    remember_sec: _Seconds = 30 * 86_400

    @property
    def max_of_a_buyer(self) -> int:
        """Of what may be open: one that orders much leaves a quarter for others."""
        return -(-self.max_open * 3 // 4)


def dator_config(raw: Mapping[str, Any]) -> DatorConfig:
    """The section `dator` of all layers. Raises `InputError` with the name of the setting."""
    try:
        config = msgspec.convert(raw.get(SECTION, {}), DatorConfig)
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    for at, offer in enumerate(config.offers):
        if problem := offer_problem(offer):
            raise _wrong(f"offers[{at}].{problem}")
    for name, role in config.roles.items():
        if problem := _role_problem(role):
            raise _wrong(f"roles.{name}.{problem}")
    for node in config.push.node_ids:
        _require_node(node)
    names = Counter(one.offer_id or one.service_type for one in config.offers)
    for name, times in names.items():
        if times > 1:
            raise _wrong(f"offers: {name!r} stands there twice; give each an `offer_id`")
    return config


def offer_of(given: Any) -> OfferConfig:
    """An offer that is handed in. Raises `InputError`."""
    try:
        offer = msgspec.convert(given, OfferConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"offer: {error}", code="schema") from None
    if problem := offer_problem(offer):
        raise InputError(f"offer.{problem}", code="schema")
    return offer


def require_roles(config: DatorConfig) -> None:
    """Every offer has a role module with an address. Raises `InputError`."""
    for at, offer in enumerate(config.offers):
        name = offer.dispatch.capability_id
        if name not in config.roles:
            raise _wrong(f"offers[{at}].dispatch.capability_id: roles has no {name!r}")
    for name, role in config.roles.items():
        if not role.endpoint:
            raise _wrong(f"roles.{name}.endpoint is missing")


def offer_problem(offer: OfferConfig) -> str:
    """What is wrong with an offer, beginning with the name of the setting; or nothing."""
    if offer.model_first and not offer.hybrid:
        return "model_first: it is only for hybrid offers; write false, or set `hybrid` to true"
    if offer.offer_id and not offer.offer_id.startswith("offer:"):
        return "offer_id: it begins with `offer:`"
    return ""


def _role_problem(role: RoleConfig) -> str:
    if role.endpoint:
        try:
            loopback_address(role.endpoint)
        except InputError as error:
            return f"endpoint: {error.message}"
    if not is_module_path(role.invoke_path):
        return f"invoke_path: a path such as {EXECUTE_PATH} is needed"
    if bool(role.auth_header) != bool(role.token_file):
        return "auth_header: the header and `token_file` are given together"
    return ""


def _require_node(node: str) -> None:
    try:
        public_key(node)
    except InputError as error:
        raise _wrong(f"push.node_ids: {error.message}") from None
    if not node.startswith("node:"):
        raise _wrong("push.node_ids: it names nodes, such as node:did:key:z6Mk…")


def _wrong(message: str) -> InputError:
    return InputError(f"{SECTION}: {message}", code="module_config")
