"""The grammar of `session`: the runs of orchestrations as sessions of processes."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

SESSION = "a session: its number, or the id of the run, its first letters, or `last`"


def add_session(verbs: c.Verbs) -> None:
    text = "Look at the sessions of orchestrations, wake or kill them."
    actions = c.family(verbs, "session", text)
    _looking(actions)
    _doing(actions)
    _gas(actions)


def _session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="SESSION", help=SESSION)
    _owner(parser)


def _owner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="0x…", help="whose session is meant by a number")


def _looking(actions: c.Verbs) -> None:
    listed = c.action(actions, "list", "Every process of the newest sessions.")
    listed.add_argument("--owner", metavar="0x…", help="only sessions of this owner")
    c.count(listed, "--last", 100, "so many sessions")
    _session(c.action(actions, "show", "The processes of one session."))
    receipts = c.action(actions, "receipts", "What each executed step left behind.")
    _session(receipts)
    receipts.add_argument("--step", metavar="STEP", help="only of this step")
    receipts.add_argument("--iteration", type=c.positive, metavar="N", help="only of this process")
    _session(c.action(actions, "alive", "Is any process of the session waiting or running?"))
    executed = c.action(actions, "executed", "Has this process ended?")
    executed.add_argument("run", metavar="PID", help="SESSION:NUMBER")
    _owner(executed)
    following = c.action(actions, "next", "The number that the next session of an owner gets.")
    following.add_argument("owner", metavar="0x…", help="the owner")
    _wakeable(actions)


def _wakeable(actions: c.Verbs) -> None:
    text = "List the sleeping processes that an address may wake: its own, and what others allow."
    parser = c.action(actions, "wakeable", text)
    parser.add_argument("--as", dest="runner", required=True, metavar="0x…", help="who would wake")
    parser.add_argument("--owner", metavar="0x…", help="only sessions of this owner")
    parser.add_argument("--session", metavar="SESSION", help="only this session")
    parser.add_argument("--step", metavar="STEP", help="only at this step")
    c.count(parser, "--last", 100, "at most so many")


def _doing(actions: c.Verbs) -> None:
    wake = c.action(actions, "wake", "Wake a waiting process now.")
    wake.add_argument("run", metavar="PID|SESSION", help="SESSION:NUMBER, or a session with --step")
    _owner(wake)
    wake.add_argument("--step", default="", metavar="STEP", help="all that wait at this step")
    c.pairs(wake, "--payload", "merged over its payload")
    wake.add_argument(
        "--as",
        dest="runner",
        default="",
        metavar="0x…",
        help="who asks, if not the owner",
    )
    kill = c.action(actions, "kill", "End a session: what waits now, what runs when it is done.")
    _session(kill)
    kill.add_argument(
        "--as", dest="runner", default="", metavar="0x…", help="who asks; only the owner may"
    )
    c.options(kill, "--reason")


def _gas(actions: c.Verbs) -> None:
    gas = c.action(actions, "gas", "What a rule costs at most, by outcome.")
    gas.add_argument("file", metavar="RULE", help="a rule document")
    for outcome in ("valid", "invalid"):
        said = f"how many processes follow when it is {outcome}"
        c.count(gas, f"--{outcome}-spawns", 1, said)
    gas.add_argument("--encrypted", action="store_true", help="its logs are encrypted")
