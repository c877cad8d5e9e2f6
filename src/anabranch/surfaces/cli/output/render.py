"""Plain text for people. Nothing here decides anything."""

from __future__ import annotations

import argparse
import codecs
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.operations.read.items import LoopItem, Page
    from anabranch.operations.runs.redrive_plan import RedrivePlan, RunAgain


INSTANTS = ("deadline", "wake", "lease", "until")  # in events: 0 is none
UTF8 = ("utf-8", "utf8")
COLOURS = {
    "completed": "32", "done": "32", "running": "36", "ready": "36", "new": "36",
    "waiting": "33", "held": "33", "deciding": "33", "paused": "33", "sleeping": "33",
    "joining": "33", "partial": "35", "failed": "31", "step_timeout": "31", "cancelled": "31",
    "deadline_exceeded": "31", "aborted": "31", "skipped": "90", "discarded": "90",
}  # fmt: skip
MARKS = {"done": "✓", "completed": "✓", "failed": "✗", "aborted": "✗", "skipped": "–",
         "discarded": "–", "running": "▶", "held": "⏸", "deciding": "?", "sleeping": "z",
         "joining": "…", "ready": "·", "new": "·"}  # fmt: skip


#: What stands for our signs where the terminal or the file cannot show them.
PLAIN = {"✓": "+", "✗": "x", "–": "-", "▶": ">", "⏸": "=", "…": "...", "·": ".", "×": "x"}


def plain_signs(error: UnicodeError) -> tuple[str | bytes, int]:
    """An error handler for streams: a plain sign where there is one, else an escape."""
    if isinstance(error, UnicodeEncodeError):
        bad = error.object[error.start : error.end]
        signs = (PLAIN.get(sign) or ascii(sign)[1:-1] for sign in bad)
        return "".join(signs), error.end
    raise error


def set_up_streams() -> None:
    """Whatever the locale, printing never fails."""
    codecs.register_error("anabranch.plain", plain_signs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="anabranch.plain")


def json_line(value: Any) -> str:
    ascii_only = (getattr(sys.stdout, "encoding", None) or "ascii").lower() not in UTF8
    return json.dumps(value, ensure_ascii=ascii_only, default=str)


def json_text(value: Any) -> str:
    """For people: indented, one key a line."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def clean(text: str) -> str:
    """Without control characters: what a step answers must not reach into the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def paint(text: str, status: str, *, colour: bool) -> str:
    code = COLOURS.get(status)
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code else text


def wants_colour(stream: Any = None) -> bool:
    stream = stream or sys.stdout
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ


def ago(at: int) -> str:
    return duration(max(0, int(time.time() * 1000) - at) / 1000)


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def instant(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000)) + f".{at % 1000:03d}"


def short(value: Any, width: int = 60) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_line(value)
    start = clean(" ".join(text[: 8 * width].split()))
    return start if max(len(start), len(text) // 8) <= width else start[: width - 1] + "…"


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> list[str]:
    lines = [list(head), *map(list, rows)] if head else [list(row) for row in rows]
    if not lines:
        return []
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def tell(options: argparse.Namespace, value: Any, text: object) -> int:
    """Print one answer, as JSON where that was asked for; the exit code is that of a success."""
    print(json_line(value) if options.json else text)
    return 0


def tell_rows(
    options: argparse.Namespace,
    value: Any,
    rows: Sequence[Sequence[str]],
    head: Sequence[str],
    none: str,
) -> int:
    """The same for a list, which is a table for people."""
    return tell(options, value, "\n".join(table(rows, head)) if rows else none)


def tell_lines(
    options: argparse.Namespace,
    values: Iterable[Any],
    rows: Iterable[Sequence[str]],
    head: Sequence[str],
) -> int:
    """The same for a list whose JSON is a line for each value."""
    lines: Iterable[str] = map(json_line, values) if options.json else table(rows, head)
    for line in lines:
        print(line)
    return 0


def fact_lines(facts: Mapping[str, str]) -> list[str]:
    """A line for each fact that there is."""
    return [f"  {key}: {clean(said)}" for key, said in facts.items() if said]


def summary(run: Mapping[str, Any], seconds: float | None, *, colour: bool) -> list[str]:
    """The plain end of `run`: a line a step, the joins, the result, the reason."""
    took = f" in {duration(seconds)}" if seconds is not None else ""
    head = paint(run["status"], run["status"], colour=colour)
    if run["problems"]:
        head += f", {run['problems']} problem{'s' if run['problems'] > 1 else ''}"
    lines = [f"{run['name']} ({run['run']}): {head}{took}"]
    lines += step_lines(run["steps"], colour=colour)
    for join in run["joins"]:
        chosen = ", ".join(join["selected"]) or "none"
        late = f", {join['late']} late" if join["late"] else ""
        lines.append(f"  join at {join['target']}: {join['verdict']}, took {chosen}{late}")
    if run.get("session") is not None:
        lines.append(f"  session: {_session(run['session'])}")
    if run["problem"] is not None:
        lines.append(f"  reason: {run['problem']['code']}: {clean(run['problem']['message'])}")
        for one in run["problem"].get("chain", ())[1:]:
            lines.append(f"    and so step {one['step']}: {one['code']}: {clean(one['message'])}")
    if run["result"] is not None:
        lines.append(f"  result: {short(run['result'], 400)}")
    if run["problem"] is not None or run["problems"]:
        again = f"anabranch redrive {run['run']}"
        lines.append(f"  next: `{again}` repeats what failed, once its cause is fixed")
    return lines


def _session(session: Mapping[str, Any]) -> str:
    counts = [f"{count} {state}" for state, count in session["processes"].items() if count]
    return f"{session['result'] or 'alive'} ({', '.join(counts)})"


def step_lines(steps: Mapping[str, Any], *, colour: bool) -> list[str]:
    width = max((len(name) for name in steps), default=0)
    lines = []
    for name, step in steps.items():
        mark = paint(MARKS.get(step["status"], "·"), step["status"], colour=colour)
        times = f" ×{step['runs']}" if step["runs"] > 1 else ""
        words = _statuses(step["statuses"], step.get("earlier", {}))
        value = f"  {short(step['result'])}" if step["result"] is not None else ""
        lines.append(f"  {mark} {name.ljust(width)}  {words}{times}{value}")
    return lines


def _statuses(statuses: Sequence[str], earlier: Mapping[str, int]) -> str:
    counts = dict(earlier)
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def loop_lines(loops: Sequence[Mapping[str, Any]]) -> list[str]:
    """How far loops are: done of all, rate, time left; or what they came to."""
    lines = []
    for loop in loops:
        total = f" of {loop['total']:,}" if loop["total"] is not None else ""
        line = f"  loop {loop['step']}: {loop['succeeded']:,}{total} done"
        line += f", {loop['failed']:,} failed" if loop["failed"] else ""
        if loop["status"] == "open":
            line += f", {loop['in_flight']:,} out, {loop['per_second']:,.0f}/s"
            if loop["seconds_left"] is not None:
                line += f", about {duration(loop['seconds_left'])} left"
        else:
            line += f": {loop['status']}"
        lines.append(line)
    return lines


def item_lines(page: Page) -> list[str]:
    """A page of the items of a loop, a line each."""
    total = f" of {page.total:,}" if page.total is not None else ""
    head = f"{page.step} ({page.loop}): {page.status}, {page.succeeded:,}{total} succeeded"
    lines = [f"{head}, {page.failed:,} failed"]
    if page.failures:
        lines += [f"  {count:,} × {clean(kind)}" for kind, count in page.failures.items()]
    rows = [
        (
            *(str(item.index), item.iter_key or item.key or "", _shard(item)),
            *(item.state, str(item.attempts), _came_to(item)),
        )
        for item in page.items
    ]
    titles = ("ITEM", "KEY", "SHARD", "STATE", "TRIES", "RESULT")
    lines += table(rows, titles) if rows else ["no items"]
    if page.more_after is not None:
        lines.append(f"more: --after {page.more_after}")
    return lines


def _shard(item: LoopItem) -> str:
    """Its place in the loop, whose name stands above."""
    return (item.shard_id or "").rpartition("/")[2]


def _came_to(item: LoopItem) -> str:
    if item.error is not None:
        return clean(f"{item.error['kind']}: {short(item.error['message'], 80)}")
    taken = f"(run {item.origin}) " if item.origin else ""
    return taken + short(item.result)


def redrive_lines(plan: RedrivePlan) -> list[str]:
    """What a redrive would do: what runs again and why, what is kept, what comes for the first
    time."""
    rows = [("again", _times(each.step, each.runs), _why(each)) for each in plan.again]
    rows += [("reused", _times(each.step, each.runs), "") for each in plan.reused]
    rows += [("new", step, "it was not reached before") for step in plan.unreached]
    again, reused = sum(e.runs for e in plan.again), sum(e.runs for e in plan.reused)
    said = f"a redrive would run {again} step runs again and reuse {reused}"
    return [f"{plan.name} ({plan.run}): {plan.status}; {said}", *table(rows)]


def _times(step: str, runs: int) -> str:
    return step if runs == 1 else f"{step} ×{runs}"


def _why(again: RunAgain) -> str:
    if again.items_kept is None:
        return again.why
    left = "" if again.items_left is None else f", {again.items_left:,} again"
    return f"{again.why} ({again.items_kept:,} items kept{left})"


def waiting_lines(waiting: Sequence[Mapping[str, Any]], now: int | None = None) -> list[str]:
    now = int(time.time() * 1000) if now is None else now
    lines = []
    for one in waiting:
        where = f"{one['step']} " if one["step"] else ""
        line = f"  {where}({one['what']} {one['id']}) waits for {clean(one['waits_for'])}"
        line += f", for {duration(max(0, now - one['since']) / 1000)}"
        if one.get("until"):
            left = (one["until"] - now) / 1000
            line += f", {duration(left)} left" if left > 0 else ", time is up"
        lines.append(line)
        lines += [_slot_line(slot) for slot in one.get("slots", ())]
        movers = [clean(mover) for mover in one.get("movers", ()) if mover]
        # A line each: they are copied into a shell.
        lines.extend(
            f"      {'or by' if number else 'can be moved by'}: {mover}"
            for number, mover in enumerate(movers)
        )
    return lines


def _slot_line(slot: Mapping[str, Any]) -> str:
    by = ", ".join(slot.get("by", ()))
    words = {"filled": f"filled by {by}", "open": f"can come from {by}", "lost": "cannot come"}
    return f"      {slot['node']} ({slot['when']}): {words[slot['state']]}"


def event_line(record: Mapping[str, Any], first_at: int) -> str:
    said = {
        key: value
        for key, value in record["fields"].items()
        if value not in ("", {}, []) and not (key in INSTANTS and value == 0)
    }
    fields = ", ".join(f"{key}={short(value, 48)}" for key, value in said.items())
    since = (record["at"] - first_at) / 1000
    return f"{record['seq']:>6}  +{since:9.3f}  {record['kind']:<18} {fields}"
