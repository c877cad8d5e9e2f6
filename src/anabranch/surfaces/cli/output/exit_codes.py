"""The exit codes of the verbs that watch a run to its end, and what they say about its problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.surfaces.cli.output.render import clean

FAILED, WITH_PROBLEMS, LEFT_WAITING = 1, 3, 4
EXIT = {
    "completed": 0,
    "failed": FAILED,
    "partial": WITH_PROBLEMS,
    "waiting": LEFT_WAITING,
    "paused": LEFT_WAITING,
    "queued": LEFT_WAITING,
    "running": 130,
}


def exit_code(status: str, problems: int, *, lenient: bool) -> int:
    """`completed` with problems is no plain success, unless whoever asks is lenient."""
    if status == "completed" and problems and not lenient:
        return WITH_PROBLEMS
    return EXIT.get(status, FAILED)


def code_of_children(statuses: Iterable[str]) -> int:
    """A child that failed weighs more than one that is left, and that more than a partial one."""
    codes = {EXIT.get(status, FAILED) for status in statuses}
    return next((code for code in (FAILED, LEFT_WAITING, WITH_PROBLEMS) if code in codes), 0)


def unhandled(summary: Mapping[str, Any]) -> int:
    """Problems that nothing took care of; what the definition tolerates is not among them."""
    return int(summary["problems"] - summary.get("tolerated", 0))


def problem_lines(summary: Mapping[str, Any]) -> list[str]:
    """What went wrong in a run whose status does not say so: the reason stands in no summary."""
    failures, count = summary.get("failures") or [], unhandled(summary)
    still = summary["status"] in ("waiting", "paused")
    if not (failures and (still or (summary["status"] == "completed" and count))):
        return []
    word = "problem" if count == 1 else "problems"
    with_them = f", with {count} {word} that nothing handled" if count else ""
    lines = [f"run {summary['run']} is {summary['status']}{with_them}; what went wrong:"]
    for one in failures:
        lines.append(f"  step {one['step']}: {one['code']}: {clean(one['message'])}")
    if count > len(failures):
        lines.append(f"  and more: anabranch events {summary['run']}")
    return lines
