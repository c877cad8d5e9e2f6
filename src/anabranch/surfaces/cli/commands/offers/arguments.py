"""The grammar of `offers`: put offers into a catalog, look at them, and say whom to trust."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

_FOLDER = "the folder of the node (default: $ANABRANCH_NODE or the current one)"


def add_offers(verbs: c.Verbs) -> None:
    actions = c.family(verbs, "offers", "Look into the catalog of offers that a buyer keeps.")
    put = _action(actions, "put", "Admit offers, or relays of them, from files.")
    put.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="JSON or YAML: an offer, a relay, a message with `offers`, or a list of them; `-` "
        "reads standard input",
    )
    put.add_argument(
        "--source", metavar="NODE_ID", help="who sent them (default: the node where each began)"
    )
    _list(actions)
    show = _action(actions, "show", "Show one offer, with where it was seen.")
    show.add_argument("offer", metavar="OFFER")
    show.add_argument("--hidden", action="store_true", help="also one of a provider not trusted")
    text = "Let the Arca of a node that runs ask other catalogs now."
    sync = actions.add_parser("sync", help=text, description=text, formatter_class=c.Formatter)
    _common(sync)
    sync.add_argument("--node", metavar="DIR", help=_FOLDER)
    trust = _action(actions, "trust", "Trust the offers of a participant, or list who is trusted.")
    trust.add_argument("participant", nargs="?", metavar="PARTICIPANT")
    trust.add_argument("--remove", action="store_true", help="trust them no more")
    trust.add_argument("--note", default="", metavar="TEXT", help="why, for the record")


def _list(actions: c.Verbs) -> None:
    parser = _action(actions, "list", "List offers: those of the node, then those of others.")
    parser.add_argument("--service-type", metavar="TYPE", help="only offers of this type")
    parser.add_argument("--provider", metavar="PARTICIPANT", help="only offers of this participant")
    parser.add_argument("--provider-node", metavar="NODE_ID", help="only offers of this node")
    parser.add_argument("--all", action="store_true", help="also those that have ended")
    parser.add_argument(
        "--hidden", action="store_true", help="also those of providers that are not trusted"
    )
    parser.add_argument(
        "--limit", type=c.positive, default=100, metavar="N", help="how many (default: 100)"
    )


def _action(actions: c.Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, formatter_class=c.Formatter)
    _common(parser)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--catalog", dest="catalog_file", metavar="FILE", help="the file of the catalog"
    )
    place.add_argument(
        "--node",
        metavar="DIR",
        help="the catalog of Arca in this folder of a node (default: $ANABRANCH_NODE or the "
        "current folder)",
    )
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, not text"
    )
