"""Schedules that definitions bring along: `register` keeps them as the newest version says.

A schedule of a definition has the name of its path (`reports/nightly` is `reports.nightly`) and
runs the newest version. One that somebody added under that name is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from anabranch.dialects.schedule import read_schedule
from anabranch.operations.record_families import NAME_LETTERS
from anabranch.operations.schedules.schedule import (
    FAMILY,
    SCHEDULES,
    Schedule,
    Target,
    after_now,
    carried_over,
    record_of,
)
from anabranch.store.ports import Store

_TRIES = 100


def name_of(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.replace("/", ".")).lstrip("-_.") or "schedule"
    if name == path.replace("/", ".") and len(name) <= NAME_LETTERS:
        return name
    return f"{name[: NAME_LETTERS - 9]}-{sha256(path.encode()).hexdigest()[:8]}"


def keep_schedule(store: Store, path: str, given: Mapping[str, Any], now: int, actor: str) -> str:
    """What the newest version of this path says of its schedule; returns a warning, or ""."""
    name = name_of(path)
    for _ in range(_TRIES):
        known = store.record(FAMILY, name)
        before = SCHEDULES.document(known) if known is not None else None
        if before is not None and not before.from_definition:
            return (
                f"{path}: the schedule {name!r} was added by hand, and that of the definition is "
                "not used" if given else ""
            )  # fmt: skip
        if known is None and not given:
            return ""
        if known is not None and not given:
            if store.drop_record(FAMILY, name, known.version):
                return ""
            continue
        made = _made(name, path, given, now, actor)
        if before is not None:
            if (before.spec, before.target) == (made.spec, made.target):
                return ""
            kept = carried_over(before, made, now)
            made = replace(before, spec=made.spec, target=made.target, **kept)
        if store.put_record(record_of(made, now), known.version if known else 0):
            return ""
    return f"{path}: the schedule {name!r} changes all the time, and was left as it is"


def _made(name: str, path: str, given: Mapping[str, Any], now: int, actor: str) -> Schedule:
    spec = read_schedule(given)
    paused = bool(given.get("paused"))
    return Schedule(
        name=name,
        spec=spec,
        target=Target(path=path),
        from_definition=True,
        created_at=now,
        created_by=actor,
        next_tick=after_now(spec, now),
        paused_at=now if paused else None,
        paused_by=actor if paused else "",
    )
