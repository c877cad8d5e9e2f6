"""The grammar of `dator`."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c
from anabranch.surfaces.cli.commands.serve.arguments import port

_FOLDER = "the folder of the node (default: $ANABRANCH_NODE or the current one)"


def add_dator(verbs: c.Verbs) -> None:
    actions = c.family(verbs, "dator", "Sell work: serve Dator and roles, or ask a node that does.")
    _action(actions, "serve", "Serve the module; its node starts this, and says where.")
    _role(actions)
    _asked(actions, "offers", "Show the offers that Dator publishes.")
    queue = _asked(actions, "queue", "Show the orders that are open.")
    queue.add_argument("--all", action="store_true", help="also the last ones that have ended")
    _asked(actions, "accept", "Take an order that waits for a decision.", "REQUEST")
    reject = _asked(actions, "reject", "Reject an order that waits for a decision.", "REQUEST")
    c.options(reject, "--reason")
    _asked(actions, "publish", "Publish an offer that is not in the configuration.", "FILE")
    _asked(actions, "withdraw", "Withdraw an offer that was published so.", "OFFER")


def _action(actions: c.Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, formatter_class=c.Formatter)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, not text"
    )
    return parser


def _asked(actions: c.Verbs, name: str, text: str, *positional: str) -> argparse.ArgumentParser:
    parser = _action(actions, name, text)
    parser.add_argument("--node", metavar="DIR", help=_FOLDER)
    for each in positional:
        parser.add_argument(each.lower(), metavar=each)
    return parser


def _role(actions: c.Verbs) -> None:
    text = "Serve a Python function as a role module, on loopback."
    parser = _action(actions, "role", text)
    parser.add_argument(
        "--function", required=True, metavar="MODULE:FUNCTION",
        help="takes the input of an order (and the whole request), returns the output",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=port, default=0, metavar="N",
        help="where it listens (default: any; where a node starts it, what the node says)",
    )  # fmt: skip
    parser.add_argument(
        "--auth-header", default="", metavar="NAME", help="answer only callers with this header …"
    )
    parser.add_argument("--token-file", metavar="F", help="… and in it the content of this file")
