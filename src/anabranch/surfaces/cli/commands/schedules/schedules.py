"""`schedule`: what begins when, how the last times went, and runs of a time that is over."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from anabranch import files
from anabranch.clock import SystemClock
from anabranch.dialects.source import SourceLimits
from anabranch.dialects.timetable import iso, zone_of
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row, ScheduleBackend
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.idle import tell_if_idle

HEAD = ("NAME", "STATE", "WHEN", "NEXT", "RUNS", "SKIPPED", "TARGET")
TIMES = ("cron", "every", "at", "timezone", "begin")
LOOK_SECONDS = 0.3  # between two looks at a backfill
SUFFIXES = (".yaml", ".yml", ".json")


async def schedule(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "next" and options.name is None:
        return _next_of_expression(options)
    async with open_backend(options, settings) as at:
        code = await ACTIONS[options.action](options, at.schedules)
        if options.action == "add" and not options.paused:
            await tell_if_idle(options, at, "its runs begin")
        return code


# -- looking -------------------------------------------------------------------------------------


async def _list(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    found = await schedules.all()
    rows = [
        (one["name"], one["state"], render.clean(_when(one)), _first(one), str(one["fired"]),
         str(sum(one["skipped"].values())), render.clean(_target(one)))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, HEAD, "no schedules")


async def _show(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    card = await schedules.show(options.name)
    return render.tell(options, card, "\n".join(_lines(card)))


async def _next(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    if any(getattr(options, name) for name in TIMES):
        raise InputError("name a schedule, or give an expression, not both", code="usage")
    found = await schedules.next(options.name, options.count)
    return _print_times(options, found)


def _next_of_expression(options: argparse.Namespace) -> int:
    """Asks nobody: what an expression means can be tried before it is used."""
    import msgspec

    from anabranch.operations.schedules.schedules import read_spec, upcoming

    spec = read_spec(_given_times(options))
    found = upcoming(spec, SystemClock().now(), options.count)
    return _print_times(options, msgspec.to_builtins(found))


def _print_times(options: argparse.Namespace, found: Row) -> int:
    lines = [_moment(at, found["timezone"]) for at in found["items"]]
    return render.tell(options, found, "\n".join(lines) or "there is no next time")


def _lines(card: Row) -> list[str]:
    zone, said = card["schedule"]["timezone"], card["schedule"]
    skipped = [f"{count:,} {_reason(why)}" for why, count in card["skipped"].items()]
    facts = {
        "runs": _target(card) + (" (from its definition)" if card["from_definition"] else ""),
        "when": _when(card),
        "next": ", ".join(_moment(at, zone) for at in card["next"]),
        "overlap": said["overlap"],
        "catch-up": said["catch_up"],
        "jitter": said.get("jitter", ""),
        "paused": _paused(card),
        "begun": f"{card['fired']:,}",
        "skipped": ", ".join(skipped),
        "queued": f"{card['queued']:,}" if card["queued"] else "",
        "newest run": card["running"],
        "backfill": _backfill_words(card["backfill"]),
    }
    lines = [f"schedule {card['name']} ({card['state']})", *render.fact_lines(facts)]
    for one in card["last"]:
        lines.append(f"  {_moment(one['tick'], zone)}  {_outcome(one)}")
    return lines


def _outcome(one: Row) -> str:
    kind = {"now": " (asked for)", "backfill": " (backfill)"}.get(one.get("kind", ""), "")
    if one["outcome"] == "started":
        return f"began {one['run']}{kind}"
    return render.clean(f"{one['outcome']}: {_reason(one['why'])}{kind}")


def _reason(why: str) -> str:
    words = {
        "late": "too late: no engine was there within the catch-up window",
        "overlap": "the run before went on",
        "queue_full": "the queue was full",
        "paused": "it waited when the schedule was paused",
        "replaced": "it waited when the schedule was given other instants",
        "refused": "refused",
    }
    return words.get(why, why)


def _paused(card: Row) -> str:
    if card["paused_at"] is None:
        return ""
    by = f" by {card['paused_by']}" if card["paused_by"] else ""
    return f"since {render.instant(card['paused_at'])}{by}"


def _backfill_words(one: Row | None) -> str:
    if one is None:
        return ""
    began, there, refused = (one.get(key, 0) for key in ("started", "existing", "refused"))
    over = began + there + refused
    state = "done" if one.get("done_at") is not None else "under way"
    return f"{state}, {over:,} of {one['total']:,} ({there:,} had a run, {refused:,} refused)"


def _when(card: Row) -> str:
    said = card["schedule"]
    if "cron" in said:
        return f"{said['cron']} in {said['timezone']}"
    if "every" in said:
        return f"every {said['every']}"
    count = len(said["at"])
    return f"at {count} instant{'s' if count > 1 else ''}"


def _first(card: Row) -> str:
    return _moment(card["next"][0], card["schedule"]["timezone"]) if card["next"] else "-"


def _moment(at: int, zone: str) -> str:
    return iso(at // 1000 * 1000, zone_of(zone))


def _target(card: Row) -> str:
    target = card["target"]
    if "fingerprint" in target:
        return f"{target.get('name', '')} {target['fingerprint'][:12]}".strip()
    numbered = f"@{target['version']}" if target.get("version") is not None else ""
    return f"{target['path']}{numbered}"


# -- doing ---------------------------------------------------------------------------------------


async def _add(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    values.import_tools(options.tools)
    draft: Row = {
        "name": options.name,
        **_target_of(options.target),
        **_given_times(options),
        "input": {**values.file_input(options.input_file), **values.pairs(options.input, "input")},
        "labels": values.labels(options.label),
        "paused": options.paused,
        "replace": options.replace,
    }
    for name in ("overlap", "catch_up", "jitter"):
        if getattr(options, name) is not None:
            draft[name] = getattr(options, name)
    card = await schedules.add(draft)
    state = "paused" if card["state"] == "paused" else f"next {_first(card)}"
    said = f"schedule {card['name']}: {_when(card)}, runs {_target(card)}, {state}"
    return render.tell(options, card, render.clean(said))


def _given_times(options: argparse.Namespace) -> Row:
    given = {name: getattr(options, name) for name in TIMES}
    return {name: value for name, value in given.items() if value is not None}


def _target_of(target: str) -> Row:
    """A file is sent as it is now; everything else is a path of the catalog."""
    if not target.endswith(SUFFIXES) and not Path(target).is_file():
        return {"path": target}
    data = files.read_limited(Path(target), SourceLimits().bytes_max)
    try:
        return {"definition": data.decode("utf-8"), "file": target}
    except UnicodeDecodeError:
        raise InputError(f"{target} is not UTF-8", code="no_file") from None


async def _pause(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    card = await schedules.pause(options.name)
    return render.tell(options, card, f"paused: {card['name']}")


async def _resume(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    card = await schedules.resume(options.name)
    return render.tell(options, card, f"goes on: {card['name']}, next {_first(card)}")


async def _remove(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    card = await schedules.remove(options.name)
    return render.tell(options, card, f"removed: {card['name']}")


async def _run_now(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    asked = await schedules.run_now(options.name)
    how = "begins" if asked["how"] == "engine" else "begins when an engine runs on the store"
    return render.tell(options, asked, f"{asked['run']} {how}")


async def _backfill(options: argparse.Namespace, schedules: ScheduleBackend) -> int:
    asked = {"begin": options.begin, "end": options.end, "dry_run": options.dry_run}
    plan = await schedules.backfill(options.name, asked)
    if not options.wait or options.dry_run or not plan["total"]:
        return render.tell(options, plan, _plan_words(plan))
    if not options.json:
        print(_plan_words(plan))
    while True:
        card = await schedules.show(options.name)
        one = card["backfill"]
        if one is None or one.get("done_at") is not None:
            return render.tell(options, one, _backfill_words(one))
        await asyncio.sleep(LOOK_SECONDS)


def _plan_words(plan: Row) -> str:
    fresh = plan["total"] - plan["existing"]
    head = f"{plan['total']:,} times, {plan['existing']:,} of them have a run"
    verb = "would begin" if plan["dry_run"] else "begin"
    lines = [f"{head}: {render.counted(fresh, 'run')} {verb}"]
    lines += [f"  {run}" for run in plan["runs"]]
    if fresh > len(plan["runs"]):
        lines.append(f"  and {fresh - len(plan['runs']):,} more")
    return "\n".join(lines)


ACTIONS = {
    "add": _add,
    "list": _list,
    "show": _show,
    "pause": _pause,
    "resume": _resume,
    "remove": _remove,
    "next": _next,
    "backfill": _backfill,
    "run-now": _run_now,
}
