"""The grammar of `webhook`: who is told of which events, and how that went."""

from __future__ import annotations

import argparse
from typing import get_args

from anabranch.literals import DeliveryState
from anabranch.surfaces.cli.commands import common as c

_PLAIN = (
    ("show", "Show a webhook and how its deliveries stand."),
    ("pause", "Pause deliveries; events of the meantime are sent after `resume`."),
    ("resume", "Go on from where it was paused."),
    ("rotate", "Create a new secret and print it, only once."),
    ("delete", "Remove a webhook, with everything that was still to be sent."),
)


def add_webhook(verbs: c.Verbs) -> None:
    text = "Have a server send events to an address, and list the deliveries."
    actions = c.family(verbs, "webhook", text)
    _create(actions)
    c.action(actions, "list", "List the webhooks and their state.")
    for name, words in _PLAIN:
        parser = c.action(actions, name, words)
        _hook(parser)
        if name != "show":
            c.options(parser, "--actor")
    _change(actions)
    _deliveries(actions)


def _hook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hook", metavar="WEBHOOK", help="its id")


def _create(actions: c.Verbs) -> None:
    create = c.action(actions, "create", "Create a webhook and print its secret, only once.")
    create.add_argument("url", metavar="URL", help="where to: https://host/path")
    _kinds(create, required=True)
    c.labels(create, "only of runs with this label (repeatable)")
    create.add_argument("--name", metavar="NAME", help="only of runs of this definition")
    create.add_argument("--dialect", metavar="DIALECT", help="only of runs of this language")
    create.add_argument(
        "--secret-env", default="", metavar="VARIABLE",
        help="the variable of the server that holds the secret, instead of a new one",
    )  # fmt: skip
    create.add_argument(
        "--from-beginning", action="store_true", help="also what the store has already"
    )
    create.add_argument("--paused", action="store_true", help="send nothing before `resume`")
    c.options(create, "--actor")


def _kinds(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--kind", action="append", required=required, default=None, metavar="EVENT",
        help="which events (repeatable): run.finished, run.*, or * for all",
    )  # fmt: skip


def _change(actions: c.Verbs) -> None:
    change = c.action(actions, "change", "Change its address or its events; the rest stays.")
    _hook(change)
    change.add_argument("--url", metavar="URL", help="where to from now on")
    _kinds(change, required=False)
    change.add_argument(
        "--label", action="append", default=None, metavar="K=V",
        help="these labels instead of those it had; an empty one for none",
    )  # fmt: skip
    change.add_argument("--name", metavar="NAME", help="of this definition; '' for any")
    change.add_argument("--dialect", metavar="DIALECT", help="of this language; '' for any")
    c.options(change, "--actor")


def _deliveries(actions: c.Verbs) -> None:
    listed = c.action(actions, "deliveries", "List the deliveries: sent, waiting or dead.")
    _hook(listed)
    listed.add_argument("--state", choices=get_args(DeliveryState), help="only these")
    listed.add_argument("--run", metavar="RUN", help="only those of this run (its whole id)")
    c.count(listed, "--limit", 20, "at most so many")
    one = c.action(actions, "delivery", "Show one delivery with its body.")
    _hook(one)
    one.add_argument("delivery", metavar="DELIVERY", help="its id")
    again = c.action(actions, "redeliver", "Send one again, or all dead ones.")
    _hook(again)
    again.add_argument("delivery", nargs="?", metavar="DELIVERY", help="its id; else all dead ones")
    c.options(again, "--actor")
