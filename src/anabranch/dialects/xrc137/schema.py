"""The JSON Schema of XRC-137 rule documents."""

from __future__ import annotations

from anabranch.dialects.schema import (
    ANYTHING,
    IGNORED,
    Docs,
    Schema,
    choice,
    either,
    flag,
    has,
    listed,
    mapping,
    no_slips,
    ref,
    section,
    string,
    whole,
)
from anabranch.dialects.xrc137 import limits
from anabranch.dialects.xrc137.calls import METHODS
from anabranch.dialects.xrc137.casts import TYPES
from anabranch.dialects.xrc137.read import KEYS, METADATA, RIGHTS_MAX, RULE_KINDS

_NAMES = {"propertyNames": {"pattern": f"^{limits.NAME.pattern}$"}}


def schema() -> Schema:
    """The schema of rule documents."""
    docs = Docs("xrc137")
    return {**rule(docs), "$defs": definitions(docs)}


def rule(docs: Docs) -> Schema:
    fields = {
        "payload": {**mapping(ref("input")), **_NAMES, "maxProperties": limits.INPUTS},
        "contractReads": listed(ref("contract_read"), most=limits.READS),
        "apiCalls": listed(ref("api_call"), most=limits.CALLS),
        "rules": listed(either(string(), ref("condition")), most=limits.RULES),
        "onValid": ref("branch"),
        "onInvalid": ref("branch"),
    }
    assert set(fields) == set(KEYS), "every key of a rule"
    return section(
        "XRC-137 rule document",
        {**fields, **dict.fromkeys(METADATA, IGNORED)},
        required=("payload",),
        free=True,
        docs=docs("rule"),
        propertyNames=no_slips(KEYS, METADATA),
    )


def definitions(docs: Docs) -> Schema:
    """Every part of a rule, by name."""
    return {
        "input": section(
            "An input",
            {"type": choice(TYPES), "default": ANYTHING},
            required=("type",),
            docs=docs("input"),
        ),
        "typed_value": _value(docs, save=False),
        "contract_read": _read(docs),
        "api_call": _call(docs),
        "condition": section(
            "A condition",
            {"expression": string(), "type": choice(RULE_KINDS)},
            required=("expression",),
            docs=docs("condition"),
        ),
        "branch": _branch(docs),
        "execution": _execution(docs),
    }


def _value(docs: Docs, *, save: bool) -> Schema:
    fields = {"type": choice(TYPES), "value": string() if save else ANYTHING, "default": ANYTHING}
    if save:
        fields["save"] = flag()
    return section(
        "An extract" if save else "A value of a type",
        fields,
        required=("type",),
        old={"expr": fields["value"]},
        docs=docs("extract" if save else "value"),
        **has("value", "expr"),
    )


def _read(docs: Docs) -> Schema:
    slot = section(
        "Where a returned value goes",
        {"key": string(f"^{limits.NAME.pattern}$"), "type": choice(TYPES), "default": ANYTHING},
        required=("key", "type"),
        docs=docs("saved"),
    )
    saved = {
        **mapping(slot),
        "propertyNames": {"pattern": "^[0-9]{1,3}$"},
        "maxProperties": limits.SAVES,
    }
    fields = {
        "to": ANYTHING,
        "function": string(),
        "args": listed(ref("typed_value"), most=limits.READ_ARGS),
        "saveAs": saved,
        "rpc": string(),
    }
    return section(
        "A read of a contract", fields, required=("to", "function"), docs=docs("contract_read")
    )


def _call(docs: Docs) -> Schema:
    extracts = {
        **mapping(either(string(), _value(docs, save=True))),
        **_NAMES,
        "maxProperties": limits.EXTRACTS,
    }
    fields = {
        "name": string(f"^{limits.NAME.pattern}$"),
        "method": string(f"^(?:{'|'.join((*METHODS, *(word.lower() for word in METHODS)))})$"),
        "urlTemplate": {**string(), "maxLength": limits.URL},
        "contentType": choice(("json",)),
        "headers": {**mapping(string()), "maxProperties": limits.HEADERS},
        "bodyTemplate": {**string(), "maxLength": limits.BODY},
        "timeoutMs": whole(1, limits.TIMEOUT_MS),
        "extractMap": extracts,
    }
    required = ("name", "method", "urlTemplate", "contentType", "extractMap")
    return section("A call of an API", fields, required=required, docs=docs("api_call"))


def _branch(docs: Docs) -> Schema:
    payload = {**mapping(), **_NAMES, "maxProperties": limits.OUTCOME_KEYS}
    seconds = either(whole(0, limits.WAIT_SECONDS), string())
    wake_up = section(
        "A request to a session that sleeps",
        {"runner": ANYTHING, "sessionId": ANYTHING, "stepId": ANYTHING, "payload": payload},
        required=("runner", "sessionId", "stepId"),
        docs=docs("wake_up"),
    )
    grant = section(
        "A right to read",
        {
            "address": ANYTHING,
            "rights": whole(1, RIGHTS_MAX),
            "expireDays": either(whole(1, limits.EXPIRE_DAYS), string()),
        },
        required=("address", "rights"),
        docs=docs("grant"),
    )
    fields = {
        "payload": payload,
        "execution": ref("execution"),
        "waitSec": seconds,
        "wakeUps": listed(wake_up, most=limits.WAKE_UPS),
        "grants": listed(grant, most=limits.GRANTS),
        "encryptLogs": flag(),
        "logExpireDays": whole(1, limits.EXPIRE_DAYS),
    }
    milliseconds = either(whole(0, limits.WAIT_SECONDS * 1000), string())
    old = {"waitMs": milliseconds, "waitUntilMs": either(whole(0, 2**63 - 1), string())}
    return section("What follows an outcome", fields, old=old, docs=docs("branch"))


def _execution(docs: Docs) -> Schema:
    gas = section("Gas of a call", {"limit": whole(0, 2**63 - 1)}, docs=docs("gas"))
    fields = {
        "to": ANYTHING,
        "function": string(),
        "args": listed(ref("typed_value"), most=limits.EXECUTION_ARGS),
        "value": ref("typed_value"),
        "gas": gas,
        "extras": ANYTHING,
    }
    return section("A call of a contract", fields, docs=docs("execution"))
