"""What a node refuses, with the class that the other side can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError


class NodeError(AnabranchError):
    """Nothing was changed. `code` is the named class, `more` goes into the body as it is."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.headers = dict(headers or {})
        self.more = dict(more or {})
