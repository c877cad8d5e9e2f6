"""What may be shown: keys with the private prefix of a net travel with payloads and stay unseen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def public(value: Any, prefix: str) -> Any:
    """The value without its private keys, however deep; the very same one if nothing is private."""
    if not prefix:
        return value
    if isinstance(value, Mapping):
        return {
            key: public(each, prefix)
            for key, each in value.items()
            if not (isinstance(key, str) and key.startswith(prefix))
        }
    if isinstance(value, list | tuple):
        return [public(each, prefix) for each in value]
    return value
