"""The grammar of `trigger` and `alias`."""

from __future__ import annotations

import argparse
from typing import get_args

from anabranch.operations.triggers.trigger import Ending
from anabranch.surfaces.cli.commands import common as c

_PLAIN = (
    ("show", "Show a trigger, and what it did last."),
    ("pause", "Refuse calls; act on finished runs only after `resume`."),
    ("resume", "Take calls and finished runs again."),
    ("retry", "Act once more on the finished runs that were refused."),
    ("remove", "Remove a trigger; its runs stay."),
)
ENDINGS = (*get_args(Ending), "any")


def add_trigger(verbs: c.Verbs) -> None:
    text = "Start or signal runs when a hook is called, or when other runs have finished."
    actions = c.family(verbs, "trigger", text)
    _add(actions)
    c.action(actions, "list", "List the triggers.")
    for name, words in _PLAIN:
        parser = c.action(actions, name, words)
        _name(parser)
        if name != "show":
            c.options(parser, "--actor")
    _test(actions)


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TRIGGER", help="its name")


def _add(actions: c.Verbs) -> None:
    add = c.action(actions, "add", "Add a trigger: --hook or --after, and what it does.")
    add.add_argument("name", metavar="NAME", help="what it is called: letters, digits, - _ .")
    add.add_argument(
        "target", nargs="?", metavar="FILE|PATH[@N]|ALIAS",
        help="what it starts: a definition, which is stored as it is now, or a path of the "
        "catalog: its newest version each time, or version N",
    )  # fmt: skip
    _fired_by(add)
    add.add_argument("--signal", metavar="NAME", help="send this signal instead of starting a run")
    add.add_argument("--to-run", metavar="TEMPLATE", help="the run that is signalled")
    add.add_argument(
        "--to-label", action="append", default=[], metavar="K=V",
        help="or the unfinished runs with this label; V may be a template (repeatable)",
    )  # fmt: skip
    add.add_argument("--ttl", default="", metavar="DURATION", help="how long a signal is kept")
    c.pairs(add, "--input", "one value of the input; V may use {{ body.x }} or {{ run.result }}")
    add.add_argument("--input-file", metavar="F", help="the input as a JSON or YAML file")
    c.labels(add, "label its runs; V may be a template")
    add.add_argument(
        "--when", default="", metavar="TEMPLATE", help="do something only where it comes out true"
    )
    add.add_argument("--paused", action="store_true", help="do nothing before `resume`")
    add.add_argument("--replace", action="store_true", help="in the place of one of this name")
    c.options(add, "--actor", "--tools", "--catalog")


def _fired_by(add: argparse.ArgumentParser) -> None:
    kind = add.add_mutually_exclusive_group(required=True)
    kind.add_argument("--hook", action="store_true", help="fired by POST /hooks/NAME of a server")
    kind.add_argument(
        "--after", metavar="DEFINITION", help="fired by finished runs of this name; `any` for all"
    )
    add.add_argument(
        "--credential", default="", metavar="NAME[.FIELD]",
        help="of a hook: the credential with the secret that calls are signed with",
    )  # fmt: skip
    add.add_argument(
        "--token", action="store_true",
        help="of a hook: calls come with a token of the scope hook or operate instead",
    )  # fmt: skip
    add.add_argument(
        "--from", dest="senders", action="append", default=[], metavar="ACTOR",
        help="with --token: only tokens of this name (repeatable)",
    )  # fmt: skip
    add.add_argument(
        "--scheme", choices=("anabranch", "github"), help="how calls are signed (anabranch)"
    )
    add.add_argument("--header", metavar="H", help="the header with the signature")
    add.add_argument("--window", metavar="DURATION", help="how old a signed call may be (5m)")
    add.add_argument(
        "--remember", metavar="DURATION",
        help="with --scheme github: how long a call is remembered and not taken again (90d)",
    )  # fmt: skip
    add.add_argument(
        "--key", metavar="TEMPLATE",
        help="calls for which this comes out the same are one call "
        "({{ headers['idempotency-key'] }})",
    )  # fmt: skip
    add.add_argument(
        "--status", action="append", default=[], choices=ENDINGS,
        help="with --after: how the run ended (repeatable; completed)",
    )  # fmt: skip
    add.add_argument(
        "--where", action="append", default=[], metavar="K=V",
        help="with --after: a label that the run has (repeatable)",
    )  # fmt: skip


def _test(actions: c.Verbs) -> None:
    parser = c.action(actions, "test", "Show what a trigger would do; nothing is done.")
    _name(parser)
    parser.add_argument("--body", metavar="JSON|@FILE", help="of a hook: what is sent")
    parser.add_argument(
        "--header", action="append", default=[], metavar="K=V", help="of a hook (repeatable)"
    )
    parser.add_argument("--run", default="", metavar="RUN", help="of --after: a finished run")


def add_alias(verbs: c.Verbs) -> None:
    text = "Names that lead to a version of the catalog, and back to the one before."
    actions = c.family(verbs, "alias", text)
    setting = c.action(actions, "set", "Lead an alias to a definition of the catalog.")
    setting.add_argument("name", metavar="ALIAS", help="letters, digits, - _ .")
    setting.add_argument("target", metavar="PATH[@N]", help="the newest version, or version N")
    c.options(setting, "--actor", "--catalog")
    c.action(actions, "list", "List the aliases.")
    for name, words in (
        ("show", "Show what an alias leads to, and what it led to before."),
        ("rollback", "Lead it back to what it led to before it was set last."),
        ("remove", "Remove an alias; what it led to stays."),
    ):
        parser = c.action(actions, name, words)
        parser.add_argument("name", metavar="ALIAS", help="its name")
        if name != "show":
            c.options(parser, "--actor")
