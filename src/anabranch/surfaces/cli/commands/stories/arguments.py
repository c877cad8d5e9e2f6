"""The grammar of `story`."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

#: Those of `surfaces/stories`; a grammar loads no node.
VARIANTS = {
    "006": ("silent", "budget", "conflict", "stalled"),
    "009": ("rejects", "stalled"),
}
PROVIDERS_MAX = 50
_TEXTS = {
    "006": "Ask providers for offers, order the cheapest, pay for the result.",
    "009": "Run a template of five orders over three nodes, two of them in parallel.",
}


def add_story(verbs: c.Verbs) -> None:
    text = "Play a story of the marketplace with real nodes on this machine."
    actions = c.family(verbs, "story", text)
    for number, said in _TEXTS.items():
        _story(actions, number, said)
    text = "Stop the nodes that a story has left running."
    stop = actions.add_parser("stop", help=text, description=text, formatter_class=c.Formatter)
    stop.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    stop.add_argument("folder", metavar="DIR", help="the folder of the story")


def _story(actions: c.Verbs, number: str, text: str) -> None:
    parser = actions.add_parser(number, help=text, description=text, formatter_class=c.Formatter)
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, not text"
    )
    if number == "006":
        parser.add_argument(
            "--providers", type=_providers, default=3, metavar="N", help="how many (default: 3)"
        )
    parser.add_argument("--variant", choices=VARIANTS[number], help="how it goes wrong")
    parser.add_argument(
        "--kill", default="", metavar="ARROW",
        help="kill -9 at this arrow: ARROW, before:ARROW, ARROW@NODE, ARROW@NODE/MODULE; several "
        "with commas, in a run for each; `all` of them, or a `random` one",
    )  # fmt: skip
    parser.add_argument("--seed", type=c.natural, default=0, metavar="N", help="of --kill random")
    parser.add_argument("--dir", metavar="DIR", help="play it in this folder, and keep it")
    parser.add_argument(
        "--keep", action="store_true", help="leave the nodes running, to be looked at"
    )


def _providers(text: str) -> int:
    number = c.positive(text)
    if number > PROVIDERS_MAX:
        raise ValueError
    return number


_providers.__name__ = "number"  # as argparse calls it when it complains
