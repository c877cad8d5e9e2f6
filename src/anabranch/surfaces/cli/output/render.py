"""Plain text for people. Nothing here decides anything."""

from __future__ import annotations

import argparse
import codecs
import io
import json
import os
import re
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
    "joining": "33", "queued": "33", "retrying": "33", "parked": "33", "valid": "32",
    "invalid": "33", "invalid by error": "31", "partial": "35", "failed": "31",
    "step_timeout": "31", "cancelled": "31", "deadline_exceeded": "31", "aborted": "31",
    "skipped": "90", "discarded": "90",
}  # fmt: skip
MARKS = {"done": "✓", "completed": "✓", "failed": "✗", "aborted": "✗", "skipped": "–",
         "discarded": "–", "running": "▶", "held": "⏸", "deciding": "?", "sleeping": "z",
         "joining": "…", "ready": "·", "new": "·", "queued": "·", "retrying": "…",
         "parked": "…", "valid": "✓", "invalid": "✗", "invalid by error": "✗"}  # fmt: skip


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


#: What terminals obey, or that turns a line round, and JSON need not escape: the second set of
#: controls, and the marks for the direction of writing.
_OBEYED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def json_line(value: Any) -> str:
    ascii_only = (getattr(sys.stdout, "encoding", None) or "ascii").lower() not in UTF8
    return safe_json(json.dumps(value, ensure_ascii=ascii_only, default=str))


def safe_json(text: str) -> str:
    """The same JSON without a letter that a terminal obeys; such letters stand in texts alone."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(value: Any) -> str:
    """For people: indented, one key a line."""
    return safe_json(json.dumps(value, indent=2, ensure_ascii=False))


def clean(text: str) -> str:
    """Without control characters: what a step answers must not reach into the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """The same for what has a line with others: its own line breaks begin none."""
    if text.isprintable():
        return text
    return clean(text).replace("\n", "\\n").replace("\t", " ")


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
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    days, hours = divmod(hours, 24)
    return f"{days} d" + (f" {hours} h" if hours else "")


def counted(count: int, one: str, several: str = "") -> str:
    """A number and what it counts: 1 run, 2 runs."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def instant(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000)) + f".{at % 1000:03d}"


def short(value: Any, width: int = 60) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_line(value)
    start = clean(" ".join(text[: 8 * width].split()))
    return start if max(len(start), len(text) // 8) <= width else start[: width - 1] + "…"


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> list[str]:
    """A line for each row, whatever is in its cells."""
    rows = [[one_line(cell) for cell in row] for row in rows]
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


def standing(run: Mapping[str, Any], *, colour: bool = False) -> str:
    """The status of a run with its problems, and how many of them are taken care of."""
    head = paint(run["status"], run["status"], colour=colour)
    problems, tolerated = run["problems"], run.get("tolerated", 0)
    if problems:
        head += f", {counted(problems, 'problem')}"
    if tolerated:
        head += " tolerated" if tolerated == problems else f", {tolerated:,} of them tolerated"
    if run.get("handled") and run["status"] == "completed":
        head += f", {counted(run['handled'], 'failure')} handled"
    return head


def _lasted(run: Mapping[str, Any]) -> str:
    """From its start to its end, whoever watched it; of an unfinished one only the start."""
    if not run["finished_at"]:
        return f", begun {ago(run['created_at'])} ago"
    return f" in {duration((run['finished_at'] - run['created_at']) / 1000)}"


def summary(run: Mapping[str, Any], *, colour: bool) -> list[str]:
    """The plain end of `run`: a line a step, the joins, the result, the reason."""
    name = one_line(run["name"])
    lines = [f"{name} ({run['run']}): {standing(run, colour=colour)}{_lasted(run)}"]
    lines += step_lines(run["steps"], colour=colour)
    for join in run["joins"]:
        lines.append(f"  join at {join['target']}: {_join(join, run['steps'])}")
    if run.get("session") is not None:
        lines.append(f"  session: {_session(run['session'])}")
    if run["problem"] is not None:
        lines.append(f"  reason: {_reason(run['problem'])}")
        for one in run["problem"].get("chain", ())[1:]:
            why = f"{one_line(one['code'])}: {clean(one['message'])}"
            lines.append(f"    and so step {one['step']}: {why}")
    if run["result"] is not None:
        lines.append(f"  result: {short(run['result'], 400)}")
    if _has_what_to_redrive(run) and not run.get("redriven_by"):
        only_tolerated = run["problem"] is None and run.get("tolerated") == run["problems"]
        what = "was tolerated" if only_tolerated else "failed"
        again = f"anabranch redrive {run['run']}"
        lines.append(f"  next: `{again}` repeats what {what}, once its cause is fixed")
    return lines


def _join(join: Mapping[str, Any], steps: Mapping[str, Any]) -> str:
    if join["verdict"] == "open":
        return "open"  # `explain` says what has come and what is missing
    skipped = {name for name, one in steps.items() if one["status"] == "skipped"}
    said = (f"{name} (skipped)" if name in skipped else name for name in join["selected"])
    chosen = one_line(", ".join(said)) or "none"
    late = f", {join['late']} late" if join["late"] else ""
    return f"{join['verdict']}, took {chosen}{late}"


def _has_what_to_redrive(run: Mapping[str, Any]) -> bool:
    """A no that comes from an error was said for good: nothing repeats it."""
    if run["problem"] is not None or not run["problems"]:
        return run["problem"] is not None
    steps = run["steps"].values()
    ended = {word for one in steps for word in (*one["statuses"], *one.get("earlier", ()))}
    by_error = any(one.get("by_error") for one in steps)
    return not by_error or not ended.isdisjoint(("failed", "aborted", "skipped"))


def failure_lines(run: Mapping[str, Any]) -> list[str]:
    """Every failure that is remembered, with its step and why."""
    return [
        f"  failed: {one['step']}: {one_line(one['kind'])}: {clean(one['message'])}"
        for one in run["failures"]
    ]


def _reason(problem: Mapping[str, Any]) -> str:
    """A problem that nobody gave words for has its code for them."""
    code, message = one_line(problem["code"]), clean(problem["message"])
    return code if message == code else f"{code}: {message}"


def _session(session: Mapping[str, Any]) -> str:
    counts = [f"{count} {state}" for state, count in session["processes"].items() if count]
    return f"{session['result'] or 'alive'} ({', '.join(counts)})"


def step_lines(steps: Mapping[str, Any], *, colour: bool) -> list[str]:
    width = max((len(name) for name in steps), default=0)
    lines = []
    for name, step in steps.items():
        state = step.get("state") or step["status"]
        mark = paint(MARKS.get(state, "·"), state, colour=colour)
        times = f" ×{step['runs']}" if step["runs"] > 1 else ""
        value = f"  {short(step['result'])}" if step["result"] is not None else ""
        lines.append(f"  {mark} {name.ljust(width)}  {_words(step, state)}{times}{value}")
        if step.get("by_error"):
            lines.append(f"    {' ' * width}  {clean(step['by_error'])}")
    return lines


def _words(step: Mapping[str, Any], state: str) -> str:
    """One run in its plain word; of several how many are in which status, and of the last more."""
    if step["runs"] == 1:
        return state
    words = _statuses(step["statuses"], step.get("earlier", {}))
    return words if state == step["status"] else f"{words}, the last {state}"


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
    said = f"a redrive would repeat {counted(again, 'step run')} and reuse {reused:,}"
    lines = [f"{one_line(plan.name)} ({plan.run}): {plan.status}; {said}", *table(rows)]
    if plan.redriven_by:
        lines.append(f"it was redriven already, by {', '.join(plan.redriven_by)}: say --again")
    if plan.secrets:
        lines.append(f"its secrets are not stored: give {', '.join(plan.secrets)} again (--input)")
    return lines


def _times(step: str, runs: int) -> str:
    return step if runs == 1 else f"{step} ×{runs}"


def _why(again: RunAgain) -> str:
    if again.answers_kept is not None:
        return f"{again.why} ({counted(again.answers_kept, 'answer')} kept)"
    if again.items_kept is None:
        return again.why
    left = "" if again.items_left is None else f", {again.items_left:,} again"
    return f"{again.why} ({again.items_kept:,} items kept{left})"


#: Kept under numbers of the engine, and called by what they are.
_PLAIN = {"loop": "loop", "gather": "fan-out"}


def stands(one: Mapping[str, Any]) -> str:
    """With who is at work, as far as that is a worker."""
    from anabranch.operations.read import waiting  # not every verb needs the kernel

    said = waiting.stands(
        one["waits_for"],
        at_work=one.get("at_work", False),
        queued=one.get("queued", False),
    )
    workers = one.get("movers", ()) if one.get("at_work") and one["what"] == "job" else ()
    return f"{said}, on {workers[0]}" if workers and " on " not in said else said


def waiting_lines(waiting: Sequence[Mapping[str, Any]], now: int | None = None) -> list[str]:
    now = int(time.time() * 1000) if now is None else now
    lines = []
    for one, more in _alike(waiting):
        where = f"{one['step']} " if one["step"] else ""
        others = f" and {more:,} more" if more else ""
        named = _PLAIN.get(one["what"]) or f"{one['what']} {one['id']}"
        line = f"  {where}({named}{others}) {clean(stands(one))}"
        line += f", for {duration(max(0, now - one['since']) / 1000)}"
        if one.get("until"):
            left = (one["until"] - now) / 1000
            line += f", {duration(left)} left" if left > 0 else ", time is up"
        lines.append(line)
        lines += [_slot_line(slot) for slot in one.get("slots", ())]
        if one.get("at_work"):
            continue  # nobody has to move what is being done
        movers = [clean(mover) for mover in one.get("movers", ()) if mover]
        # A line each: they are copied into a shell.
        lines.extend(
            f"      {'or by' if number else 'can be moved by'}: {mover}"
            for number, mover in enumerate(movers)
        )
    return lines


def child_lines(children: Iterable[Mapping[str, Any]]) -> list[str]:
    """Runs that were begun by tasks that do not wait for them, and have not ended well."""
    lines = []
    for one in children:
        became = f"ended {one['status']}" if one["finished"] else f"is left {one['status']}"
        why = f": {clean(one['reason'])}" if one["reason"] else ""
        lines.append(f"child run {one['run']} ({clean(one['name'])}) {became}{why}")
    return lines


def schedule_lines(begun_by: Mapping[str, str] | None) -> list[str]:
    """Which schedule began a run, and why."""
    if begun_by is None:
        return []
    kinds = {"backfill": ", by a backfill", "now": ", because a person wanted it then"}
    why = kinds.get(begun_by["kind"], "")
    return [f"  begun by schedule {clean(begun_by['name'])} for {clean(begun_by['time'])}{why}"]


def signal_lines(signals: Sequence[Mapping[str, Any]], now: int | None = None) -> list[str]:
    """The signals that a run keeps for waits to come."""
    now = int(time.time() * 1000) if now is None else now
    lines = []
    for one in signals:
        age = duration(max(0, now - one["received_at"]) / 1000)
        line = f"  signal {clean(one['name'])} ({clean(one['id'])}) is kept, for {age}"
        if one.get("expires_at"):
            left = (one["expires_at"] - now) / 1000
            line += f", {duration(left)} left" if left > 0 else ", time is up"
        line += f": {short(one.get('payload'))}"
        lines.append(line)
        if one.get("problem"):
            lines.append(f"      a filter failed for it: {clean(one['problem'])}")
    return lines


def _alike(
    waiting: Sequence[Mapping[str, Any]],
) -> list[tuple[Mapping[str, Any], int]]:
    """Jobs that wait for the same cluster for the same reason are one line, with how many more."""
    found: list[tuple[Mapping[str, Any], int]] = []
    for one in waiting:
        last, more = found[-1] if found else ({}, 0)
        waits = one.get("cluster") and not one["cluster"].get("task")
        if waits and all(last.get(key) == one[key] for key in ("step", "waits_for")):
            found[-1] = last, more + 1
        else:
            found.append((one, 0))
    return found


def _slot_line(slot: Mapping[str, Any]) -> str:
    by = ", ".join(slot.get("by", ()))
    words = {"filled": f"filled by {by}", "open": f"can come from {by}", "lost": "cannot come"}
    return one_line(f"      {slot['node']} ({slot['when']}): {words[slot['state']]}")


def event_line(record: Mapping[str, Any], first_at: int) -> str:
    said = {
        key: value
        for key, value in record["fields"].items()
        if value not in ("", {}, []) and not (key in INSTANTS and value == 0)
    }
    fields = ", ".join(f"{key}={short(value, 48)}" for key, value in said.items())
    since = (record["at"] - first_at) / 1000
    return f"{record['seq']:>6}  +{since:9.3f}  {record['kind']:<18} {fields}"
