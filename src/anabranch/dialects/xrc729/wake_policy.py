"""Who may wake a sleeping process: a pure question about the payload it sleeps with.

The kernel lets the owner of a session pass and asks this policy of the net about others. They need
to be named under `__wakeUp`, which travels with the payload from the start of the session (wake-ups
cannot write it there, since they cannot write keys that begin with an underscore):

    {"steps": {"W1": {"rpc": ["0x…"], "internal": ["0x…"]}},
     "default": {"internal": {"allow": ["*"], "fromXRC137": ["0x…"]}}}

The entry of a step replaces the default as a whole, and nothing said is no. `rpc` lists who may ask
from outside, address by address. `internal` lists the owners whose rules may ask; `*` or the zero
address stands for everybody, and `fromXRC137` narrows it down to named rule contracts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

ALLOWED = "__wakeUp"
ANYBODY = ("*", "0x" + "0" * 40)


class PayloadWakePolicy(msgspec.Struct, frozen=True):
    """The payload names who may wake it, beside the owner."""

    def allows(
        self,
        payload: Mapping[str, Any],
        step: str,
        *,
        way: Literal["rpc", "internal"],
        asker: str,
        rule: str = "",
    ) -> bool:
        entry = _entry(payload.get(ALLOWED), step)
        if way == "rpc":
            return _names(entry.get("rpc"), asker)
        internal = entry.get("internal")
        if not isinstance(internal, Mapping):
            return _names_anybody(internal) or _names(internal, asker)
        allow = internal.get("allow")
        if not (_names_anybody(allow) or _names(allow, asker)):
            return False
        return "fromXRC137" not in internal or _names(internal["fromXRC137"], rule)


def _entry(allowed: Any, step: str) -> Mapping[str, Any]:
    if not isinstance(allowed, Mapping):
        return {}
    steps = allowed.get("steps")
    if isinstance(steps, Mapping) and step in steps:
        found = steps[step]
    else:
        found = allowed.get("default")
    return found if isinstance(found, Mapping) else {}


def _texts(entries: Any) -> list[str]:
    entries = [entries] if isinstance(entries, str) else entries
    return [one for one in entries if isinstance(one, str)] if isinstance(entries, list) else []


def _names(entries: Any, who: str) -> bool:
    return bool(who) and any(one.lower() == who.lower() for one in _texts(entries))


def _names_anybody(entries: Any) -> bool:
    return any(one.lower() in ANYBODY for one in _texts(entries))
