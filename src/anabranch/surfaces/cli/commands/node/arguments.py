"""The grammar of `node`: its actions, and what can be done in each."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c
from anabranch.surfaces.cli.commands.serve.arguments import port

#: Those of `market/node/orders/machine.py`; a grammar loads no node.
STATES = (
    "opened", "dispatch_prepared", "dispatched", "awaiting_acceptance", "awaiting_manual_release",
    "disputed", "released", "failed", "rejected", "expired",
)  # fmt: skip
#: Those of `modules/kit/entries.py`.
MODULES = ("arca", "dator")
_FOLDER = "the folder of the node (default: $ANABRANCH_NODE or the current one)"


def add_node(verbs: c.Verbs) -> None:
    actions = c.family(verbs, "node", "Make a node of the marketplace, serve it, or ask one.")
    verbs.choices["node"].add_argument("--node", metavar="DIR", help=_FOLDER)
    _init(actions)
    _action(actions, "serve", "Serve a node on this machine until it is told to stop.")
    _action(actions, "check", "Replay the streams of a node that is stopped, and compare.")
    _id(actions)
    status = _action(actions, "status", "Show who a node is, how it is, and how much is open.")
    _wait(status, "wait up to so long until it answers")
    _peers(actions)
    _modules(actions)
    _offers(actions)
    _orders(actions)
    _inbox(actions)
    _deliveries(actions)
    _ledger(actions)
    _directory(actions)


def _action(actions: c.Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, formatter_class=c.Formatter)
    _places(parser)
    return parser


def _places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, not text"
    )
    parser.add_argument("--node", metavar="DIR", default=argparse.SUPPRESS, help=_FOLDER)


def _wait(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--wait", type=c.positive, metavar="SECONDS", help=text)


def _limit(parser: argparse.ArgumentParser) -> None:
    text = "how many, at most 500 (default: 50)"
    parser.add_argument("--limit", type=c.positive, metavar="N", help=text)


def _doing(parser: argparse.ArgumentParser) -> c.Verbs:
    """What can be done in an action; without any of it, a list is shown."""
    return parser.add_subparsers(dest="do", metavar="DO", title="what to do", required=False)


def _do(doing: c.Verbs, name: str, text: str, *positional: str) -> argparse.ArgumentParser:
    parser = doing.add_parser(name, help=text, description=text, formatter_class=c.Formatter)
    _places(parser)
    for each in positional:
        parser.add_argument(each.lower(), metavar=each)
    return parser


def _init(actions: c.Verbs) -> None:
    text = "Make the folder of a node: its keys and its configuration."
    parser = actions.add_parser("init", help=text, description=text, formatter_class=c.Formatter)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--name", help="what people call it (default: the name of the folder)")
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="where it listens (default: any)"
    )
    parser.add_argument(
        "--seed-url", metavar="URL", action="append", default=[],
        help="a seed directory to publish to and to learn from; may be given several times",
    )  # fmt: skip
    parser.add_argument("--org", action="store_true", help="make the keys of an organisation, too")
    parser.add_argument(
        "--with", metavar="MODULE[:PORT]", action="append", default=[], dest="modules",
        type=_with_module,
        help="host this module: arca or dator; may be given several times",
    )  # fmt: skip


def _with_module(text: str) -> tuple[str, int]:
    """`arca`, or `arca:47982` where another node of this machine has its port."""
    name, _, given = text.partition(":")
    if name not in MODULES:
        raise argparse.ArgumentTypeError(f"{name!r} is no module: {' or '.join(MODULES)}")
    return name, port(given) if given else 0


def _id(actions: c.Verbs) -> None:
    text = "Print an identity of a node, whether it runs or not."
    parser = _action(actions, "id", text)
    parser.add_argument(
        "role", metavar="ROLE", nargs="?", default="node", choices=("node", "participant", "org"),
        help="node, participant or org (default: node)",
    )  # fmt: skip


def _peers(actions: c.Verbs) -> None:
    doing = _doing(_action(actions, "peers", "Show the nodes that this one has talked to."))
    _do(doing, "ping", "Open a session with a node, and say how long it took.", "NODE_ID")


def _modules(actions: c.Verbs) -> None:
    doing = _doing(_action(actions, "modules", "Show the modules that a node hosts."))
    for name in ("start", "stop", "restart"):
        _do(doing, name, f"{name.capitalize()} a module.", "MODULE")
    _do(doing, "show", "Show a module: its state, its report, its routes.", "MODULE")
    _limit(_do(doing, "notifications", "Show what modules told the operator, newest first."))


def _offers(actions: c.Verbs) -> None:
    parser = _action(actions, "offers", "Show the offers that a node knows.")
    parser.add_argument("--observed", action="store_true", help="those of other nodes")
    parser.add_argument("--service-type", metavar="TYPE", help="only offers of this type")
    doing = _doing(parser)
    _do(doing, "publish", "Sign an offer and publish it.", "FILE")
    _do(doing, "withdraw", "Withdraw an offer of this node.", "OFFER")
    _do(doing, "show", "Show one offer.", "OFFER")
    _do(doing, "push", "Send the offers of this node to another one.", "NODE_ID")
    _do(doing, "fetch", "Ask a node for its offers, and keep what is trusted.", "NODE_ID")
    _do(doing, "drop", "Drop the offers of others that a participant or a node brought.", "ID")
    _do(doing, "trust", "Trust the offers of a participant.", "PARTICIPANT")
    _do(doing, "distrust", "Trust them no more.", "PARTICIPANT")
    _do(doing, "trusted", "Show whose offers are trusted.")


def _orders(actions: c.Verbs) -> None:
    parser = _action(actions, "orders", "Show the orders of a node and how they stand.")
    parser.add_argument("--open", action="store_true", help="only those that have not ended")
    _limit(parser)
    doing = _doing(parser)
    place = _do(doing, "place", "Order from an offer, and send the order to its provider.")
    place.add_argument("--offer", required=True, metavar="ID", help="the offer")
    place.add_argument("--input", default="{}", metavar="JSON", help="what the provider gets")
    place.add_argument("--units", type=c.positive, default=1, help="how many (default: 1)")
    place.add_argument("--max-amount", type=c.natural, metavar="N", help="the most to pay, in all")
    place.add_argument("--id", metavar="ORDER", help="order:…; the same again opens nothing new")
    place.add_argument("--no-dispatch", action="store_true", help="open it, and send nothing yet")
    _do(doing, "show", "Show an execution.", "EXECUTION")
    _do(doing, "result", "Show the result that came for an execution.", "EXECUTION")
    wait = _do(doing, "wait", "Wait until an execution is in a state.", "EXECUTION")
    wait.add_argument(
        "--state", choices=STATES, help="this one (default: any in which the provider has answered)"
    )
    wait.add_argument("--seconds", type=c.positive, default=60, help="at most (default: 60)")
    _do(doing, "dispatch", "Send the order of an execution to its provider.", "EXECUTION")
    for name, text in (
        ("release", "Release the money to the provider."),
        ("accept", "Accept the result as the payer."),
        ("dispute", "Dispute the result; the money stays on hold."),
    ):
        _do(doing, name, text, "EXECUTION").add_argument("--reason", default="", metavar="TEXT")
    resolve = _do(doing, "resolve", "End a dispute.", "EXECUTION")
    resolve.add_argument("--for", dest="party", required=True, choices=("payer", "payee"))
    resolve.add_argument("--reason", default="", metavar="TEXT")
    _do(doing, "receipt", "Show a receipt.", "RECEIPT")


def _inbox(actions: c.Verbs) -> None:
    parser = _action(actions, "inbox", "Show the orders that others have sent to a node.")
    parser.add_argument("--open", action="store_true", help="only those without an answer")
    _wait(parser, "with --open: wait up to so long for one")
    _limit(parser)
    doing = _doing(parser)
    answer = _do(doing, "answer", "Answer an order with its result.", "REQUEST")
    how = answer.add_mutually_exclusive_group(required=True)
    how.add_argument("--output", metavar="JSON", help="the result")
    how.add_argument("--failed", metavar="TEXT", help="it was tried, and failed for this reason")
    how.add_argument("--rejected", metavar="TEXT", help="it was not tried, for this reason")


def _deliveries(actions: c.Verbs) -> None:
    parser = _action(actions, "deliveries", "Show the artifacts that a node has sent.")
    parser.add_argument("--open", action="store_true", help="only those that have not ended")
    _limit(parser)
    doing = _doing(parser)
    _do(doing, "show", "Show a delivery with its stages and tries.", "DELIVERY")
    _do(doing, "recover", "Try those again that can be tried again.")
    _limit(_do(doing, "admissions", "Show the artifacts that came in, newest first."))


def _ledger(actions: c.Verbs) -> None:
    parser = _action(actions, "ledger", "Show the balance of the node's account.")
    parser.add_argument("--account", metavar="ID", help="another account")
    doing = _doing(parser)
    top_up = _do(doing, "top-up", "Put money into an account, in minor units.", "AMOUNT")
    top_up.add_argument("--to", dest="account", metavar="ID", help="another account")
    top_up.add_argument("--key", metavar="TEXT", help="the same again pays in nothing more")
    _limit(_do(doing, "movements", "Show what moved, newest first."))
    _limit(_do(doing, "accounts", "Show all accounts that ever had money."))
    _do(doing, "hold", "Show a hold.", "HOLD")


def _directory(actions: c.Verbs) -> None:
    doing = _doing(_action(actions, "directory", "Show the nodes that this one knows of."))
    passport = _do(doing, "passport", "Issue a passport, and register it.", "CAPABILITY")
    passport.add_argument("--for", dest="subject", metavar="NODE_ID", help="another node")
    passport.add_argument("--days", type=c.positive, default=30, help="how long it lasts")
    _do(doing, "passports", "Show the passports that this node holds or its participant issued.")
    _do(doing, "revoke", "Revoke a passport that this node issued or holds.", "PASSPORT")
    _do(doing, "sync", "Read the seed directories now, and publish what they do not know yet.")
    _do(doing, "query", "Show who holds a capability.", "CAPABILITY")
    nodes = _do(doing, "nodes", "Show the nodes that have published here, the newest first.")
    nodes.add_argument("--source", metavar="NETWORK", help="only those that came from there")
    _limit(nodes)
    drop = _do(doing, "drop", "Drop a node from this directory, or all strangers of a source.")
    drop.add_argument("node_id", metavar="NODE_ID", nargs="?")
    drop.add_argument("--source", metavar="NETWORK", help="the network that they came from")
    revocations = _do(doing, "drop-revocations", "Drop revocations of signers not trusted here.")
    revocations.add_argument("--signer", metavar="ID", default="", help="only those of this one")
    revocations.add_argument(
        "--registered", action="store_true", help="also those of passports once registered here"
    )
