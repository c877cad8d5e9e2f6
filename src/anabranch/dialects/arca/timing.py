"""`timing` and the older retry fields: how long a step may take, and how often it is tried.

`timing.retry` is for tries that failed or took too long, and for fan-outs that came to nothing. The
older fields (`max_retries`, `retry_delay_ms`) are for requests that failed; where an ordinary step
has both they are two budgets which do not touch one another. `max_attempts` counts the tries after
the first.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from anabranch.dialects.findings import Section
from anabranch.net.net import Retry

TRIES_MAX = 1_000
DELAY_MS_MAX = 7 * 86_400_000
ON_TIMEOUT: tuple[Literal["fail", "skip", "abort_workflow"], ...] = (
    "fail",
    "skip",
    "abort_workflow",
)
FAIL_POLICY: tuple[Literal["abort_workflow", "skip", "pause"], ...] = (
    "abort_workflow",
    "skip",
    "pause",
)
_REPLACED = "write `deadline` (or `timing.timeout`) as a duration, such as PT5M"


class Timing(msgspec.Struct, frozen=True):
    timeout_ms: int | None = None
    retry: Retry | None = None
    on_timeout: Literal["fail", "skip", "abort_run"] = "fail"


def read_timing(section: Section | None) -> Timing:
    if section is None:
        return Timing()
    refuse_seconds(section)
    timeout = iso_duration(section, "timeout")
    retry = _retry(section.section("retry"))
    on_timeout = section.choice("on_timeout", ON_TIMEOUT, "fail")
    if "on_timeout" in section and timeout is None and section.sound:
        message = "`on_timeout` has no effect without a `timeout`"
        section.warn("on_timeout", "ignored-key", message, "add a `timeout`")
    section.finish()
    word: Literal["fail", "skip", "abort_run"]
    word = "abort_run" if on_timeout == "abort_workflow" else on_timeout
    return Timing(timeout, retry, word)


def _retry(section: Section | None) -> Retry | None:
    if section is None:
        return None
    section.require("max_attempts", "say how often it is tried again")
    attempts = section.whole("max_attempts", 0, least=0, most=TRIES_MAX)
    backoff = iso_duration(section, "backoff", zero=True) or 0
    multiplier = section.number("backoff_multiplier", 1.0, least=1.0, most=1_000.0)
    section.finish()
    return Retry(1 + attempts, backoff, "exponential", multiplier)


def read_older_retry(section: Section) -> Retry | None:
    """`max_retries` and `retry_delay_ms` of a step."""
    if "max_retries" not in section and "retry_delay_ms" not in section:
        section.ask("max_retries")
        section.ask("retry_delay_ms")
        return None
    retries = section.whole("max_retries", 0, least=0, most=TRIES_MAX)
    delay = section.whole("retry_delay_ms", 0, least=0, most=DELAY_MS_MAX)
    if delay and not retries and section.sound:
        message = "`retry_delay_ms` has no effect without `max_retries`"
        section.warn("retry_delay_ms", "ignored-key", message, "add `max_retries`")
    return Retry(1 + retries, delay)


def iso_duration(section: Section, key: str, *, zero: bool = False) -> int | None:
    """An ISO 8601 duration in milliseconds; the other spellings of time are not for here."""
    node = section.text(key)
    if node is None:
        return None
    if not str(node.value).upper().startswith("P"):
        message = f"`{key}` of {section.what} is {node.value!r}"
        hint = "write an ISO 8601 duration, such as PT30S or PT5M"
        section.findings.add(node.position, "bad-duration", message, hint)
        return None
    return section.duration_of(key, node, zero=zero)


def refuse_seconds(section: Section) -> None:
    if section.ask("deadline_seconds") is not None:
        message = f"`deadline_seconds` of {section.what} is no longer read"
        section.report("deadline_seconds", "removed-key", message, _REPLACED)
