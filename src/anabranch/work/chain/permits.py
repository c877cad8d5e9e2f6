"""Permits: what somebody signed with their key (EIP-712), and whether it holds here and now.

    SessionPermit                  start one session: from, ostcId, ostcHash, sessionId,
                                   maxTotalGas, expiry
    xdalaPermit                    be who one is: from, expiry
    ControlPermit, ControlPermitV2 wake or end: from, (runner,) sessionId, action, (stepId,) expiry

A permit is read as clients send it, with keys in small or capital first letters. What counts is
what was signed: a field that the signed type does not have is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.work.chain.contracts import is_address
from anabranch.work.chain.signer import eth_account

#: Where the engine of a chain answers; the domain of control permits names it.
PRECOMPILE = "0x00000000000000000000000000000000000000e1"
SESSION_DOMAIN = ("XDaLa SessionPermit", "1")
MISSING = "permits are verified with the package eth-account: pip install 'anabranch[evm]'"

#: The fields of each permit with the types that are in use.
FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "SessionPermit": {
        "from": ("address",),
        "ostcId": ("string",),
        "ostcHash": ("bytes32", "string"),
        "sessionId": ("uint256",),
        "maxTotalGas": ("uint256",),
        "expiry": ("uint256",),
    },
    "xdalaPermit": {"from": ("address",), "expiry": ("uint256",)},
    "ControlPermit": {
        "from": ("address",),
        "sessionId": ("uint256",),
        "action": ("string",),
        "expiry": ("uint256",),
    },
    "ControlPermitV2": {
        "from": ("address",),
        "runner": ("address",),
        "sessionId": ("uint256",),
        "action": ("string",),
        "expiry": ("uint256",),
    },
}
#: Those that a permit may have besides. Of these the type of the chain has `stepId` for controls
#: only: who signs the others as well leaves nothing to choose to whoever passes the request on.
_OF_CONTROLS = {"stepId": ("string",), "processId": ("string",), "payload": ("string",)}
OPTIONAL: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "SessionPermit": {"orchestration": ("address",), "stepId": ("string",), "payload": ("string",)},
    "ControlPermit": _OF_CONTROLS,
    "ControlPermitV2": _OF_CONTROLS,
}
TEXT_LETTERS = 1024
PAYLOAD_LETTERS = 64 * 1024
CONTROLS = ("ControlPermit", "ControlPermitV2")
_SIGNATURE = re.compile(r"0x[0-9a-fA-F]{130}")
_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
_DOMAIN = ("name", "version", "chainId", "verifyingContract", "salt")


class PermitRefused(AnabranchError):
    """The permit allows nothing here."""

    code = "permit"


class Permit(msgspec.Struct, frozen=True):
    kind: str
    signer: str  # in lower case
    message: Mapping[str, Any]  # what was signed

    def number(self, key: str) -> int:
        return int(self.message[key])

    def text(self, key: str) -> str:
        return str(self.message.get(key) or "")


def verified(given: Any, kinds: Sequence[str], *, chain_id: int, now: int) -> Permit:
    """The permit, if it is one of these, for this chain, not expired (`now` in seconds), and signed
    by the one it names. Raises `PermitRefused`."""
    parts = _parts(given)
    kind = parts["primaryType"]
    if kind not in kinds:
        raise PermitRefused(f"the permit is a {_short(kind)}, not a {' or '.join(kinds)}")
    fields = _signed_fields(parts["types"], kind)
    domain = _domain(parts["domain"], kind, chain_id)
    message = {name: _value(parts["message"], name, kind_of) for name, kind_of in fields.items()}
    if message["expiry"] <= now:
        raise PermitRefused(
            f"the permit expired at {message['expiry']}, and it is {now}: sign a new one",
            code="permit_expired",
        )
    signer = _recovered(domain, kind, fields, message, parts["signature"])
    if signer != message["from"].lower():
        raise PermitRefused(
            f"the permit says that it is from {message['from']}, and another key signed it",
            code="permit_signature",
        )
    return Permit(kind, signer, message)


# -- what was sent ---------------------------------------------------------------------------------


def _parts(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise PermitRefused("there is no permit: send it as an object", code="permit_form")
    found = {key[:1].lower() + key[1:]: value for key, value in given.items() if key}
    for key, kind in (("domain", Mapping), ("types", Mapping), ("message", Mapping),
                      ("primaryType", str), ("signature", str)):  # fmt: skip
        if not isinstance(found.get(key), kind):
            raise PermitRefused(f"the permit has no `{key}`", code="permit_form")
    return found


def _signed_fields(types: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Names and types, in the order of the signed type: neither less nor more than is known."""
    listed = types.get(kind)
    rows = listed if isinstance(listed, list) else []
    found = {
        str(row["name"]): str(row["type"])
        for row in rows
        if isinstance(row, Mapping) and "name" in row and "type" in row
    }
    if len(found) != len(rows):
        raise PermitRefused(f"`types` of the permit has no list for {kind}", code="permit_form")
    known = {**FIELDS[kind], **OPTIONAL.get(kind, {})}
    for name, types_of in FIELDS[kind].items():
        if name not in found:
            said = f"the {kind} was signed without `{name}`"
            raise PermitRefused(said, code="permit_form")
        if found[name] not in types_of:
            said = f"`{name}` of a {kind} is {' or '.join(types_of)}, not {_short(found[name])}"
            raise PermitRefused(said, code="permit_form")
    for name, type_name in found.items():
        if name not in known or type_name not in known[name]:
            said = f"a {kind} has no field {_short(name)} of the type {_short(type_name)}"
            raise PermitRefused(said, code="permit_form")
    return found


def _domain(given: Mapping[str, Any], kind: str, chain_id: int) -> dict[str, Any]:
    domain = {key: given[key] for key in _DOMAIN if key in given}
    if set(given) - set(_DOMAIN):
        raise PermitRefused("the domain of the permit has unknown keys", code="permit_form")
    if not domain.get("name") or not domain.get("version"):
        raise PermitRefused("the domain of the permit has a name and a version", code="permit_form")
    found = _integer(domain.get("chainId"), "`chainId` of the domain")
    if found != chain_id:
        raise PermitRefused(
            f"the permit is for chain {found}, and this is chain {chain_id}", code="permit_chain"
        )
    domain["chainId"] = found
    if kind == "SessionPermit" and (domain["name"], domain["version"]) != SESSION_DOMAIN:
        name, version = SESSION_DOMAIN
        said = f"the domain of a SessionPermit is {name!r}, version {version!r}"
        raise PermitRefused(said, code="permit_form")
    if kind in CONTROLS and str(domain.get("verifyingContract", "")).lower() != PRECOMPILE:
        said = f"the domain of a {kind} names {PRECOMPILE} as `verifyingContract`"
        raise PermitRefused(said, code="permit_form")
    return domain


def _value(message: Mapping[str, Any], name: str, type_name: str) -> Any:
    value = message.get(name)
    match type_name:
        case "address":
            if is_address(value):
                return value
            raise PermitRefused(f"`{name}` of the permit is no address", code="permit_form")
        case "uint256":
            return _integer(value, f"`{name}` of the permit")
        case "bytes32":
            if isinstance(value, str) and _HASH.fullmatch(value):
                return value.lower()
            raise PermitRefused(f"`{name}` of the permit is no hash", code="permit_form")
    most = PAYLOAD_LETTERS if name == "payload" else TEXT_LETTERS
    if isinstance(value, str) and len(value) <= most:
        return value
    raise PermitRefused(f"`{name}` of the permit is no text", code="permit_form")


def _integer(value: Any, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 256:
        return value
    if isinstance(value, str) and len(value) <= 78 and value.isascii():
        if value.isdecimal():
            return int(value)
        if re.fullmatch(r"0x[0-9a-fA-F]{1,64}", value):
            return int(value, 16)
    raise PermitRefused(f"{what} is no whole number", code="permit_form")


def _recovered(
    domain: Mapping[str, Any],
    kind: str,
    fields: Mapping[str, str],
    message: Mapping[str, Any],
    signature: str,
) -> str:
    if not _SIGNATURE.fullmatch(signature):
        raise PermitRefused(
            "the signature of the permit is not 0x and 130 hexadecimal digits", code="permit_form"
        )
    try:
        package = eth_account()
    except ImportError:
        raise AnabranchError(MISSING, code="no_signer") from None
    listed = [{"name": name, "type": type_name} for name, type_name in fields.items()]
    values = {
        name: bytes.fromhex(value[2:]) if fields[name] == "bytes32" else value
        for name, value in message.items()
    }
    raw = bytes.fromhex(signature[2:])
    if raw[64] in (0, 1):  # some wallets count from nought
        raw = raw[:64] + bytes([raw[64] + 27])
    try:
        signable = package.messages.encode_typed_data(dict(domain), {kind: listed}, values)
        found: str = package.Account.recover_message(signable, signature=raw)
    except Exception:  # whatever the packages say about a signature that is none
        raise PermitRefused(
            "the signature of the permit is none", code="permit_signature"
        ) from None
    return found.lower()


def _short(text: Any) -> str:
    return repr(str(text)[:40])
