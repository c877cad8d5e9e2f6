"""The grammar of what people say to a run: `pause`, `patch`, `retry`, `decide` and others."""

from __future__ import annotations

import argparse
from typing import get_args

from anabranch.literals import Reducer
from anabranch.surfaces.cli.commands import common as c


def add_pause(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "pause", "Hold a run: what runs goes on, nothing new is started.")
    c.run(parser)
    c.options(parser, "--reason", "--actor")


def add_cancel(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "cancel", "End a run: what waits ends now, what runs is stopped.")
    c.run(parser)
    c.options(parser, "--reason", "--actor")


def add_patch(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "patch", "Write to the context of a run; held tokens look again.")
    c.run(parser)
    parser.add_argument(
        "values",
        nargs="+",
        metavar="K=V",
        help="a name and its new value; V is JSON if it can be, text otherwise",
    )
    parser.add_argument(
        "--reduce",
        choices=get_args(Reducer),
        default="set",
        help="how to combine with what is there",
    )
    c.options(parser, "--actor")


def add_loop(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "loop", "Change a running loop: its window, or stop it.")
    c.run(parser)
    parser.add_argument("step", metavar="STEP", help="the loop's step, or its id")
    change = parser.add_mutually_exclusive_group(required=True)
    change.add_argument(
        "--window", type=c.natural, metavar="N", help="shards at work at once from now on"
    )
    change.add_argument("--stop", action="store_true", help="start no more items")
    c.options(parser, "--reason", "--actor")


def add_signal(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "signal", "Send a signal: a wait takes it, or the run keeps it for one.")
    c.run(parser)
    parser.add_argument("name", metavar="NAME", help="the name that a wait of the definition has")
    parser.add_argument("payload", nargs="?", metavar="JSON", help="what the signal says")
    parser.add_argument(
        "--ttl", metavar="TIME", help="how long the run keeps it: 90s, 1h; default: until it ends"
    )
    parser.add_argument("--id", default="", metavar="ID", help="sent again, it is the same signal")
    c.options(parser, "--actor")


def add_retry(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "retry", "Try a step now that waits for its next try.")
    c.run(parser)
    _step_run(parser)
    c.options(parser, "--reason", "--actor")


def add_skip(verbs: c.Verbs) -> None:
    text = "End a run of a step without its work: as skipped, or as done with a given result."
    parser = c.verb(verbs, "skip", text)
    c.run(parser)
    _step_run(parser)
    said = "the result in the place of its own: the step counts as done (JSON, or text)"
    parser.add_argument("--result", metavar="JSON", help=said)
    c.options(parser, "--reason", "--actor")


def _step_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("step", metavar="STEP", help="the name of the step")
    said = "only this run of the step, where several are unfinished"
    parser.add_argument("--token", type=c.natural, metavar="N", help=said)


def add_decide(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "decide", "Answer an open gate.")
    c.run(parser)
    parser.add_argument("gate", metavar="GATE", help="the gate's id, or its step")
    verdict = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("fulfil", "yes: the step is done, or the held token is admitted"),
        ("reject", "no: the step fails, or the held token is turned away"),
        ("ask-again", "ask the declared decision source again"),
    ):
        word = name.replace("-", "_")
        verdict.add_argument(
            f"--{name}", action="store_const", const=word, dest="verdict", help=text
        )
    parser.add_argument(
        "--override",
        action="store_true",
        help="answer in the place of the declared decision source; recorded as an override",
    )
    parser.add_argument("--evidence", metavar="JSON", help="stored with the decision")
    c.options(parser, "--reason", "--actor")
