"""The kind `wait`: parks at once and holds no worker; the kernel ends it.

The work only reads how long or for what: `for` (a duration), `until` (an instant) or `event` (the
name of a signal) with `timeout_ms` or a `timeout` that a template gave, the label of its `task` and
what its filter has `seen`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.durations import parse_duration
from anabranch.dialects.instants import parse_instant
from anabranch.kernel.values import Answer, Wait, failed
from anabranch.work.port import Parked, Task
from anabranch.work.secrets.redaction import cleaned_for_store

KIND = "wait"
SEEN_BYTES_MAX = 64 * 1024  # of what the filter of one wait sees of its job


class WaitPerformer:
    @staticmethod
    def parks(inputs: Mapping[str, Any]) -> bool:  # noqa: ARG004 - it always does
        return True

    async def perform(self, task: Task) -> Answer | Parked:
        return self.perform_now(task)

    def perform_now(self, task: Task) -> Answer | Parked:
        given = task.inputs
        try:
            if "event" in given:
                return _for_signal(given)
            if "for" in given:
                return _for_time(parse_duration(given["for"]))
            if "until" in given:
                return Parked("", until=max(1, parse_instant(given["until"])), wait=Wait())
        except ValueError as error:
            return failed("config", f"wait: {error}", retryable=False)
        return failed("config", "a wait needs `for`, `until` or `event`", retryable=False)


def _for_time(milliseconds: int) -> Parked:
    return Parked("", limit_ms=milliseconds, wait=Wait())


def _for_signal(given: Mapping[str, Any]) -> Answer | Parked:
    try:
        seen = cleaned_for_store(msgspec.to_builtins(given.get("seen") or {}))
        size = len(msgspec.json.encode(seen))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"what its filter reads is not JSON: {error}") from None
    if size > SEEN_BYTES_MAX:
        raise ValueError(
            f"its filter reads {size:,} bytes of the item or of results before it, and at most "
            f"{SEEN_BYTES_MAX:,} are kept with a wait; name the fields that it needs"
        )
    wait = Wait(str(given["event"]), str(given.get("task") or ""), seen)
    limit_ms = int(given.get("timeout_ms") or 0)
    if given.get("timeout") is not None:  # a template
        limit_ms = parse_duration(given["timeout"])
        if not limit_ms:
            raise ValueError("its timeout is zero; write a duration of at least 1ms")
    return Parked("", limit_ms=limit_ms, wait=wait)
