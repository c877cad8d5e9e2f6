"""The grammar of `credential`."""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c
from anabranch.work.secrets.credential_fields import TYPES


def add_credential(verbs: c.Verbs) -> None:
    actions = c.family(verbs, "credential", "Store credentials that definitions look up by name.")
    add = c.action(actions, "add", "Store a credential, encrypted.")
    c.action(actions, "list", "List the credentials, without their values.")
    show = c.action(actions, "show", "Show one credential, without its values.")
    rotate = c.action(actions, "rotate", "Replace the value of a credential.")
    remove = c.action(actions, "remove", "Remove a credential.")
    rekey = c.action(actions, "rekey", "Encrypt all credentials with another key.")
    for one in (add, show, rotate, remove):
        one.add_argument("name", metavar="NAME", help="as definitions write it: auth: NAME")
    add.add_argument(
        "--type", metavar="TYPE", help=f"what it is for: {', '.join(TYPES)} (or from the file)"
    )
    add.add_argument("--description", default="", metavar="TEXT", help="for lists")
    for one in (add, rotate):
        _value(one)
    _keys(rekey)
    for one in (add, rotate, remove, rekey):
        c.options(one, "--actor")


def _keys(parser: argparse.ArgumentParser) -> None:
    """Keys never stand in a command line either."""
    new = parser.add_mutually_exclusive_group(required=True)
    new.add_argument("--new-key-file", metavar="FILE", help="the new key is in this file")
    new.add_argument("--new-key-env", metavar="VAR", help="the new key is in this variable")
    old = parser.add_mutually_exclusive_group()
    old.add_argument(
        "--old-key-file", metavar="FILE", help="the old key is in this file (default: the settings)"
    )
    old.add_argument("--old-key-env", metavar="VAR", help="the old key is in this variable")


def _value(parser: argparse.ArgumentParser) -> None:
    """A value is a JSON object of fields, or one text; it never stands in a command line."""
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--from-env", metavar="VAR", help="the value is in this variable: JSON fields, or one text"
    )
    given.add_argument("--from-file", metavar="FILE", help="the value is in this file")
    given.add_argument(
        "--value-stdin", action="store_true", help="the value comes on standard input"
    )
