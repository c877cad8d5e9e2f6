"""The grammar of `serve`, `dev` and `token`."""

from __future__ import annotations

import argparse

from anabranch.operations.access import SCOPES


def add_serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", metavar="ADDRESS", help="where to listen (127.0.0.1); others need tokens"
    )
    parser.add_argument(
        "--port", type=port, metavar="N", help="the port (8629); 0 takes a free one"
    )
    parser.add_argument(
        "--tokens-required", action="store_true", help="ask for a token also on this machine"
    )
    parser.add_argument("--tls-cert", metavar="F", help="the certificate chain, for https")
    parser.add_argument("--tls-key", metavar="F", help="and its key")
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="import tools from a module"
    )
    parser.add_argument(
        "--grace",
        type=float,
        metavar="SECONDS",
        help="how long a stop waits for running jobs",
    )


def add_browser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--browser",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="open the pages in a browser",
    )


def port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65_535:
        raise ValueError
    return number


def add_token_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text)
        made.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print JSON"
        )
        for flag, metavar, words in (
            ("--store", "PATH", "the SQLite file (or $ANABRANCH_STORE)"),
            ("--server", "URL", "ask this server instead"),
            ("--token-file", "F", "the file with the token for the server"),
        ):
            made.add_argument(flag, metavar=metavar, help=words)
        return made

    create = action("create", "Make a token and print it, this once.")
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=SCOPES,
        help="what it allows (repeatable)",
    )
    create.add_argument("--name", metavar="WHO", help="who uses it (you): changes bear this name")
    create.add_argument("--days", type=float, metavar="N", help="it expires after so many days")
    action("list", "List the tokens, without their secrets.")
    revoke = action("revoke", "Revoke a token: from now on it opens nothing.")
    revoke.add_argument("token_id", metavar="ID", help="its id: the part between the underscores")
