"""The envelope `XGR1`: encrypted rules and logs, opened and made with keys that the operator has.

    XGR1.AESGCM256.<rid>.<base64 of nonce (12) || ciphertext || tag (16)>

`rid` is the SHA-256 of nonce and ciphertext. How the key of a text is wrapped for its readers is
not public in full, so keys come unwrapped from a file:

    {"keys": {"<rid or address of the rule>": "<64 hex digits>"}, "logs": "<64 hex digits>"}

`keys` open rules; `logs` is the key that the receipts of steps with `encryptLogs` are sealed with.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.libraries import load
from anabranch.work.rule.ports import DecryptionFailed
from anabranch.work.secrets.keychain_kinds import read_secret_file

PREFIX, SUITE = "XGR1", "AESGCM256"
MISSING = "encrypted rules need the package cryptography: pip install 'anabranch[market]'"
NONCE_BYTES, TAG_BYTES = 12, 16
_KEY = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")


class Xgr1Envelope(msgspec.Struct, frozen=True):
    rid: str  # 64 hex digits in lower case
    nonce: bytes
    body: bytes  # ciphertext and tag


def envelope(text: str) -> Xgr1Envelope:
    """Raises `DecryptionFailed` for what is none, or was changed."""
    parts = text.strip().split(".")
    if len(parts) != 4 or parts[0] != PREFIX:
        raise DecryptionFailed("this is no XGR1 text: XGR1.<suite>.<rid>.<base64>")
    if parts[1] != SUITE:
        raise DecryptionFailed(f"the suite {parts[1][:40]!r} is not known, only {SUITE}")
    try:
        raw = base64.b64decode(parts[3], validate=True)
    except (binascii.Error, ValueError):
        raise DecryptionFailed("the body of the XGR1 text is no base64") from None
    if len(raw) < NONCE_BYTES + TAG_BYTES:
        raise DecryptionFailed("the body of the XGR1 text is too short")
    rid = parts[2].lower().removeprefix("0x")
    # The public text does not say whether the tag belongs to the ciphertext: both are in use.
    known = {hashlib.sha256(raw).hexdigest(), hashlib.sha256(raw[:-TAG_BYTES]).hexdigest()}
    if rid not in known:
        raise DecryptionFailed("the rid of the XGR1 text is not the hash of its body")
    return Xgr1Envelope(rid, raw[:NONCE_BYTES], raw[NONCE_BYTES:])


def open_sealed(text: str, key: bytes) -> bytes:
    found = envelope(text)
    try:
        return bytes(_cipher(key).decrypt(found.nonce, found.body, None))
    except Exception:  # the package has an error of its own for a tag that does not fit
        said = f"the key does not open the text with the rid 0x{found.rid}"
        raise DecryptionFailed(said) from None


def seal(plain: bytes, key: bytes, nonce: bytes | None = None) -> str:
    chosen = secrets.token_bytes(NONCE_BYTES) if nonce is None else nonce
    raw = chosen + bytes(_cipher(key).encrypt(chosen, plain, None))
    rid = hashlib.sha256(raw).hexdigest()
    return f"{PREFIX}.{SUITE}.0x{rid}.{base64.b64encode(raw).decode()}"


def _cipher(key: bytes) -> Any:
    try:
        aead = load("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError:
        raise InputError(MISSING, code="no_package") from None
    return aead.AESGCM(key)


class RuleKeys:
    """Opens rules and seals logs with the keys of a file."""

    def __init__(self, keys: Mapping[str, bytes], logs: bytes | None = None) -> None:
        self._keys = keys
        self._logs = logs

    @property
    def seals(self) -> bool:
        return self._logs is not None

    async def decrypt(self, address: str, text: str) -> str:
        found = envelope(text)
        key = self._keys.get(found.rid) or self._keys.get(address.lower().removeprefix("0x"))
        if key is None:
            raise DecryptionFailed(
                f"there is no key for the rid 0x{found.rid} (setting rule_keys_file)"
            )
        try:
            return open_sealed(text, key).decode("utf-8")
        except UnicodeDecodeError:
            raise DecryptionFailed("the opened rule is not UTF-8") from None

    async def encrypt(
        self,
        log: Mapping[str, Any],
        readers: Sequence[Mapping[str, Any]],  # noqa: ARG002 - the port's signature
    ) -> str:
        if self._logs is None:
            raise DecryptionFailed("there is no key for logs (setting rule_keys_file)")
        plain = json.dumps(log, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
        return seal(plain.encode(), self._logs)


def keys_in(file: str) -> RuleKeys | None:
    """The keys of the setting `rule_keys_file`; no message repeats one."""
    if not file:
        return None
    try:
        found = json.loads(read_secret_file(Path(file)))
    except ValueError:
        raise InputError(f"rule_keys_file: {file} is not JSON") from None
    if not isinstance(found, dict) or not set(found) <= {"keys", "logs"}:
        raise InputError(f"rule_keys_file: {file} has `keys` by rid or address, and `logs`")
    keys = found.get("keys", {})
    if not isinstance(keys, dict):
        raise InputError(f"rule_keys_file: `keys` of {file} is no mapping")
    named = {
        name.lower().removeprefix("0x"): _key(value, f"{file}, {name[:80]}")
        for name, value in keys.items()
    }
    logs = found.get("logs")
    return RuleKeys(named, None if logs is None else _key(logs, f"{file}, logs"))


def _key(value: Any, where: str) -> bytes:
    found = _KEY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InputError(f"rule_keys_file: {where}: a key is 64 hex digits")
    return bytes.fromhex(found[1])
