"""How often a caller may ask, and how long a promise holds: hints, within what the host allows."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from anabranch.errors import InputError

RETRY_SECONDS_MAX = 3600  # of the document
TTL_SECONDS_MAX = 900.0


class DeferredConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `deferred` of the node's configuration."""

    retry_seconds_min: int = 1
    retry_seconds_max: int = 60
    ttl_seconds_max: float = TTL_SECONDS_MAX


def read_config(section: object) -> DeferredConfig:
    try:
        config = msgspec.convert(section or {}, DeferredConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"deferred: {error}") from None
    least, most = config.retry_seconds_min, config.retry_seconds_max
    if not 1 <= least <= most <= RETRY_SECONDS_MAX:
        raise InputError(
            "deferred.retry_seconds_min and deferred.retry_seconds_max are "
            f"{least} and {most}; write numbers from 1 to {RETRY_SECONDS_MAX} in this order"
        )
    if not 0 < config.ttl_seconds_max < math.inf:
        raise InputError("deferred.ttl_seconds_max: write a number of seconds above 0")
    return config


def retry_seconds(hint: float | None, config: DeferredConfig) -> int:
    """In how many seconds to ask again; without a hint as soon as the host allows."""
    if hint is None or math.isnan(hint):
        return config.retry_seconds_min
    bounded = min(max(hint, config.retry_seconds_min), config.retry_seconds_max)
    return min(math.ceil(bounded), config.retry_seconds_max)


def ttl_ms(hints: Iterable[float | None], config: DeferredConfig) -> int:
    """For how many milliseconds the promise holds: the shortest hint, and never more than the host
    allows. A deadline that has passed leaves the least there is."""
    given = [hint for hint in hints if hint is not None and not math.isnan(hint)]
    return max(int(max(min([*given, config.ttl_seconds_max]), 0.0) * 1000), 1)
