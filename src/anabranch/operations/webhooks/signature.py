"""The signature of a webhook, made by the server and verified by its receiver.

Anabranch-Signature  t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>." and the body>;
                     for a while after a rotation a second v1, made with the old secret
"""

from __future__ import annotations

import hashlib
import hmac
import re

SIGNATURE = "Anabranch-Signature"
TOLERANCE_SECONDS = 300
_SIGNED = re.compile(r"t=([0-9]{1,15})((?:,v1=[0-9a-f]{64}){1,4})")


def sign(secret: str, body: bytes, seconds: int, *older: str) -> str:
    """The value of the signature header; `older` secrets sign beside the one that counts."""
    macs = [_mac(each, body, seconds) for each in (secret, *older)]
    return ",".join([f"t={seconds}", *(f"v1={mac}" for mac in macs)])


def verify(secret: str, header: str, body: bytes, now_seconds: float) -> bool:
    """For receivers: was this sent by whoever has the secret, within the last five minutes?"""
    at = signed_at(header)
    if at is None or abs(now_seconds - at) > TOLERANCE_SECONDS:
        return False
    return signs(secret, header, body)


def signed_at(header: str) -> int | None:
    """The instant that a signature names, in seconds; None where it is none."""
    found = _SIGNED.fullmatch(header.strip())
    return None if found is None else int(found[1])


def signs(secret: str, header: str, body: bytes) -> bool:
    """Whether it was made of this body with this secret, whenever that was."""
    found = _SIGNED.fullmatch(header.strip())
    if found is None:
        return False
    wanted = _mac(secret, body, int(found[1]))
    given = found[2].removeprefix(",v1=").split(",v1=")
    return any(hmac.compare_digest(wanted, each) for each in given)


def signed_bytes(body: bytes, seconds: int) -> bytes:
    return b"%d." % seconds + body


def _mac(secret: str, body: bytes, seconds: int) -> str:
    return hmac.new(secret.encode(), signed_bytes(body, seconds), hashlib.sha256).hexdigest()
