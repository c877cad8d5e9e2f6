"""`anabranch`: parse, call one verb, answer with its exit code."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any

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

#: Options that are settings, by the name of the setting.
OPTIONS = {
    "token_file": "--token-file",
    "chain_url": "--rpc",
    "catalog": "--catalog",
    "participants": "--participants",
    "no_inline": "--no-inline",
    "inline_user": "--inline-user",
    "files_allowed": "--files-allowed",
}

Verb = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]


def main(arguments: Sequence[str] | None = None) -> None:
    stop_signals.hear()
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
    grammar = parser.build(arguments[0] if arguments else "")
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
        verb = _verb(options.verb)
        _collect_garbage()
        return asyncio.run(verb(options, settings))
    except AnabranchError as error:
        return _complain(options, error)
    except KeyboardInterrupt:
        return stop_signals.INTERRUPTED
    finally:
        stop_signals.restore()


def _collect_garbage() -> None:
    """Again, where the process began without: among what the verb makes, not what is loaded."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _verb(name: str) -> Verb:
    module, _, function = VERBS[name][1].rpartition(".")
    verb: Verb = getattr(import_module(f"anabranch.surfaces.cli.{module}"), function)
    return verb


def _settings(options: argparse.Namespace) -> Settings:
    """The file, over it the environment, and over both what was typed."""
    if not getattr(options, "needs_settings", True):
        return Settings()
    from anabranch import settings_file

    loaded = settings_file.load()
    typed = _typed(options, loaded.settings)
    origins = {name: settings_file.Origin("option", option) for name, (_, option) in typed.items()}
    options.loaded = loaded.over({name: value for name, (value, _) in typed.items()}, origins)
    settings: Settings = options.loaded.settings
    require_known_scheme(settings.store)
    if "store" not in options.loaded.origins and not settings.server:
        _refuse_foreign_store(settings.store)
    return settings


def _refuse_foreign_store(path: str) -> None:
    """The runs of a store go on where it is opened. One that nobody named is there by chance."""
    from anabranch.files import has_other_owner

    try:
        foreign = has_other_owner(os.stat(path), os.lstat(path))
    except OSError:
        return
    if foreign:
        raise InputError(
            f"{path} in this folder belongs to another user, and its runs would go on as yours: "
            f"say `--store {path}` if you trust it",
            code="store_owner",
        )


def _typed(options: argparse.Namespace, settings: Settings) -> dict[str, tuple[str, str]]:
    """What was typed, by setting, with its option. Whoever names a store means no server."""
    store, server = getattr(options, "store", None), getattr(options, "server", None)
    local: str = getattr(options, "local", "")  # why this verb never asks a server
    if server is not None and local:
        raise InputError(f"{options.verb} {local}", code="usage")
    if store is not None and server is not None:
        raise InputError("name a --store or a --server, not both", code="usage")
    typed: dict[str, tuple[str, str]] = {}
    if store is not None:
        typed |= {"store": (store, "--store"), "server": ("", "--store")}
        _warn_of_password(store)
    if server is not None:
        typed["server"] = (server, "--server")
    if getattr(options, "token_file", None) is not None:
        typed["token"] = ("", "--token-file")
    for name, option in OPTIONS.items():
        value = getattr(options, option.lstrip("-").replace("-", "_"), None)
        if value is not None:
            typed[name] = (value, option)
    if pools := getattr(options, "cluster_pools", None):
        from anabranch.pools.address import typed_over  # few have a cluster

        typed["pools"] = (typed_over(settings.pools, pools), "--pool")
    return typed


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
            print(render.clean(str(problem)), file=sys.stderr)
    else:
        print(render.clean(f"anabranch: {error.message}"), file=sys.stderr)
    if error.code in LEFT:
        return LEFT_WAITING
    failed = error.code in BROKEN or isinstance(error, NodeFailed)
    return FAILED if failed else BAD_USAGE


if __name__ == "__main__":
    main()
