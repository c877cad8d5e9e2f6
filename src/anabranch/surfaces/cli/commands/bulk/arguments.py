"""The grammar of the verbs over many runs: `purge` and `bulk`."""

from __future__ import annotations

import argparse
from typing import get_args

from anabranch.literals import BulkVerb, Reducer, RunStatus
from anabranch.surfaces.cli.commands import common as c

BULK_VERBS = get_args(BulkVerb)


def add_purge(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "purge", "Delete runs that ended long ago, with their payloads.")
    parser.add_argument(
        "--older-than", default="30d", metavar="AGE", help="such as 12h, 30d (the default) or 4w"
    )
    _filter(parser.add_argument_group("which of them (all conditions hold)"))
    parser.add_argument("--dry-run", action="store_true", help="count, and delete nothing")
    c.options(parser, "--actor")


def add_bulk(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "bulk", "Do one thing with all runs that a filter finds.")
    parser.add_argument("action", metavar="VERB", choices=BULK_VERBS, help=", ".join(BULK_VERBS))
    which = parser.add_argument_group("which runs (all conditions hold)")
    _filter(which)
    which.add_argument("--parent", metavar="JOB", help="children of this job")
    which.add_argument("--created-before", metavar="AGE", help="started longer ago, such as 12h")
    which.add_argument("--ended-before", metavar="AGE", help="ended longer ago, such as 30d")
    which.add_argument("--all", action="store_true", help="required without other conditions")
    which.add_argument(
        "--limit", type=c.positive, metavar="N", help="look at no more than so many, newest first"
    )
    parser.add_argument("--dry-run", action="store_true", help="list them, and change nothing")
    c.pairs(parser, "--set", "of patch: write this value")
    parser.add_argument(
        "--reduce", default="set", choices=get_args(Reducer), metavar="REDUCER",
        help="of patch: how to write it (set)",
    )  # fmt: skip
    c.options(parser, "--reason", "--actor")


def _filter(which: argparse._ActionsContainer) -> None:
    which.add_argument(
        "--status", action="append", default=[], choices=get_args(RunStatus), metavar="STATUS",
        help="with this status; may be repeated",
    )  # fmt: skip
    c.labels(which, "with a label")
    which.add_argument("--name", metavar="NAME", help="of this definition")
    which.add_argument("--dialect", metavar="DIALECT", help="such as noetl")
    c.search(which)
    which.add_argument("--prefix", default="", metavar="ID", help="whose id starts with this")
