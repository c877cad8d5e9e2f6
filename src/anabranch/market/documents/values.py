"""Values that many documents hold: identities, accounts, digests, bytes, amounts."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from anabranch.errors import InputError
from anabranch.market.documents.problems import Found, shown
from anabranch.market.documents.shapes import (
    Constant,
    Text,
    Whole,
    choice,
    pattern,
)
from anabranch.market.identities import public_key

_DIGEST = re.compile(r"sha256:[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
_DID = ":did:key:"


@dataclass(frozen=True)
class Identity:
    """An identity in one of the roles: the key of a node is none of a participant."""

    roles: tuple[str, ...]
    besides: tuple[str, ...] = ()  # words that may stand here, too

    def check(self, value: Any, path: str, found: Found) -> None:
        wanted = self.words()
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write {wanted}")
        elif value not in self.besides:
            self._check_text(value, wanted, path, found)

    def words(self) -> str:
        return " or ".join((*(f"{role}{_DID}z6Mk…" for role in self.roles), *self.besides))

    def _check_text(self, value: str, wanted: str, path: str, found: Found) -> None:
        role, _, rest = value.partition(_DID)
        if not is_key(rest):
            message = f"{shown(value)} is no identity; write {wanted}"
            found.add(path, "bad-identity", message)
        elif role not in self.roles:
            message = f"{shown(value)} is in the role {shown(role)}; write {wanted}"
            found.add(path, "wrong-role", message)


def is_key(text: str) -> bool:
    """Whether the part behind `did:key:` is an Ed25519 key, written the one way there is."""
    try:
        public_key(f"node{_DID}{text[:80]}")
    except InputError:
        return False
    return len(text) <= 80


NODE, PARTICIPANT, ORG = Identity(("node",)), Identity(("participant",)), Identity(("org",))
BUYER = Identity(("participant", "org"))
ACCOUNT_HOLDER = Identity(("participant", "org", "pod-user"))


class Account:
    """`account:` and an identity or the name of a pool."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write account:…")
            return
        kind, _, name = value.partition(":")
        if kind == "account" and _DID in name:
            ACCOUNT_HOLDER.check(name, path, found)
        elif kind != "account" or not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,127}", name):
            found.add(path, "bad-text", f"{shown(value)} is no account; write {self.words()}")

    def words(self) -> str:
        return "account:participant:did:key:z6Mk… or account:community-pool"


class Digest:
    """`sha256:` and 32 bytes in base64url without padding."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write sha256:…")
        elif not _DIGEST.fullmatch(value):
            found.add(path, "bad-digest", f"{shown(value)} is here; write {self.words()}")

    def words(self) -> str:
        return "sha256: and 43 characters of base64url, without padding"


class Base64:
    """Bytes in standard base64 with padding."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write base64")
        elif decoded(value) is None:
            found.add(path, "bad-base64", f"{shown(value)} is here; write {self.words()}")

    def words(self) -> str:
        return "standard base64 with its padding (A-Z a-z 0-9 + / =)"


ACCOUNT, DIGEST, BASE64 = Account(), Digest(), Base64()


def decoded(text: Any) -> bytes | None:
    """The bytes of standard base64, written the one way there is; nothing for anything else."""
    if not isinstance(text, str) or not text.isascii():
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == text else None


def digest_of(data: bytes) -> str:
    """The digest of bytes as documents write it."""
    text = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return f"sha256:{text.rstrip('=')}"


# -- fields that many documents share --------------------------------------------------------

VERSION = Constant(1)
CALL_VERSION = Constant("v1")
AMOUNT = Whole(0)
CURRENCY = Text(least=2, most=16)
CONFIRMATION = choice("arbiter-confirmed", "self-confirmed", "manual-review-only")
ORDER_ID = pattern("order: and letters, digits, : or -", r"order:[A-Za-z0-9][A-Za-z0-9:-]*")
OFFER_ID = pattern("offer: and letters, digits, : or -", r"offer:[A-Za-z0-9][A-Za-z0-9:-]*")
REQUEST_ID = pattern("letters, digits and : _ . / -", r"[A-Za-z0-9:_./-]+", most=256)
CORRELATION = Text(most=256)
ANSWER_FORMAT = choice("plain-text", "markdown", "json", "edn", "mixed")
DIAGNOSTIC = Text(least=0, most=4096)
