"""One good document of every kind, made with keys of fixed seeds. Changes are signed, too."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.market.documents import digest_of
from anabranch.market.documents.signing import AUTHORITIES
from anabranch.market.identities import SigningKey
from anabranch.market.passports import issue_passport, revoke_passport

from ..support import key

Document = dict[str, Any]
GONE = object()  # a change that takes the field away

BUYER, PROVIDER, ORG, STRANGER = key(1), key(2), key(3), key(4)
BUYER_NODE, PROVIDER_NODE = BUYER.identity("node"), PROVIDER.identity("node")
BUYER_ID, PROVIDER_ID = BUYER.identity("participant"), PROVIDER.identity("participant")
STRANGER_ID, STRANGER_NODE = STRANGER.identity("participant"), STRANGER.identity("node")
ORG_ID = ORG.identity("org")

BEFORE, BEGIN, NOW = "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z", "2026-06-10T08:00:00Z"
LATER, END, AFTER = "2026-06-11T08:00:00Z", "2026-07-01T00:00:00Z", "2026-08-01T00:00:00Z"


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> Document:
    merged = {**document, **changes}
    return {name: value for name, value in merged.items() if value is not GONE}


SEAL = {"alg": "ed25519", "value": "A" * 86}  # the form of a signature, of no content


def signed(
    kind: str, fields: Mapping[str, Any], changes: Mapping[str, Any], by: SigningKey
) -> Document:
    """Signed by that key, also where it is not the one that must sign; a given signature stays."""
    document = changed(fields, changes)
    if "signature" in changes:
        return document
    try:
        return by.sign(document, AUTHORITIES[kind].without(document))
    except InputError:  # what is in it cannot be signed
        return {**document, "signature": SEAL}


def offer(by: SigningKey = PROVIDER, /, **changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "offer/id": "offer:summaries-1",
        "created-at": BEGIN,
        "published-at": BEGIN,
        "expires-at": END,
        "sequence/no": 1,
        "provider/node-id": PROVIDER_NODE,
        "provider/participant-id": PROVIDER_ID,
        "service/type": "text/summarise",
        "service/description": "summaries of short texts",
        "pricing/amount": 250,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-item",
        "delivery/max-duration-sec": 60,
        "queue/auto-accept": True,
        "queue/max-depth": 4,
        "hybrid": False,
    }
    return signed("service-offer.v1", fields, changes, by)


def relay(**changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "relay/id": "offer-relay:1",
        "relay/origin-node-id": PROVIDER_NODE,
        "relay/hops": 1,
        "relay/relayed-at": BEGIN,
        "offer": offer(),
    }
    return changed(fields, changes)


def trusted_provider(**changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "entry/participant-id": PROVIDER_ID,
        "entry/added-at": BEGIN,
        "entry/added-by": "operator",
    }
    return changed(fields, changes)


def order(by: SigningKey = BUYER, /, **changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "order/id": "order:run-1-summarise-a1",
        "created-at": NOW,
        "buyer/node-id": BUYER_NODE,
        "buyer/subject-kind": "participant",
        "buyer/subject-id": BUYER_ID,
        "provider/node-id": PROVIDER_NODE,
        "provider/participant-id": PROVIDER_ID,
        "offer/id": "offer:summaries-1",
        "offer/seq": 1,
        "service/type": "text/summarise",
        "request/units": 2,
        "request/input": {"text": "rivers"},
        "pricing/max-amount": 500,
        "pricing/currency": "ORC",
        "delivery/requested-by": LATER,
        "workflow/run-id": "run:1",
        "workflow/phase-id": "summarise",
    }
    return signed("service-order.v1", fields, changes, by)


def org_order(by: SigningKey = BUYER, /, **changes: Any) -> Document:
    fields = {
        "buyer/subject-kind": "org",
        "buyer/subject-id": ORG_ID,
        "buyer/operator-participant-id": BUYER_ID,
    }
    return order(by, **{**fields, **changes})


def dispatch_request(**changes: Any) -> Document:
    fields = {
        "schema": "service-order.dispatch.request.v1",
        "request_id": "remote-execution:run:1:summarise:a1",
        "order": order(),
        "dispatch_payload": {"schema_version": "v1", "capability_id": "service_dispatch_execute"},
        "service_type": "text/summarise",
        "request/input": {"text": "rivers"},
        "workflow/run-id": "run:1",
        "workflow/phase-id": "summarise",
        "correlation/id": "run:1",
        "reply/target": {"selector/kind": "node", "node/id": BUYER_NODE},
        "delivery_deadline": LATER,
    }
    return changed(fields, changes)


def reply_plan(*stages: Document, **changes: Any) -> Document:
    target = {"selector/kind": "node", "node/id": BUYER_NODE}
    stage = {
        "stage/id": "first",
        "mode": "parallel",
        "targets": [target],
        "success/policy": "all",
    }
    return changed({"mode": "sequence", "stages": list(stages) or [stage]}, changes)


def result(**changes: Any) -> Document:
    fields = {
        "schema": "service-order.result.v1",
        "request_id": "remote-execution:run:1:summarise:a1",
        "workflow/run-id": "run:1",
        "workflow/phase-id": "summarise",
        "correlation/id": "run:1",
        "service_type": "text/summarise",
        "status": "completed",
        "provider/node-id": PROVIDER_NODE,
        "provider/participant-id": PROVIDER_ID,
        "responded_at": NOW,
        "output": {"summary": "water"},
    }
    return changed(fields, changes)


def contract(**changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "contract/id": "contract:1",
        "question/id": "order:run-1-summarise-a1",
        "room/id": "room:1",
        "selected-offer/id": "offer:summaries-1",
        "created-at": NOW,
        "asker/node-id": BUYER_NODE,
        "asker/participant-id": BUYER_ID,
        "responder/node-id": PROVIDER_NODE,
        "responder/participant-id": PROVIDER_ID,
        "payment/amount": 500,
        "payment/currency": "ORC",
        "deadline-at": LATER,
        "acceptance/answer-format": "json",
        "acceptance/min-length": 1,
        "acceptance/max-length": 65536,
        "confirmation/mode": "self-confirmed",
        "status": "pending",
    }
    return changed(fields, changes)


LEDGER_FIELDS: Mapping[str, Any] = {
    "settlement/rail": "host-ledger",
    "payer/account-ref": BUYER_ID,
    "payee/account-ref": PROVIDER_ID,
    "escrow/node-id": BUYER_NODE,
    "escrow/hold-ref": "hold:1",
    "escrow-policy/ref": "escrow-policy:default",
    "deadlines/work-by": LATER,
    "deadlines/accept-by": LATER,
    "deadlines/dispute-by": END,
    "deadlines/auto-release": END,
}


def ledger_contract(**changes: Any) -> Document:
    return contract(**{**LEDGER_FIELDS, **changes})


def receipt(**changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "receipt/id": "receipt:1",
        "contract/id": "contract:1",
        "question/id": "order:run-1-summarise-a1",
        "created-at": NOW,
        "payer/participant-id": BUYER_ID,
        "payee/participant-id": PROVIDER_ID,
        "outcome": "settled",
        "confirmation/mode": "self-confirmed",
        "settled-at": NOW,
        "answer/accepted": True,
        "payer/signature": SEAL,
        "payee/signature": SEAL,
    }
    return changed(fields, changes)


def response(**changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "response/id": "response:1",
        "question/id": "order:run-1-summarise-a1",
        "created-at": NOW,
        "source/node-id": PROVIDER_NODE,
        "source/participant-id": PROVIDER_ID,
        "answer/content": "water",
        "answer/format": "plain-text",
        "confidence/signal": 0.75,
        "human-linked-participation": False,
        "provenance/origin-classes": ["node-generated"],
    }
    return changed(fields, changes)


def hold(**changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "hold/id": "hold:1",
        "contract/id": "contract:1",
        "payer/account-id": f"account:{BUYER_ID}",
        "payee/account-id": f"account:{PROVIDER_ID}",
        "escrow/node-id": BUYER_NODE,
        "escrow-policy/ref": "escrow-policy:default",
        "amount": 500,
        "unit": "ORC",
        "status": "active",
        "created-at": NOW,
        "work-by": LATER,
        "accept-by": LATER,
        "dispute-by": END,
        "auto-release-after": END,
    }
    return changed(fields, changes)


BYTES = b'{"summary":"water"}'


def artifact(**changes: Any) -> Document:
    fields = {
        "schema": "service-order.result.v1",
        "content/type": "application/json",
        "digest": digest_of(BYTES),
        "size/bytes": len(BYTES),
        "bytes/base64": base64.b64encode(BYTES).decode(),
    }
    return changed(fields, changes)


def stage(name: str = "first", targets: int = 1, /, **changes: Any) -> Document:
    target = {"selector/kind": "node", "node/id": BUYER_NODE}
    return changed({"stage/id": name, "targets": [target] * targets}, changes)


def envelope(**changes: Any) -> Document:
    fields = {
        "schema": "artifact-delivery-envelope.v1",
        "component/id": "dator",
        "artifact": artifact(),
        "delivery/plan": {"stages": [stage()]},
    }
    return changed(fields, changes)


def passport(by: SigningKey = BUYER, /, **changes: Any) -> Document:
    made = issue_passport(BUYER, PROVIDER_NODE, "offer-catalog", issued_at=BEGIN, expires_at=END)
    if not changes and by is BUYER:
        return made
    return signed("capability-passport.v1", made, changes, by)


def revocation(by: SigningKey = BUYER, /, **changes: Any) -> Document:
    made = revoke_passport(by, passport(), revoked_at=NOW)
    if not changes:
        return made
    kind = "capability-passport-revocation.v1"
    return signed(kind, made, changes, by)


def advertisement(by: SigningKey = PROVIDER, /, **changes: Any) -> Document:
    fields = {
        "schema/v": 1,
        "advertisement/id": "advertisement:1",
        "node/id": PROVIDER_NODE,
        "published-at": BEGIN,
        "protocol/version": "1",
        "transport/profiles": ["wss"],
        "capabilities/core": ["core/messaging"],
        "capabilities/presented": [
            {
                "capability/id": "offer-catalog",
                "wire/name": "role/offer-catalog",
                "assertion/kind": "passport",
                "passport": passport(),
            }
        ],
        "messages/supported": ["offer-catalog.fetch.request"],
    }
    return signed("capability-advertisement.v1", fields, changes, by)


def agora_record(by: SigningKey = PROVIDER, /, **changes: Any) -> Document:
    fields = {
        "schema": "agora-record.v1",
        "record/id": "record:1",
        "record/kind": "offer-snapshot",
        "topic/key": "orbiplex/offer-catalog/v1/shared/offers",
        "author/participant-id": PROVIDER_ID,
        "authored/at": BEGIN,
        "content/schema": "service-offer.v1",
        "content": offer(),
    }
    document = signed("agora-record.v1", fields, changes, by)
    if "signature" in changes:
        return document
    return {**document, "signature": {**document["signature"], "key/public": PROVIDER_ID}}


def report(**changes: Any) -> Document:
    fields = {
        "schema_version": "v1",
        "module_id": "arca",
        "module_name": "Arca",
        "module_version": "1",
        "middleware_contract_version": "1",
        "capabilities": [
            {"capability_id": "arca", "class": "base", "output_contract_ref": "contract:arca"}
        ],
        "input_chains": [
            {
                "chain": "inbound-peer",
                "message_types": ["offer-catalog.push"],
                "filter": {"OR": [{"msg": "x"}, {"NOT": {"AND": [{"status": 1}]}}]},
            },
            {"chain": "inbound-local", "local_routes": [{"method": "GET", "path": "catalog"}]},
        ],
    }
    return changed(fields, changes)


def executor(**changes: Any) -> Document:
    fields = {
        "id": "arca",
        "kind": "http_local_json",
        "module_id": "arca",
        "component_id": "arca",
        "launch": {"executable": "python3", "args": ["-m", "arca"], "env": {"A": "b"}},
        "http": {"endpoint": "http://127.0.0.1:47981", "invoke_path": "/v1/middleware/invoke"},
        "restart_policy": {"mode": "on_failure", "max_restarts": 3, "window_sec": 60},
    }
    return changed(fields, changes)


def dispatch(**changes: Any) -> Document:
    fields = {
        "dispatch_id": "dispatch:1",
        "run_id": "run:1",
        "step_id": "solicit",
        "target": PROVIDER_ID,
        "dispatched_at": NOW,
        "status": "responded",
        "response": {"price": 1.5},
        "responded_at": NOW,
    }
    return changed(fields, changes)


def snapshot(**changes: Any) -> Document:
    step = {
        "step_id": "solicit",
        "status": "completed",
        "attempt": 1,
        "depends_on": [],
        "execution": {"completed": True},
        "task": {"fulfilled": True, "decided_by": "auto"},
        "output": {"summary": "water"},
        "dispatches": [dispatch(response=GONE)],
    }
    fields = {
        "schema": "workflow-run-snapshot.v1",
        "run_id": "run:1",
        "workflow_id": "summaries",
        "workflow_kind": "service-order-orchestration",
        "status": "completed",
        "input": {},
        "created_at": NOW,
        "updated_at": NOW,
        "revision": 3,
        "steps": [step],
    }
    return changed(fields, changes)


def plain(**fields: Any) -> Callable[..., Document]:
    return lambda **changes: changed(fields, changes)


def call(capability: str, **fields: Any) -> Callable[..., Document]:
    return plain(schema_version="v1", capability_id=capability, **fields)


def template(by: SigningKey = PROVIDER, /, **changes: Any) -> Document:
    fields = {
        "template_id": "solicit.v1",
        "label": "Ask",
        "participant_id": PROVIDER_ID,
        "plan": {"steps": []},
        "parameters": {"x": {"type": "string"}},
    }
    return signed("workflow-template.v1", fields, changes, by)


_RECORD = {"record_kind": "workflow-template", "record_id": "solicit.v1"}

#: The name of every kind, and what makes a good document of it.
MAKERS: Mapping[str, Callable[..., Document]] = {
    "service-offer.v1": offer,
    "service-offer-relay.v1": relay,
    "trusted-provider.v1": trusted_provider,
    "offer-catalog.fetch.request": plain(query_id="query:1", filter={"service/type": "x"}),
    "offer-catalog.fetch.response": lambda **changes: changed(
        {
            "offers": [relay()],
            "node_id": PROVIDER_NODE,
            "responded_at": NOW,
            "query_id": "query:1",
            "error": None,
        },
        changes,
    ),
    "offer-catalog.push": lambda **changes: changed(
        {"offers": [relay()], "node_id": PROVIDER_NODE, "pushed_at": NOW}, changes
    ),
    "offer-catalog-query-response.v1": lambda **changes: changed(
        {
            "offers": [offer(), {"offer": offer(), "source": "observed", "relay_hops": 1}],
            "local_offers": [],
            "counts": {"local": 0},
        },
        changes,
    ),
    "service-order.v1": order,
    "service-order.dispatch.request.v1": dispatch_request,
    "service-order.result.v1": result,
    "procurement-contract.v1": contract,
    "procurement-receipt.v1": receipt,
    "response-envelope.v1": response,
    "ledger-hold.v1": hold,
    "artifact-delivery-envelope.v1": envelope,
    "artifact-delivery-acceptor-invoke.v1": lambda **changes: changed(
        {
            "schema": "artifact-delivery-acceptor-invoke.v1",
            "admission/id": "admission:1",
            "acceptor/id": "results",
            "source/adapter": "peer",
            "source/peer": PROVIDER_NODE,
            "idempotency/key": "key",
            "artifact": artifact(),
            "invocation/token": "token-of-one-call",
        },
        changes,
    ),
    "artifact-delivery-admission-response.v1": plain(
        **{"status": "accepted", "acceptor/id": "results", "artifact/ref": "artifact:1"}
    ),
    "artifact-delivery-result.v1": plain(
        **{
            "schema": "artifact-delivery-result.v1",
            "delivery/id": "delivery:abc_1-2",
            "status": "failed-retryable",
            "failure/class": "stage-timeout",
        }
    ),
    "artifact-delivery-status.v1": plain(
        **{
            "schema": "artifact-delivery-status.v1",
            "delivery/id": "delivery:abc",
            "status": "running",
            "submitted-at": NOW,
            "expires-at": LATER,
        }
    ),
    "artifact-delivery-outbound-rule": plain(
        **{
            "component/id": "arca",
            "schema": "service-order.dispatch.request.v1",
            "recipient/selectors": ["node"],
            "target/node-ids": [PROVIDER_NODE],
            "max/bytes": 65536,
        }
    ),
    "artifact-delivery-acceptor": plain(
        acceptor_id="results",
        component_id="arca",
        artifact_schema="service-order.result.v1",
        invoke_path="/v1/artifact-delivery/accept",
        request_timeout_ms=5000,
    ),
    "deferred-operation.v1": plain(
        **{
            "schema": "deferred-operation.v1",
            "schema/v": 1,
            "status": "deferred",
            "operation/id": "deferred:artifact-delivery.submit:abc",
            "operation/kind": "artifact-delivery.submit",
            "created_at": NOW,
            "retry_after_seconds": 2,
            "expires_at": LATER,
            "cancel/unavailable-reason": "in flight",
        }
    ),
    "deferred-operation-status.v1": plain(
        **{
            "schema": "deferred-operation-status.v1",
            "schema/v": 1,
            "status": "completed",
            "operation/id": "deferred:artifact-delivery.submit:abc",
            "operation/kind": "artifact-delivery.submit",
            "updated_at": NOW,
            "result": None,
        }
    ),
    "capability-passport.v1": passport,
    "capability-passport-revocation.v1": revocation,
    "capability-advertisement.v1": advertisement,
    "seed-directory-registration": lambda **changes: changed(
        {"advertisement": advertisement(), "sequence/no": 1, "passport": passport()}, changes
    ),
    "seed-directory-row": lambda **changes: changed(
        {
            "node_id": PROVIDER_NODE,
            "endpoints": [
                {
                    "endpoint/url": "http://127.0.0.1:9000",
                    "endpoint/transport": "http",
                    "endpoint/role": "peer",
                    "endpoint/priority": 0,
                }
            ],
            "capability_id": "offer-catalog",
            "passport": passport(),
            "sequence/no": 1,
            "published_at": BEGIN,
            "expires_at": END,
            "anchor_identity": BUYER_ID,
            "informal": False,
        },
        changes,
    ),
    "seed-directory-query": call("seed_directory_query", query={"capability_id": "offer-catalog"}),
    "middleware-init": plain(
        schema_version="v1",
        middleware_contract_version="1",
        host_api_version="1",
        host_version="0.1.0",
        executor_id="arca",
        executor_kind="http_local_json",
        module_id="arca",
        component_id="arca",
        node_id=BUYER_NODE,
        middleware_home="/data/arca",
        host_capabilities=["offers.local.query"],
    ),
    "middleware-module-report": report,
    "middleware-executor": executor,
    "peer-message-invoke.v1": plain(
        schema_version="v1",
        envelope_kind="peer-message",
        msg="offer-catalog.push",
        chain_kind="inbound-peer",
        correlation_id="c1",
        remote_node_id=PROVIDER_NODE,
        payload={},
    ),
    "local-input-invoke.v1": plain(
        schema_version="v1",
        envelope_kind="local-input",
        chain_kind="inbound-local",
        correlation_id="c1",
        method="GET",
        path="/v1/enact/service-catalog",
        caller={"scope": "operator"},
    ),
    "middleware-decision": plain(decision="return", reason="answered", patch={"status": 200}),
    "notify-emit-request": call("notify_emit", level="info", title="done", body=""),
    "notify-emit-response": plain(outcome="emitted", notification_id="n1"),
    "artifact-write-request": call(
        "artifact_write", path="out/a.json", content_type="application/json", json=None
    ),
    "artifact-write-response": plain(
        outcome="written",
        artifact_id="artifact:1",
        path="out/a.json",
        digest=digest_of(BYTES),
        size_bytes=19,
    ),
    "artifact-read-request": call("artifact_read", path="out/a.json"),
    "artifact-read-response": plain(
        outcome="found",
        artifact_id="artifact:1",
        path="out/a.json",
        digest=digest_of(BYTES),
        size_bytes=19,
        bytes_base64=base64.b64encode(BYTES).decode(),
    ),
    "module-store-put-request": call("module_store_put", **_RECORD, payload={"a": 1}),
    "module-store-get-request": call("module_store_get", **_RECORD),
    "module-store-list-request": call("module_store_list", record_kind="x", limit=10),
    "module-store-delete-request": call("module_store_delete", **_RECORD),
    "module-store-response": plain(outcome="missing"),
    "module-store-record.v1": plain(**_RECORD, payload={}, created_at=NOW, updated_at=NOW),
    "workflow-template.v1": template,
    "workflow-template.fetch.request": plain(
        schema_version="v1", query_id="query:1", template_id="solicit.v1"
    ),
    "workflow-template.fetch.response": plain(
        schema_version="v1",
        query_id="query:1",
        templates=[
            {
                "template_id": "solicit.v1",
                "publisher": PROVIDER_ID,
                "digest": digest_of(b"{}"),
                "size_bytes": 2,
            }
        ],
    ),
    "workflow-dispatch.v1": dispatch,
    "workflow-run-snapshot.v1": snapshot,
    "workflow.fanout.request": plain(
        schema_version="v1",
        dispatch_id="dispatch:1",
        run_id="run:1",
        step_id="solicit",
        service_type="text/summarise",
        input={},
        respond_by=LATER,
    ),
    "workflow.fanout.response": lambda **changes: changed(
        {"schema_version": "v1", "dispatch_id": "dispatch:1", "status": "offer", "offer": offer()},
        changes,
    ),
    "arca-task-fulfillment-decision.v1": plain(
        **{"schema": "arca-task-fulfillment-decision.v1", "fulfillment/status": "fulfilled"}
    ),
    "role-task-request": call(
        "role_task_execute",
        **{
            "role/capability_id": "role.summarise",
            "dispatch/id": "dispatch:1",
            "service_type": "text/summarise",
            "request/input": {},
            "workflow/run-id": "run:1",
            "workflow/phase-id": "summarise",
            "correlation/id": "run:1",
            "execution_ref": "execution:1",
        },
    ),
    "service-dispatch-response": call(
        "service_dispatch_execute",
        **{
            "status": "completed",
            "dispatch/id": "dispatch:1",
            "provenance/origin-classes": ["node-generated"],
            "message": "",
            "completed-at": NOW,
            "answer/content": {},
            "answer/format": "application/json",
            "confidence/signal": 1,
            "human-linked-participation": False,
        },
    ),
    "agora-record.v1": agora_record,
}

#: Documents that do not say what they are: the caller names the kind.
NAMELESS = frozenset(
    {
        "artifact-delivery-outbound-rule",
        "notify-emit-response",
        "artifact-write-response",
        "artifact-read-response",
        "module-store-response",
    }
)
