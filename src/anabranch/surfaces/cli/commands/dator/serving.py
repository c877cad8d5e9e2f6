"""`dator serve` and `dator role`: modules that listen on loopback until they are told to stop."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.files import read_limited
from anabranch.modules.dator.config import dator_config, require_roles
from anabranch.modules.dator.http_roles import HttpRoles
from anabranch.modules.dator.module import PORT, DatorModule
from anabranch.modules.dator.role import RoleModule, load_function
from anabranch.modules.kit.environment import read_environment
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.http_host import HttpHost
from anabranch.surfaces.cli import stop_signals
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.http.module.server import HostToken, ModuleServer

HOSTED = "ORBIPLEX_HOST_CAPABILITY_BASE_URL"  # set where a node has started this program
_TOKEN_BYTES = 4096


async def serve(options: argparse.Namespace) -> int:
    found = read_environment(os.environ, "dator", f"http://127.0.0.1:{PORT}")
    config = dator_config(found.config)
    require_roles(config)
    call, roles = HttpHost.of(found), HttpRoles(config.roles)
    module = DatorModule(host=Host(call), clock=SystemClock(), config=config, roles=roles)
    try:
        return await _until_stopped(options, ModuleServer.of(module, found))
    finally:
        await roles.close()
        await call.close()


async def role(options: argparse.Namespace) -> int:
    function = load_function(options.function)
    name = options.function.rpartition(":")[2]
    if HOSTED in os.environ and not options.port:
        found = read_environment(os.environ, name, "")
        server = ModuleServer.of(RoleModule(function, found.module_id), found)
    else:
        address = "127.0.0.1", options.port
        server = ModuleServer(RoleModule(function, name), address, _token(options))
    return await _until_stopped(options, server)


def _token(options: argparse.Namespace) -> HostToken:
    if bool(options.auth_header) != bool(options.token_file):
        raise InputError("--auth-header and --token-file are given together", code="usage")
    if not options.auth_header:
        return HostToken()
    text = read_limited(Path(options.token_file), _TOKEN_BYTES).decode("ascii", "replace").strip()
    return HostToken(options.auth_header, text)


async def _until_stopped(options: argparse.Namespace, server: ModuleServer) -> int:
    stopping = asyncio.Event()
    stop_signals.on_stop(stopping.set)
    async with server:
        name = server.module.module_id
        status = {"url": server.url, "module_id": name, "pid": os.getpid()}
        render.tell(options, status, f"{name} listens at {server.url}")
        sys.stdout.flush()
        await stopping.wait()
    return 0
