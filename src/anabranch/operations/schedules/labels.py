"""The labels of the runs that a schedule begins.

Apart from `schedule`, which loads timetables and time zones: every reader asks this.
"""

from __future__ import annotations

from collections.abc import Mapping

LABEL, LABEL_TIME, LABEL_KIND = "schedule", "schedule_time", "schedule_kind"


def begun_by(labels: Mapping[str, str]) -> dict[str, str] | None:
    """The schedule that began a run, by the labels of the run: its name, the tick, and whether a
    tick, a backfill or somebody who wanted a run now was the reason."""
    if LABEL not in labels or LABEL_TIME not in labels:
        return None
    kind = labels.get(LABEL_KIND, "tick")
    return {"name": labels[LABEL], "time": labels[LABEL_TIME], "kind": kind}
