"""The grammar of `anabranch session`: one verb with actions of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

RUN_HELP = "a session (run id, its first letters, or `last`)"


def add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for add in (_list, _show, _receipts, _wake, _kill, _alive, _executed, _gas):
        add(lambda name, words: _action(actions, name, words))


_Make = Callable[[str, str], argparse.ArgumentParser]


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,  # it may stand before the action, too
        help="print JSON instead of text",
    )
    parser.add_argument("--store", metavar="PATH", help="the SQLite file (or $ANABRANCH_STORE)")
    if name != "gas":
        parser.add_argument("--server", metavar="URL", help="ask this server instead")
        parser.add_argument("--token-file", metavar="F", help="the file with the token for it")
    return parser


def _session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="SESSION", help=RUN_HELP)


def _list(make: _Make) -> None:
    parser = make("list", "Every process of the newest sessions.")
    parser.add_argument("--owner", metavar="0x…", help="only sessions of this owner")
    parser.add_argument("--last", type=int, default=100, metavar="N", help="so many sessions (100)")


def _show(make: _Make) -> None:
    _session(make("show", "The processes of one session."))


def _receipts(make: _Make) -> None:
    parser = make("receipts", "What each executed step left behind.")
    _session(parser)
    parser.add_argument("--step", metavar="STEP", help="only of this step")
    parser.add_argument("--iteration", type=int, metavar="N", help="only of this process")


def _wake(make: _Make) -> None:
    parser = make("wake", "Let a waiting process go on now.")
    parser.add_argument("run", metavar="PID|SESSION", help="RUN:NUMBER, or a session with --step")
    parser.add_argument("--step", default="", metavar="STEP", help="all that wait at this step")
    parser.add_argument(
        "--payload", action="append", default=[], metavar="K=V", help="merged over its payload"
    )
    parser.add_argument(
        "--as", dest="runner", default="", metavar="0x…", help="who asks, if not the owner"
    )


def _kill(make: _Make) -> None:
    parser = make("kill", "End a session: what waits now, what runs when it is done.")
    _session(parser)
    parser.add_argument("--reason", default="", metavar="TEXT")


def _alive(make: _Make) -> None:
    _session(make("alive", "Is any process of the session waiting or running?"))


def _executed(make: _Make) -> None:
    parser = make("executed", "Has this process ended?")
    parser.add_argument("run", metavar="PID", help="RUN:NUMBER")


def _gas(make: _Make) -> None:
    parser = make("gas", "What a rule costs at most, by outcome.")
    parser.add_argument("file", metavar="RULE", help="a rule document")
    parser.add_argument("--valid-spawns", type=int, default=1, metavar="N")
    parser.add_argument("--invalid-spawns", type=int, default=1, metavar="N")
    parser.add_argument("--encrypted", action="store_true", help="its logs are encrypted")
