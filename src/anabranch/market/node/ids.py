"""Ids that follow from what they stand for: the same parts, the same id, on every node."""

from __future__ import annotations

import base64
import hashlib


def derived(domain: str, *parts: str) -> str:
    """A name of 43 characters for these parts. The domain and every part go in with their lengths,
    so that no two lists of parts can be written the same way."""
    digest = hashlib.sha256()
    for part in (domain, *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
