"""Why nobody holds a passport that counts: what was found, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from anabranch.market.passports import Issuers, Key, Passport, problem_of
from anabranch.work.participants.port import Query

_EXPIRED = "expired"


class Cache(msgspec.Struct):
    """What the last reading of the sources gave."""

    passports: dict[Key, Passport] = {}
    revoked: set[Key] = set()
    refused: list[str] = []  # what was there and does not count
    issuers: Issuers = msgspec.field(default_factory=Issuers)
    #: Where each node is reached: the URLs that can be asked, and those that cannot.
    endpoints: dict[Key, tuple[tuple[str, ...], tuple[str, ...]]] = msgspec.field(
        default_factory=dict
    )
    read_at: int | None = None


def nobody_holds(cache: Cache, query: Query, now: int) -> str:
    capability = query.capability_id
    found = [one for one in cache.passports.values() if one.capability_id == capability]
    refused = f"; {_count(cache.refused, 'document')} cannot be read" if cache.refused else ""
    if not cache.passports:
        return f"no passport was found in the directory{refused}"
    if not found:
        others = len(cache.passports)
        return f"no passport for {capability!r} was found, but {others} for others{refused}"
    problems = [problem_of(one, now, cache.revoked, cache.issuers) for one in found]
    valid = problems.count("")
    if valid:
        fitting = "passport" if valid == 1 else "passports"
        return (
            f"{valid} valid {fitting} for {capability!r}, and the filter {query.filter} fits none"
        )
    head = f"{_count(found, 'passport')} for {capability!r} found"
    expired = [one for one, why in zip(found, problems, strict=True) if why == "it has expired"]
    if len(expired) == len(found):
        return f"{head}, {'all ' if len(found) > 1 else ''}{_expired(expired)}"
    counted = Counter(_short(why) for why in problems)
    return f"{head}: {', '.join(f'{count} {why}' for why, count in counted.most_common())}"


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}" if len(things) == 1 else f"{len(things)} {what}s"


def _expired(passports: Sequence[Passport]) -> str:
    days = sorted({_day(one.expires_at or 0) for one in passports})
    return f"expired on {days[0]}" if len(days) == 1 else f"expired, the last on {days[-1]}"


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()


def _short(why: str) -> str:
    if why == "it has expired":
        return _EXPIRED
    if "may not issue it" in why:
        return "by somebody who may not issue it here (`issuers` of the directory)"
    return why.removeprefix("it is ")
