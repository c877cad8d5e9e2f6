"""The kinds of documents by name, and which one a document is by its fields.

Most documents say what they are under `schema`. Offers, orders and the other documents of trade
have only `schema/v`; calls of modules and messages of peers have `schema_version` or nothing at
all: these are told apart by fields that no other kind has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.documents import (
    agora,
    capabilities,
    deferred,
    delivery,
    middleware,
    module_calls,
    offers,
    orders,
    procurement,
    workflows,
)
from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.shapes import Fields
from anabranch.net.problems import did_you_mean

KINDS: Mapping[str, Fields] = {
    **offers.KINDS,
    **orders.KINDS,
    **procurement.KINDS,
    **delivery.KINDS,
    **deferred.KINDS,
    **capabilities.KINDS,
    **middleware.KINDS,
    **module_calls.KINDS,
    **workflows.KINDS,
    **agora.KINDS,
}

_BY_VALUE: Mapping[str, Mapping[str, str]] = {
    "capability_id": {
        **module_calls.BY_CAPABILITY,
        "seed_directory_query": "seed-directory-query",
        "role_task_execute": "role-task-request",
        "service_dispatch_execute": "service-dispatch-response",
    },
    "envelope_kind": {
        "peer-message": "peer-message-invoke.v1",
        "local-input": "local-input-invoke.v1",
    },
}

#: The first of these whose fields a document has says what it is.
_BY_FIELDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("relay/id",), "service-offer-relay.v1"),
    (("entry/participant-id",), "trusted-provider.v1"),
    (("receipt/id",), "procurement-receipt.v1"),
    (("hold/id",), "ledger-hold.v1"),
    (("contract/id",), "procurement-contract.v1"),
    (("response/id",), "response-envelope.v1"),
    (("advertisement/id",), "capability-advertisement.v1"),
    (("order/id",), "service-order.v1"),  # receipts and contracts may name their order, too
    (("offer/id",), "service-offer.v1"),
    (("advertisement", "sequence/no"), "seed-directory-registration"),
    (("endpoints", "passport"), "seed-directory-row"),
    (("admission/id", "acceptor/id"), "artifact-delivery-acceptor-invoke.v1"),
    (("acceptor/id", "status"), "artifact-delivery-admission-response.v1"),
    (("acceptor_id", "artifact_schema"), "artifact-delivery-acceptor"),
    (("executor_id", "executor_kind"), "middleware-init"),
    (("module_id", "module_name"), "middleware-module-report"),
    (("module_id", "http"), "middleware-executor"),
    (("module_id", "input_chains"), "middleware-module-report"),
    (("module_id", "capabilities"), "middleware-module-report"),
    (("decision", "reason"), "middleware-decision"),
    (("query_id", "template_id"), "workflow-template.fetch.request"),
    (("query_id", "templates"), "workflow-template.fetch.response"),
    (("query_id", "template"), "workflow-template.fetch.response"),
    (("template_id",), "workflow-template.v1"),
    (("dispatch_id", "respond_by"), "workflow.fanout.request"),
    (("dispatch_id", "dispatched_at"), "workflow-dispatch.v1"),
    (("dispatch_id", "status"), "workflow.fanout.response"),
    (("record_kind", "record_id", "created_at"), "module-store-record.v1"),
    (("pushed_at",), "offer-catalog.push"),
    (("relay",), "offer-catalog.push"),
    (("offers", "query_id"), "offer-catalog.fetch.response"),
    (("offers", "responded_at"), "offer-catalog.fetch.response"),
    (("local_offers",), "offer-catalog-query-response.v1"),
    (("observed_offers",), "offer-catalog-query-response.v1"),
    (("query_id", "filter"), "offer-catalog.fetch.request"),
)


def kind_of(document: Mapping[str, Any], found: Found) -> str:
    """The name of the kind, or "" where there is none, which is told."""
    named = document.get("schema")
    if named is not None:
        if isinstance(named, str) and named in KINDS:
            return named
        return _unknown(named, "schema", found)
    for key, kinds in _BY_VALUE.items():
        value = document.get(key)
        if isinstance(value, str) and value in kinds:
            return kinds[value]
    for fields, kind in _BY_FIELDS:
        if all(field in document for field in fields):
            return kind
    message = (
        "nothing here says what this is: name its kind, or add `schema`, or the id field of "
        "its kind, such as `offer/id` or `order/id`"
    )
    if any(key in document for key in ("plan", "steps", "workflow", "structure")):
        message += "; `anabranch check` checks workflow definitions"
    found.add("", "unknown-kind", message)
    return ""


def _unknown(named: Any, key: str, found: Found) -> str:
    hint = did_you_mean(named, KINDS) if isinstance(named, str) else ""
    message = f"there is no document {shown(named)}{f'; {hint}' if hint else ''}"
    found.add(below("", key) if key else "", "unknown-kind", message)
    return ""


def shape_of(kind: str, found: Found) -> Fields | None:
    """The shape of a kind that the caller names."""
    if kind not in KINDS:
        _unknown(kind, "", found)
    return KINDS.get(kind)
