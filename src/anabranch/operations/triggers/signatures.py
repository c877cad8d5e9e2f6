"""Whether a call of a hook comes from whoever has its secret, and is not an old one sent again.

    anabranch   Anabranch-Signature: t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>." and body>
    github      X-Hub-Signature-256: sha256=<hex of HMAC-SHA256 over the body>; it has no time

The first is what webhooks of Anabranch send, and under another header what Stripe sends. No message
says anything about the secret, or how near a signature came.

A call is identified by what was signed, in bytes: the instant and the body, or the body alone. The
text of the header identifies nothing (`t=007`, one more `v1`), nor does what no signature covers:
other headers, `X-GitHub-Delivery` among them, and the query.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

from anabranch.errors import Denied
from anabranch.operations.triggers.trigger import HookRules, Scheme
from anabranch.operations.webhooks.signature import SIGNATURE, signed_at, signed_bytes, signs

HEADERS: Mapping[Scheme, str] = {"anabranch": SIGNATURE, "github": "X-Hub-Signature-256"}
#: Fields that a credential may have its secret in, the first that is there.
FIELDS = ("secret", "signing_secret", "key", "token", "password", "value")
SECRET_LETTERS_MIN = 8
_PLAIN = re.compile(r"sha256=([0-9a-f]{64})")


def header_of(rules: HookRules) -> str:
    return rules.header or HEADERS[rules.scheme]


def secret_in(data: Any, field: str) -> str:
    """The secret of a credential: its text, or one of its fields; "" where it has none."""
    if isinstance(data, str):
        found: Any = "" if field else data
    elif isinstance(data, Mapping):
        names = (field,) if field else tuple(data) if len(data) == 1 else FIELDS
        found = next((data[name] for name in names if data.get(name)), "")
    else:
        found = ""
    return found if isinstance(found, str) and len(found) >= SECRET_LETTERS_MIN else ""


def verify_call(
    rules: HookRules, secret: str, signature: str, body: bytes, now_seconds: float
) -> str:
    """What identifies the call. Raises `Denied` unless the signature is right, and new enough."""
    header = header_of(rules)
    if not signature:
        raise Denied(f"the call is not signed: it has no header {header}", code="signature_missing")
    if rules.scheme == "github":
        if not _signs_body(secret, signature, body):
            raise _wrong(header)
        return hashlib.sha256(body).hexdigest()
    at = signed_at(signature)
    if at is None or not signs(secret, signature, body):
        raise _wrong(header)
    if abs(now_seconds - at) > rules.window:  # said only to whoever has the secret
        raise Denied(
            f"the call was signed {abs(now_seconds - at):,.0f} s from now, and the window is "
            f"{rules.window:,} s: sign it anew, and look at the clock",
            code="signature_expired",
        )
    return hashlib.sha256(signed_bytes(body, at)).hexdigest()


def _signs_body(secret: str, signature: str, body: bytes) -> bool:
    found = _PLAIN.fullmatch(signature.strip())
    wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return found is not None and hmac.compare_digest(wanted, found[1])


def _wrong(header: str) -> Denied:
    return Denied(
        f"the signature in {header} is not that of this body with the secret of the hook",
        code="signature_wrong",
    )
