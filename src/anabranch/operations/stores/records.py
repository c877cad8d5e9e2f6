"""Is a record of a feature what that feature wrote? Of every family that it is JSON; of schedules
that they can be read, and are due when their next tick is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from anabranch.dialects.schedule import timetable_of
from anabranch.errors import StoreError
from anabranch.operations.schedules import schedule
from anabranch.operations.schedules.schedule import SCHEDULES, Schedule, due_of
from anabranch.store.record_ports import NamedRecord


def wrong_with_record(record: NamedRecord) -> str:
    """What is wrong with it, or ""."""
    if record.version < 1:
        return f"has the version {record.version}"
    try:
        msgspec.json.decode(record.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"is no JSON: {error!s:.120}"
    look = _FAMILIES.get(record.family)
    return look(record) if look is not None else ""


def _wrong_with_schedule(record: NamedRecord) -> str:
    try:
        found = SCHEDULES.document(record)
    except StoreError as error:
        return f"cannot be read: {error.message:.200}"
    if found.name != record.name:
        return f"calls itself {found.name!r:.120}"
    try:
        timetable_of(found.spec).next_after(record.updated_at)
    except ValueError as error:
        return f"has no timetable: {error!s:.200}"
    wanted = due_of(found, record.updated_at)
    if not _looks_again(found) and wanted != record.due:
        return f"is due at {record.due}, and its next tick is to begin at {wanted}"
    if wanted is not None and record.due is None:
        return "has something to do, and no instant at which a server looks at it"
    return ""


def _looks_again(found: Schedule) -> bool:
    """Whether it is due by more than its timetable: then at an instant that is not kept."""
    return bool(found.queued or found.asked or found.backfill)


_FAMILIES: Mapping[str, Callable[[NamedRecord], str]] = {schedule.FAMILY: _wrong_with_schedule}
