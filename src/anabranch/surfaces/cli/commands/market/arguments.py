"""The grammar of `market`: check documents, and list the kinds there are."""

from __future__ import annotations

from anabranch.surfaces.cli.commands import common as c


def add_market(verbs: c.Verbs) -> None:
    text = "Check documents of the market: offers, orders, contracts, deliveries, passports …"
    why = "looks at files of this machine: leave --server out"
    actions = c.family(verbs, "market", text)
    words = "Say what is wrong with each document: its form, its meaning, its signature."
    check = c.action(actions, "check", words, store=False, local=why)
    check.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="JSON or YAML, one document or a list of them; `-` reads standard input",
    )
    check.add_argument(
        "--at",
        metavar="TIME",
        help="also what is expired or not valid yet then: an RFC 3339 time, or `now`",
    )
    check.add_argument("--kind", metavar="KIND", help="which kind each document must be")
    check.add_argument(
        "--draft",
        action="store_true",
        help="take documents without what a node fills in: the signature, the buyer of an order",
    )
    words = "List the kinds that can be checked, or the fields of one."
    kinds = c.action(actions, "kinds", words, store=False, local=why)
    kinds.add_argument("kind", nargs="?", metavar="KIND", help="show the fields of this kind")
