"""The grammar of `schedule`: runs that begin by the clock."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

_PLAIN = (
    ("show", "Show a schedule, its next times and what became of the last ones."),
    ("pause", "Begin no runs until `resume`."),
    ("resume", "Go on with the next time; what came meanwhile is left out."),
    ("remove", "Remove a schedule; its runs stay."),
    ("run-now", "Begin a run beside the timetable."),
)
OVERLAPS = ("skip", "queue", "cancel_running")


def add_schedule(verbs: c.Verbs) -> None:
    text = "Begin runs by the clock: cron with a time zone, an interval, or instants."
    actions = c.family(verbs, "schedule", text)
    _add(actions)
    c.action(actions, "list", "List the schedules, each with its next time.")
    for name, words in _PLAIN:
        parser = c.action(actions, name, words)
        _name(parser)
        if name != "show":
            c.options(parser, "--actor")
    _next(actions)
    _backfill(actions)


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="SCHEDULE", help="its name")


def _add(actions: c.Verbs) -> None:
    add = c.action(actions, "add", "Add a schedule; an engine on the store begins its runs.")
    add.add_argument("name", metavar="NAME", help="what it is called: letters, digits, - _ .")
    add.add_argument(
        "target", metavar="FILE|PATH[@N]",
        help="a definition, which is stored as it is now, or a path of the catalog: its newest "
        "version at each time, or version N",
    )  # fmt: skip
    _times(add)
    add.add_argument(
        "--overlap", choices=OVERLAPS,
        help="while the run before goes on: skip this time (the default), queue behind it, or "
        "cancel it",
    )  # fmt: skip
    add.add_argument(
        "--catch-up", metavar="DURATION",
        help="begin runs up to so late when no engine was there in time (1h)",
    )  # fmt: skip
    add.add_argument("--jitter", metavar="DURATION", help="begin up to so much later, spread out")
    c.pairs(add, "--input", "one value of the input; V may use {{ schedule.time }}")
    add.add_argument("--input-file", metavar="F", help="the input as a JSON or YAML file")
    c.labels(add, "label its runs; V may use {{ schedule.date }}")
    add.add_argument("--paused", action="store_true", help="begin nothing before `resume`")
    add.add_argument("--replace", action="store_true", help="in the place of one of this name")
    c.options(add, "--actor", "--tools", "--catalog")


def _times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cron", metavar="EXPR", help="five fields: '0 3 * * mon-fri'")
    parser.add_argument("--every", metavar="DURATION", help="an interval: 15m, 1h30m")
    parser.add_argument(
        "--at", action="append", metavar="INSTANT", help="2026-12-24T08:00 (repeatable)"
    )
    parser.add_argument(
        "--timezone", metavar="ZONE", help="of cron and instants: Europe/Berlin (UTC)"
    )
    parser.add_argument("--begin", metavar="INSTANT", help="nothing comes before")


def _next(actions: c.Verbs) -> None:
    parser = c.action(actions, "next", "Show the next times of a schedule, or of an expression.")
    parser.add_argument("name", nargs="?", metavar="SCHEDULE", help="its name")
    _times(parser)
    parser.add_argument("--count", type=c.positive, default=5, metavar="N", help="how many (5)")


def _backfill(actions: c.Verbs) -> None:
    parser = c.action(
        actions, "backfill", "Begin the runs of a time that is over; those that have one keep it."
    )
    _name(parser)
    parser.add_argument(
        "--from", dest="begin", required=True, metavar="INSTANT", help="the first that counts"
    )
    parser.add_argument(
        "--to", dest="end", required=True, metavar="INSTANT", help="the first that does not"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say which runs")
    parser.add_argument("--wait", action="store_true", help="until all of them have begun")
    c.options(parser, "--actor")
