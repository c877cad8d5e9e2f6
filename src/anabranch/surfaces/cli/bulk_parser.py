"""The grammar of `anabranch bulk`: which runs, and what to do with them."""

from __future__ import annotations

import argparse
from typing import get_args

from anabranch.kernel.values import RunStatus
from anabranch.net.net import Reducer
from anabranch.operations.bulk import VERBS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="VERB", choices=VERBS, help=", ".join(VERBS))
    which = parser.add_argument_group("which runs (all conditions hold)")
    which.add_argument(
        "--status", action="append", default=[], choices=get_args(RunStatus), metavar="STATUS",
        help="with this status; may be repeated",
    )  # fmt: skip
    which.add_argument("--label", action="append", default=[], metavar="K=V", help="with a label")
    which.add_argument("--name", metavar="NAME", help="of this definition")
    which.add_argument("--dialect", metavar="DIALECT", help="such as noetl")
    which.add_argument("--prefix", default="", metavar="ID", help="whose id begins so")
    which.add_argument("--parent", metavar="JOB", help="children of this job")
    which.add_argument("--created-before", metavar="AGE", help="begun longer ago, such as 12h")
    which.add_argument("--ended-before", metavar="AGE", help="ended longer ago, such as 30d")
    which.add_argument("--all", action="store_true", help="needed where nothing else is said")
    which.add_argument(
        "--limit", type=_positive, metavar="N", help="look at no more than so many, newest first"
    )
    parser.add_argument("--dry-run", action="store_true", help="list them, and change nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="of patch: write this value"
    )
    parser.add_argument(
        "--reduce", default="set", choices=get_args(Reducer), metavar="REDUCER",
        help="of patch: how to write it (set)",
    )  # fmt: skip
    parser.add_argument("--reason", default="", metavar="TEXT", help="for the record")
    parser.add_argument("--actor", default="", metavar="NAME", help="who does this, for the record")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


_positive.__name__ = "number"
