"""The receipt of a step: one plain record with the field names of the public `EngineMeta` event.

Keys that begin with `__` never appear in it. Where the log of a step is to be encrypted and nobody
can, what the step said is left out rather than written in clear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.work.rule.ports import LogEncryptor
from anabranch.work.rule.steps import PRIVATE, Evaluated, RuleFindings, RuleProcess

_CLEAR = ("payload", "apiSaves", "contractSaves")


class Origin(msgspec.Struct, frozen=True):
    """Where the step and its rule come from."""

    orchestration: str = ""
    ostc_id: str = ""
    ostc_hash: str = ""
    rule_hash: str = ""
    rule_origin: str = ""


def receipt(
    process: RuleProcess, origin: Origin, findings: RuleFindings, *, gas: int
) -> dict[str, Any]:
    """What is known of the step, however it ended."""
    call, called = findings.call, findings.called
    extras: dict[str, Any] = {
        "valid": False,
        "from": process.owner,
        "gasUsed": gas,
        "ruleOrigin": origin.rule_origin,
        "inputsMissing": _shown(findings.inputs_missing),
        "failures": findings.failures,
        "rulesFailed": findings.rules_failed,
        "softInvalid": findings.softly,
    }
    if call is not None:
        extras["call"] = {
            "function": call.function,
            "args": [_argument(arg) for arg in call.args],
            "value": str(call.value),
            "gasLimit": call.gas_limit,
            "key": call.key,
        }
    if called is not None:
        extras |= {"execTx": called.tx, "execError": called.error, "dryRun": called.dry_run}
    return {
        "sessionId": process.session,
        "iteration": process.iteration,
        "orchestration": origin.orchestration,
        "ostcId": origin.ostc_id,
        "ostcHash": origin.ostc_hash,
        "stepId": process.step,
        "ruleContract": process.rule,
        "ruleHash": origin.rule_hash,
        "execContract": call.to if call is not None else "",
        "execResult": called is not None and called.ok and not called.dry_run,
        "payload": {},
        "apiSaves": public(findings.api_saves),
        "contractSaves": public(findings.contract_saves),
        "extras": {name: value for name, value in extras.items() if value not in ([], "", None)},
        "error_class": "",
        "error_msg": "",
    }


async def with_outcome(
    record: dict[str, Any], done: Evaluated, *, encrypted: bool, encryptor: LogEncryptor | None
) -> dict[str, Any]:
    """The receipt of a step that got to its end; `encrypted`: the rule itself is."""
    prepared, branch = done.prepared, done.prepared.branch
    extras = dict(record["extras"])
    extras["valid"] = done.validity == "valid"
    extras["logExpireDays"] = branch.log_expire_days
    if prepared.grants:
        extras["grants"] = [dict(grant) for grant in prepared.grants]
    if prepared.dropped:
        extras["dropped"] = _shown(prepared.dropped)
    full = record | {"payload": public(prepared.output), "extras": extras}
    secret = encrypted if branch.encrypt_logs is None else branch.encrypt_logs
    return await _encrypted(full, prepared.grants, encryptor) if secret else full


def with_error(
    record: dict[str, Any], error: AnabranchError, *, encrypted: bool = False
) -> dict[str, Any]:
    """The receipt of a step that did not; of an encrypted rule nothing is said in clear."""
    kept = _withheld(record) if encrypted else record
    return kept | {"error_class": error.code, "error_msg": error.message}


async def _encrypted(
    record: dict[str, Any], grants: Sequence[Mapping[str, Any]], encryptor: LogEncryptor | None
) -> dict[str, Any]:
    kept = _withheld(record)
    if encryptor is None:
        return kept
    try:
        sealed = await encryptor.encrypt({name: record[name] for name in _CLEAR}, grants)
    except AnabranchError:
        return kept  # nothing rather than clear text
    return kept | {"extras": kept["extras"] | {"engineEncrypted": sealed, "logWithheld": False}}


def _withheld(record: dict[str, Any]) -> dict[str, Any]:
    extras = {name: value for name, value in record["extras"].items() if name != "call"}
    return record | dict.fromkeys(_CLEAR) | {"extras": extras | {"logWithheld": True}}


def _argument(value: Any) -> Any:
    """Integers as texts: an argument may have 256 bits."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def public(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith(PRIVATE)}


def _shown(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(PRIVATE)]
