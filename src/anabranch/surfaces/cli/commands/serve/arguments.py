"""What belongs to a server: `serve`, `dev`, `worker`, `workers`, `pools`, `token`, `security`."""

from __future__ import annotations

import argparse

from anabranch.operations.access.tokens import SCOPES
from anabranch.surfaces.cli.commands import common as c

_IS_ONE = "is a server of its own, on a store: name that with --store, and leave --server out"


def add_serve(verbs: c.Verbs) -> None:
    text = "Serve the engine, the HTTP API and the web pages from this process."
    _serving(c.verb(verbs, "serve", text, local=_IS_ONE))


def add_dev(verbs: c.Verbs) -> None:
    text = "Serve with an example run loaded, and open the pages in a browser."
    parser = c.verb(verbs, "dev", text, store="anabranch-dev.db", local=_IS_ONE)
    _serving(parser)
    parser.add_argument(
        "--browser",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="open the pages in a browser",
    )


def _serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", metavar="ADDRESS", help="where to listen (127.0.0.1); others need tokens"
    )
    parser.add_argument(
        "--port", type=port, metavar="N", help="the port (8629); 0 takes a free one"
    )
    parser.add_argument(
        "--advertise",
        metavar="URL",
        help="where workers reach this server (from --host and --port; with 0.0.0.0 the host name)",
    )
    parser.add_argument(
        "--tokens-required", action="store_true", help="require a token also from this machine"
    )
    parser.add_argument("--tls-cert", metavar="F", help="the certificate chain, for https")
    parser.add_argument("--tls-key", metavar="F", help="and its key")
    c.options(parser, *c.SURROUNDINGS)
    c.grace(parser, "how long a stop waits for running jobs")


def port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65_535:
        raise ValueError
    return number


def add_worker(verbs: c.Verbs) -> None:
    text = "Do the jobs of a pool for a server, from this machine."
    parser = c.bare(verbs, "worker", text)
    c.server(parser, "the server, or some of them (`URL,URL`) of those that share a store")
    parser.add_argument(
        "--discover",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="ask the server for the others of its store, and work for all of them",
    )
    parser.add_argument("--pool", required=True, metavar="NAME", help="whose jobs to do")
    parser.add_argument(
        "--concurrency", type=c.positive, default=1, metavar="N", help="jobs at once (1)"
    )
    c.options(parser, "--tools", "--no-inline", "--inline-user", "--files-allowed")
    parser.add_argument("--once", action="store_true", help="end when nothing waits any more")
    parser.add_argument("--name", metavar="NAME", help="as which it is known (host and process)")
    parser.add_argument(
        "--lease", type=float, metavar="SECONDS", help="of every job, instead of the definition's"
    )
    c.grace(parser, "how long an orderly stop waits for jobs")


def add_pools(verbs: c.Verbs) -> None:
    text = "Show the pools of a server, or whether the cluster of a pool can be used from here."
    parser = c.verb(verbs, "pools", text, store=False)
    parser.add_argument("name", nargs="?", metavar="POOL", help="only this one, with its jobs")
    c.options(parser, "--pool")


def add_workers(verbs: c.Verbs) -> None:
    text = "Show the workers of a server: where they run, what they do and when they were heard."
    parser = c.verb(verbs, "workers", text, store=False)
    parser.add_argument("name", nargs="?", metavar="WORKER", help="only this one, with its jobs")


def add_token(verbs: c.Verbs) -> None:
    text = "Create, list and revoke the tokens that a server requires."
    actions = c.family(verbs, "token", text)
    create = c.action(actions, "create", "Create a token and print it, only once.")
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        choices=SCOPES,
        help="what it allows (repeatable); operate runs code on the server: its holder starts "
        "definitions with shell and python tasks",
    )
    create.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="NAME",
        help="with --scope work: only jobs of this pool (repeatable; without it: of all)",
    )
    create.add_argument("--name", metavar="WHO", help="who uses it (you): changes bear this name")
    create.add_argument("--days", type=float, metavar="N", help="it expires after so many days")
    c.action(actions, "list", "List the tokens, without their secrets.")
    revoke = c.action(actions, "revoke", "Revoke a token: from now on it opens nothing.")
    revoke.add_argument("token_id", metavar="ID", help="its id: the part between the underscores")


def add_security(verbs: c.Verbs) -> None:
    text = "Show what of a server is open: address, tokens, kinds of work, files, keys."
    c.verb(verbs, "security", text)
