"""`serve` and `dev`: the engine, the HTTP API and the pages in one process, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import shlex
import signal
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cancel import cancel_and_wait
from anabranch.dialects.registry import load_languages
from anabranch.errors import AnabranchError, InputError
from anabranch.operations.read.on_clusters import named
from anabranch.settings import Settings
from anabranch.store.location import shown
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.cli import stop_signals, values
from anabranch.surfaces.cli.output import logs, render
from anabranch.work.registry import make_all

if TYPE_CHECKING:
    from anabranch.surfaces.http.serve import Server

EXAMPLE = Path(__file__).parents[2] / "demo" / "scenes" / "harbour.yaml"
EXAMPLE_NAME = "harbour"
FILES_WANTED = 65_536
#: Threads take turns at the interpreter. The event loop lets go of it with each row that it reads,
#: and beside a thread that computes it would wait for the usual 5 ms each time.
SWITCH_SECONDS = 0.0005
DEV_STORE = "anabranch-dev.db"  # an example does not belong among the runs of everybody


async def serve(options: argparse.Namespace, settings: Settings) -> int:
    return await _serve(options, settings, example=False)


async def dev(options: argparse.Namespace, settings: Settings) -> int:
    if options.store is None:
        settings = replace(settings, store=DEV_STORE)
    return await _serve(options, settings, example=True)


async def _serve(options: argparse.Namespace, settings: Settings, *, example: bool) -> int:
    from anabranch.surfaces.http.serve import Server  # only these verbs need a web server

    _require_no_server(options, settings)
    values.import_tools(options.tools)
    if settings.participants:
        values.look_here()  # for the functions that it names
    _allow_many_files()
    stopping = asyncio.Event()
    chosen = _settings(options, settings)
    if chosen.pools:
        logs.tell_of_clusters()
    server = Server(chosen, grace_seconds=options.grace)
    reloading = _Reloading(server, stopping)
    also = {signal.SIGHUP: reloading.heard} if settings.participants else {}
    stop_signals.on_stop(stopping.set, also=also)
    async with server:
        began = await _load_example(server) if example else ""
        await asyncio.to_thread(_load_now, server)
        spare_the_collector()
        sys.setswitchinterval(SWITCH_SECONDS)
        _announce(options, chosen, server, began)
        if example and options.browser:
            await asyncio.to_thread(webbrowser.open, server.url)
        failed = await _until_told(server, stopping)
        _say("stopping: running jobs finish or are released (again to stop at once)")
    if failed:
        _say(f"anabranch: {failed}")
        return 1
    return 0


def _load_now(server: Server) -> None:
    """What others load with its first use, so that no request waits for it."""
    load_languages()
    make_all(server.parts.performers)


class _Reloading:
    """SIGHUP: read the book of participants again; or stop, where the terminal is gone."""

    def __init__(self, server: Server, stopping: asyncio.Event) -> None:
        self._server = server
        self._stopping = stopping
        self._terminal = sys.stdin is not None and sys.stdin.isatty()
        self._tasks: set[asyncio.Task[None]] = set()

    def heard(self) -> None:
        if self._terminal and _is_gone():
            self._stopping.set()
            return
        task = asyncio.ensure_future(self._reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        try:
            await self._server.parts.participants.reload()
        except AnabranchError as error:
            _say(f"anabranch: the participants stay as they are: {error.message}")
        else:
            names = self._server.parts.participants.book.names
            _say(f"anabranch: {len(names)} participants, read again")


def _is_gone() -> bool:
    try:
        os.tcgetpgrp(0)
    except OSError:
        return True
    return False


def _require_no_server(options: argparse.Namespace, settings: Settings) -> None:
    """Who has a server in the environment may have forgotten it: better to ask than to guess."""
    if settings.server:
        raise InputError(
            f"{options.verb} makes a server of a store, and the setting server (ANABRANCH_SERVER, "
            "anabranch.toml) names another one: say which store with --store, or unset it",
            code="usage",
        )


def _settings(options: argparse.Namespace, settings: Settings) -> Settings:
    """What the command line says goes before the environment."""
    given = {
        "serve_host": options.host,
        "serve_port": options.port,
        "serve_advertise": options.advertise,
        "tls_cert": options.tls_cert,
        "tls_key": options.tls_key,
        "require_tokens": "yes" if options.tokens_required else None,
    }
    return replace(settings, **{key: value for key, value in given.items() if value is not None})


async def _until_told(server: Server, stopping: asyncio.Event) -> str:
    """Until somebody stops it; or the reason why the engine has stopped by itself."""
    told = asyncio.ensure_future(stopping.wait())
    broken = asyncio.ensure_future(server.broken())
    await asyncio.wait({told, broken}, return_when=asyncio.FIRST_COMPLETED)
    failed = broken.result().message if broken.done() else ""
    await cancel_and_wait(told, broken)
    return failed


def _announce(
    options: argparse.Namespace, settings: Settings, server: Server, example: str
) -> None:
    url = server.url
    if options.json:
        print(
            render.json_line({"url": url, "store": shown(settings.store), "pid": os.getpid()}),
            flush=True,
        )
        return
    print(f"anabranch serves {shown(settings.store)} at {url}", flush=True)
    for each in server.parts.clusters:
        where = named(each.pool.engine, each.pool.shown)
        print(f"the jobs of pool {each.pool.name} are for {where}: {url}/pools", flush=True)
    if example:
        print(f"an example runs: {url}/runs/{example}")
        if settings.store == DEV_STORE:
            print("its store is for trying things out; `--store PATH` names yours")
    if settings.require_tokens == "yes" or not server.open:
        where = shlex.quote(shown(settings.store))
        made = f"anabranch token create --scope admin --name YOU --store {where}"
        print(f"callers need a token: `{made}` creates one")
    print(f"to stop it: Ctrl-C, or kill {os.getpid()}", flush=True)


async def _load_example(server: Server) -> str:
    """A run to look at: the newest of the example, or a new one if there is none."""
    known = server.parts.store.heads(HeadFilter(name=EXAMPLE_NAME, limit=1))
    if known:
        return known[0].run
    return await server.parts.verbs.start(EXAMPLE)


def _allow_many_files() -> None:
    """Every connection is a file; the usual limit of 1,024 is soon reached."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def spare_the_collector() -> None:
    """What was loaded to start with stays: looking through it again and again for garbage would
    hold up every request for some ten milliseconds each time. Runs are no garbage either, so what
    was made since is looked through less often than usual (`collector`)."""
    gc.collect()
    gc.freeze()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
