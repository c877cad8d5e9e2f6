"""How much of what work prints is kept."""

from __future__ import annotations

import msgspec

_ROW = 64 * 1024


class LogLimits(msgspec.Struct, frozen=True):
    """Of an attempt the first `head` bytes are kept and the last `tail`; rows are whole, so both
    leave room for one."""

    attempt_bytes: int = 1024 * 1024
    run_bytes: int = 50 * 1024 * 1024

    @property
    def row(self) -> int:
        """Bytes of text in one row, and in one line."""
        return min(_ROW, max(self.attempt_bytes // 16, 64))

    @property
    def head(self) -> int:
        return max(self.attempt_bytes // 2 - self.row, self.row)

    tail = head
