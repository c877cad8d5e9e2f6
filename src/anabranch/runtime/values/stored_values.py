"""Large values for the expressions of the kernel: read from the payload store, and put there.

A guard, a template or a loop reads a large value as if it stood in the log; the payload is fetched
when the expression looks at it and stays decoded for the next one. A value that an expression makes
too large to be recorded is kept as a payload, written in the batch that records its stand-in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, ExpressionError
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.loading import (
    READ_BYTES_MAX,
    Fetch,
    charge_read,
    read_payload,
    require_readable,
)
from anabranch.runtime.values.payloads import (
    Light,
    Resolved,
    TooLarge,
    lighten,
    may_exceed,
    resolved,
)
from anabranch.work.values.payloads import is_ref, purged

__all__ = ["CACHE_BYTES", "READ_BYTES_MAX", "RunValues", "StoredValues"]

#: Decoded values that stay in memory, by the size of their JSON.
CACHE_BYTES = 16 * 1024 * 1024

Keep = Callable[[str, LiveRun, Light], None]  # the name of the run, which may have no state yet
MayRead = Callable[[str, str], bool]  # a run, the hash of a payload


class StoredValues:
    """One per engine."""

    def __init__(
        self,
        fetch: Fetch,
        keep: Keep,
        may_read: MayRead,
        *,
        inline_bytes_max: int,
        value_bytes_max: int | None,
        read_bytes_max: int = READ_BYTES_MAX,
    ) -> None:
        self._fetch = fetch
        self.keep = keep
        self.may_read = may_read
        self.inline_bytes_max = inline_bytes_max
        self.value_bytes_max = value_bytes_max
        self.read_bytes_max = read_bytes_max
        self._decoded: OrderedDict[str, tuple[int, Any]] = OrderedDict()  # hash → size, value
        self._decoded_bytes = 0
        self.overfull = False

    def load(self, sha256: str, said: int, charge: Callable[[int], None]) -> Any:
        """The value of a payload. Whether it is known already changes nothing in what is charged:
        a turn ends at the same place after a restart."""
        known = self._decoded.get(sha256)
        if known is not None:
            charge(known[0])
            self._decoded.move_to_end(sha256)
            return known[1]
        size, value = read_payload(self._fetch, sha256, said, charge)
        self._decoded[sha256] = (size, value)
        self._decoded_bytes += size
        self.overfull = self._decoded_bytes > CACHE_BYTES
        return value

    def trim(self) -> None:
        """After a turn: no more stays in memory than the cache may hold."""
        while self._decoded_bytes > CACHE_BYTES:
            _, (size, _) = self._decoded.popitem(last=False)
            self._decoded_bytes -= size
        self.overfull = False


class RunValues(msgspec.Struct, gc=False):
    """The `ValueAccess` of one run for one stimulus."""

    stored: StoredValues
    live: LiveRun
    run: str
    lazy: bool  # the run has large values, or is about to have its first
    bytes_read: int = 0

    def view(self, values: Mapping[str, Any], /) -> Mapping[str, Any]:
        return Resolved(values, self._load) if self.lazy else values

    def whole(self, value: Any, /) -> Any:
        return resolved(value, self._load) if self.lazy else value

    def stands_in(self, value: Any, /) -> bool:
        return self.lazy and is_ref(value)

    def fit(self, value: Any, /) -> Any:
        limit = self.stored.inline_bytes_max
        if not may_exceed(value, limit) or is_ref(value):
            return value
        try:
            light = lighten(value, limit, self.stored.value_bytes_max)
        except TooLarge as error:
            raise ExpressionError(str(error).replace("the result", "a value", 1)) from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ExpressionError(f"a value cannot be recorded: {error}") from None
        if light.sha256:
            self.stored.keep(self.run, self.live, light)
            self.lazy = True
        return light.result

    def fit_fields(self, values: Mapping[str, Any], /) -> Mapping[str, Any]:
        if not values or not may_exceed(values, self.stored.inline_bytes_max):
            return values
        return {key: self.fit(value) for key, value in values.items()}

    def _load(self, sha256: str, said: int) -> Any:
        if not self.stored.may_read(self.run, sha256):
            gone = purged(sha256)  # a worker can name any payload: that gives no right to read it
            raise ExpressionError(str(gone), code=gone.code)
        try:
            return self.stored.load(sha256, said, self._charge)
        except AnabranchError as error:
            raise ExpressionError(str(error), code=error.code) from None

    def _charge(self, size: int) -> None:
        self.bytes_read += size
        require_readable(self.bytes_read, self.stored.read_bytes_max)
        charge_read(size)
