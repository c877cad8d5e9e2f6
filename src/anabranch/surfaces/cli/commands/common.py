"""What the verbs of the command line share: how one is made, and arguments that several take."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch import settings as config
from anabranch.literals import PRIORITY_MAX
from anabranch.surfaces.cli.commands import epilogs

if TYPE_CHECKING:
    Verbs: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


class Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=96)


class Parser(argparse.ArgumentParser):
    """Says what was probably meant, and complains with the usage of the verb that was asked."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, left = super().parse_known_args(args, namespace)
        if left:  # the parser of the whole command line would show the usage of nothing else
            options = [word.partition("=")[0] for word in left if word.startswith("-")]
            guesses = {_meant(word, self._option_string_actions) for word in options}
            self.error(" ".join(["unrecognized arguments:", *left]) + "".join(sorted(guesses)))
        return found, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            known = [str(choice) for choice in action.choices or ()]
            said = error.message + _meant(str(value), known)
            raise argparse.ArgumentError(action, said) from None


def _meant(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


# -- verbs ---------------------------------------------------------------------------------------


def verb(
    verbs: Verbs, name: str, text: str, *, store: bool | str = True, local: str = ""
) -> argparse.ArgumentParser:
    """A verb. `store` may say which one it takes by itself. `local` says why it never asks a
    server; the others take `--server`."""
    parser = bare(verbs, name, text)
    places(parser, store=store, local=local)
    return parser


def bare(verbs: Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(
        name,
        help=text,
        description=text,
        epilog=epilogs.of_verb(name),
        formatter_class=Formatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


def family(verbs: Verbs, name: str, text: str) -> Verbs:
    """A verb that has actions of its own."""
    parser = bare(verbs, name, text)
    return parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)


def action(
    actions: Verbs,
    name: str,
    text: str,
    *,
    store: bool = True,
    local: str = "",
    default: str | None = None,
) -> argparse.ArgumentParser:
    """`default` is `argparse.SUPPRESS` where the verb takes the places itself, too."""
    parser = actions.add_parser(name, help=text, description=text, formatter_class=Formatter)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,  # it may stand before the action, too
        help="print JSON instead of text",
    )
    places(parser, store=store, local=local, default=default)
    return parser


def places(
    parser: argparse.ArgumentParser, *, store: bool | str, local: str, default: str | None = None
) -> None:
    """Where the verb is asked: at a store, at a server, or only here."""
    if store:
        usual = f"setting store, or {config.Settings().store}" if store is True else store
        parser.add_argument(
            "--store",
            metavar="PLACE",
            default=default,
            help=f"the SQLite file, or postgresql://… (default: {usual})",
        )
    if local:
        parser.set_defaults(local=local)
        parser.add_argument("--server", help=argparse.SUPPRESS)
    else:
        server(parser, default=default)


def server(
    parser: argparse.ArgumentParser,
    what: str = "ask this server instead",
    default: str | None = None,
) -> None:
    said = f"{what} (setting server, or $ANABRANCH_SERVER)"
    parser.add_argument("--server", metavar="URL", default=default, help=said)
    parser.add_argument(
        "--token-file",
        metavar="F",
        default=default,
        help="the file that holds the token for it (default: the token in $ANABRANCH_TOKEN)",
    )


# -- kinds of values -----------------------------------------------------------------------------


def natural(text: str) -> int:
    return _at_least(0, text)


def positive(text: str) -> int:
    return _at_least(1, text)


def priority(text: str) -> int:
    number = int(text)
    if abs(number) > PRIORITY_MAX or not text.isascii():
        raise ValueError
    return number


natural.__name__ = positive.__name__ = "number"  # as argparse calls it when it complains


def _at_least(least: int, text: str) -> int:
    number = int(text)
    if number < least or not text.isascii():
        raise ValueError
    return number


# -- arguments -----------------------------------------------------------------------------------

#: Options that several verbs take, all with the same meaning.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--rpc": {"metavar": "URL", "help": "a JSON-RPC node (setting chain_url)"},
    "--actor": {"default": "", "metavar": "NAME", "help": "who does this, for the record"},
    "--reason": {"default": "", "metavar": "TEXT", "help": "why, for the record"},
    "--tools": {
        "action": "append",
        "default": [],
        "metavar": "MODULE",
        "help": "import tools from a module",
    },
    "--pool": {
        "action": "append",
        "default": [],
        "dest": "cluster_pools",
        "metavar": "NAME=URL",
        "help": "let a compute cluster do the jobs of this pool: dask://HOST:8786, "
        "ray://HOST:10001 or ray:auto, with options (repeatable; setting pools)",
    },
    "--participants": {
        "metavar": "FILE",
        "help": "the book of participants (YAML or JSON)",
    },
    "--catalog": {
        "metavar": "DIR",
        "help": "a folder of definitions that are found by their path (setting catalog)",
    },
    "--no-inline": {
        "metavar": "KINDS",
        "help": "do no work of these kinds, such as shell,python (setting no_inline)",
    },
    "--files-allowed": {
        "metavar": "DIRS",
        "help": "the folders whose files definitions may name: DIR:DIR, any, or none (setting "
        "files_allowed; of a server the folders of its store and its catalog)",
    },
    "--inline-user": {
        "metavar": "NAME",
        "help": "the user of this machine that shell and Python work runs as (setting inline_user)",
    },
    "--rules": {
        "metavar": "DIR|BUNDLE",
        "help": "the rules of an orchestration: a folder of <alias or address>.json, or a bundle",
    },
    "--allow-extra-input": {
        "action": "store_true",
        "help": "take input that the definition has no use for",
    },
    "--watch": {
        "action": argparse.BooleanOptionalAction,
        "default": None,
        "help": "show a live view (default: when standard error is a terminal)",
    },
    "--no-children": {
        "action": "store_true",
        "help": "do not wait for runs that its tasks begin without waiting for them",
    },
    "--lenient": {
        "action": "store_true",
        "help": "end with 0, not 3, when the run is completed with problems that nothing handled",
    },
}
#: Where work finds what it needs, and how shell and Python work is kept apart.
SURROUNDINGS = (
    *("--tools", "--pool", "--catalog", "--participants"),
    *("--no-inline", "--inline-user", "--files-allowed"),
)


def options(parser: argparse._ActionsContainer, *names: str) -> None:
    for name in names:
        parser.add_argument(name, **_OPTIONS[name])


def run(parser: argparse.ArgumentParser, **more: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="a run id, its first letters, or `last`", **more)


def registry(parser: argparse.ArgumentParser, one: str) -> None:
    parser.add_argument("--registry", metavar="0x…", help="of this contract, asked with --rpc")
    parser.add_argument("--ostc", metavar="ID", help=one)
    options(parser, "--rpc")


def pairs(parser: argparse._ActionsContainer, name: str, text: str) -> None:
    parser.add_argument(name, action="append", default=[], metavar="K=V", help=text)


def labels(parser: argparse._ActionsContainer, text: str) -> None:
    pairs(parser, "--label", text)


def count(parser: argparse._ActionsContainer, name: str, usual: int, text: str) -> None:
    """A number from 0 on, and what it is where none is given."""
    said = f"{text} ({usual})"
    parser.add_argument(name, type=natural, default=usual, metavar="N", help=said)


def search(parser: argparse._ActionsContainer) -> None:
    said = "only runs with these words in id, name, labels or reason"
    parser.add_argument("--search", default="", metavar="TEXT", help=said)


def grace(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--grace", type=float, metavar="SECONDS", help=text)


def watching(parser: argparse.ArgumentParser) -> None:
    options(parser, "--watch", "--no-children", "--lenient")
    grace(parser, "how long an interrupted engine waits for running jobs")


def starting(parser: argparse.ArgumentParser) -> None:
    """What a run begins with."""
    said = "one value of the input; V is JSON if it can be, otherwise (and where the definition "
    said += "says so) text; K may be dotted"
    pairs(parser, "--input", said)
    parser.add_argument("--input-file", metavar="F", help="the input as a JSON or YAML file")
    options(parser, "--allow-extra-input")
    parser.add_argument("--start", metavar="STEP", help="start at this step instead of the entry")
    labels(parser, "label the run, for lists")
    parser.add_argument("--run-id", metavar="ID", help="use this id; refused if it exists")
    said = "where it waits with others the highest goes first (that of the definition, or 0)"
    parser.add_argument("--priority", type=priority, default=None, metavar="N", help=said)
    options(parser, *SURROUNDINGS)
    watching(parser)
