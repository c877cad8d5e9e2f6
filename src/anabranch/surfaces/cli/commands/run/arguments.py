"""The grammar of the verbs that make runs move: `run`, `resume`, `redrive`, `simulate`, `demo`."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c


def add_run(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "run", "Run a definition to its end.")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE|PATH[@N]",
        help="a definition; `-` reads standard input; a path of the catalog, @N for a version",
    )
    c.starting(parser)
    _from_chain(parser)


def _from_chain(parser: argparse.ArgumentParser) -> None:
    chain = parser.add_argument_group("orchestrations")
    c.options(chain, "--rules")
    chain.add_argument("--registry", metavar="0x…", help="load it from this contract")
    chain.add_argument("--ostc", metavar="ID", help="under this id; also of a file with several")
    c.options(chain, "--rpc")
    chain.add_argument("--hash", metavar="0x…", help="refuse any other text than this one")
    chain.add_argument(
        "--pin-rules", action="store_true", help="keep the rules as they are now for this session"
    )
    chain.add_argument("--owner", metavar="0x…", default="", help="whose session it is")
    chain.add_argument(
        "--session", type=c.positive, metavar="N", help="only as this number of the owner"
    )
    chain.add_argument(
        "--max-gas", type=c.natural, default=0, metavar="N", help="the gas of the whole session"
    )


def add_resume(verbs: c.Verbs) -> None:
    parser = c.verb(verbs, "resume", "Go on with a run (or all) after a stop, a crash or a pause.")
    c.run(parser, nargs="?")
    c.options(parser, "--rpc", "--actor", *c.SURROUNDINGS)
    c.watching(parser)


def add_redrive(verbs: c.Verbs) -> None:
    text = "Start a linked run that repeats what failed and what depends on it, and keeps the rest."
    parser = c.verb(verbs, "redrive", text)
    c.run(parser)
    said = "show what would run again, why, and what would be reused; start nothing"
    parser.add_argument("--dry-run", action="store_true", help=said)
    said = "run this step and what depends on it again as well, however they ended"
    parser.add_argument("--from", dest="from_step", default="", metavar="STEP", help=said)
    said = "also where another run redrives it already"
    parser.add_argument("--again", action="store_true", help=said)
    c.pairs(parser, "--input", "a secret input of the run once more: no store keeps them")
    said = "secret inputs of the run once more, as a JSON or YAML file"
    parser.add_argument("--input-file", metavar="F", help=said)
    c.options(parser, *c.SURROUNDINGS)
    c.watching(parser)


def add_simulate(verbs: c.Verbs) -> None:
    text = "Run a definition in virtual time under random schedules and faults."
    why = "runs in virtual time, in this process alone: leave --server out"
    parser = c.verb(verbs, "simulate", text, store=False, local=why)
    parser.add_argument("file", metavar="FILE", help="a definition")
    c.count(parser, "--seeds", 100, "how many")
    parser.add_argument("--seed", type=int, metavar="S", help="only this one, to repeat a failure")
    c.options(parser, "--rules")
    c.pairs(parser, "--input", "one value of the input")
    c.options(parser, "--allow-extra-input", "--tools")


def add_test(verbs: c.Verbs) -> None:
    text = "Play the test plans and scenarios of a bundle in virtual time, and report."
    why = "plays in virtual time, in this process alone: leave --server out"
    parser = c.verb(verbs, "test", text, store=False, local=why)
    parser.add_argument(
        "files", nargs="+", metavar="BUNDLE|PLAN", help="bundles, plans and scenarios"
    )
    parser.add_argument(
        "--mocks", metavar="F", help="what calls and reads answer: `api` and `reads`, by name"
    )


def add_demo(verbs: c.Verbs) -> None:
    text = "A showcase: fan-out, join, timeout, retry, kill and resume."
    why = "brings everything it shows along: leave --server out (`anabranch dev` shows a server)"
    parser = c.verb(verbs, "demo", text, store=False, local=why)
    parser.add_argument("--fast", action="store_true", help="do not pause for reading")
