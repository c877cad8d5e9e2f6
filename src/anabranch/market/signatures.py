"""Signatures of answers, by the keys that identities are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.market.identities import is_signed_by, public_key


class Ed25519Signatures:
    def problem_of(self, key: str) -> str:
        try:
            public_key(key)
            is_signed_by({}, key)  # the package for it is there
        except AnabranchError as error:
            return error.message
        return ""

    def holds(self, document: Mapping[str, Any], key: str) -> bool:
        return is_signed_by(dict(document), key)
