"""`anabranch`: parse, call one verb, answer with its exit code."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from anabranch import settings as config
from anabranch.errors import AnabranchError, DefinitionError, InputError
from anabranch.settings import Settings
from anabranch.store.location import require_known_scheme, tells_password
from anabranch.surfaces.cli import parser, stop_signals
from anabranch.surfaces.cli.commands.node.failed import NodeFailed
from anabranch.surfaces.cli.output import logs, render
from anabranch.surfaces.cli.output.exit_codes import LEFT_WAITING
from anabranch.surfaces.cli.parser import VERBS

FAILED = 1
BAD_USAGE = 2

#: Errors that are nobody's bad usage: something was changed, or may still be.
BROKEN = (
    "engine_stopped", "defect", "damaged_run", "law", "no_answer", "server", "slow_answer",
    "internal", "copy_differs", "story_failed",
)  # fmt: skip

#: Nothing is wrong with the command or the run: the run waits for an engine that has what it needs.
LEFT = ("missing_requirements",)

Verb = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]


def main(arguments: Sequence[str] | None = None) -> None:
    render.set_up_streams()
    code = 0
    try:
        code = command(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # `anabranch events … | head`: nobody reads any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def command(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code."""
    grammar = parser.build()
    options = grammar.parse_args(arguments)
    if options.version:
        from anabranch import __version__

        print(f"anabranch {__version__}")
        return 0
    if options.verb is None:
        grammar.print_help()
        return BAD_USAGE
    logs.begin()
    try:
        settings = _settings(options)
        return asyncio.run(_verb(options.verb)(options, settings))
    except AnabranchError as error:
        return _complain(options, error)
    except KeyboardInterrupt:
        return stop_signals.INTERRUPTED
    finally:
        stop_signals.restore()


def _verb(name: str) -> Verb:
    module, _, function = VERBS[name][1].rpartition(".")
    verb: Verb = getattr(import_module(f"anabranch.surfaces.cli.{module}"), function)
    return verb


def _settings(options: argparse.Namespace) -> Settings:
    """The environment, and over it what was typed. Whoever names a store means no server."""
    settings = config.from_environment()
    store, server = getattr(options, "store", None), getattr(options, "server", None)
    local: str = getattr(options, "local", "")  # why this verb never asks a server
    if server is not None and local:
        raise InputError(f"{options.verb} {local}", code="usage")
    if store is not None and server is not None:
        raise InputError("name a --store or a --server, not both", code="usage")
    if store is not None:
        settings = replace(settings, store=store, server="")
        _warn_of_password(store)
    if server is not None:
        settings = replace(settings, server=server)
    if getattr(options, "token_file", None) is not None:
        settings = replace(settings, token="", token_file=options.token_file)
    if getattr(options, "rpc", None) is not None:
        settings = replace(settings, chain_url=options.rpc)
    for name in ("catalog", "participants", "no_inline", "inline_user"):
        if getattr(options, name, None) is not None:
            settings = replace(settings, **{name: getattr(options, name)})
    require_known_scheme(settings.store)
    return settings


def _warn_of_password(store: str) -> None:
    if tells_password(store):
        print(
            "anabranch: every user of this machine can read the password in --store (`ps`): put "
            "the address into ANABRANCH_STORE, or the password into PGPASSWORD or ~/.pgpass",
            file=sys.stderr,
        )


def _complain(options: argparse.Namespace, error: AnabranchError) -> int:
    if options.json:
        told: dict[str, Any] = {"problem": {"code": error.code, "message": error.message}}
        print(render.json_line(told))
    if isinstance(error, DefinitionError):
        for problem in error.problems:
            print(problem, file=sys.stderr)
    else:
        print(f"anabranch: {error.message}", file=sys.stderr)
    if error.code in LEFT:
        return LEFT_WAITING
    failed = error.code in BROKEN or isinstance(error, NodeFailed)
    return FAILED if failed else BAD_USAGE


if __name__ == "__main__":
    main()
