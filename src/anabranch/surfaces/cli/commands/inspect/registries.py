"""`registry`, and `check` and `graph` of what a registry contract keeps."""

from __future__ import annotations

import argparse

from msgspec.structs import asdict

from anabranch.errors import AnabranchError, DefinitionError, InputError
from anabranch.net.problems import Position, Problem
from anabranch.operations.definitions.prepare import check as check_definition
from anabranch.operations.read.reader import draw
from anabranch.settings import Settings
from anabranch.surfaces.cli.commands.run.orchestrations import check_form
from anabranch.surfaces.cli.output import render
from anabranch.work.kinds.callables import default_toolbox


async def registry(options: argparse.Namespace, settings: Settings) -> int:
    """List the orchestrations that a registry keeps."""
    from anabranch.work.chain.registry import list_registry
    from anabranch.work.chain.wiring import rpc_options

    require_node(options.registry, settings)
    found = await list_registry(settings.chain_url, options.registry, rpc_options(settings))
    if options.json:
        print(render.json_line(asdict(found)))
        return 0
    print(f"registry {found.registry} on chain {found.chain_id}, block {found.block}")
    print(render.one_line(f"  owner: {found.owner or 'not told'}"))
    listed = "no list" if found.executors is None else ", ".join(found.executors) or "none"
    print(render.one_line(f"  executors: {listed}"))
    rows = [
        (render.clean(one.id), str(one.version or "-"), _when(one.updated_at), one.hash or "-")
        for one in found.entries
    ]
    head = ("ORCHESTRATION", "VERSION", "UPDATED", "HASH")
    print("\n".join(render.table(rows, head)) if rows else "  it keeps no orchestration")
    return 0


def _when(seconds: int | None) -> str:
    return "-" if not seconds else render.instant(seconds * 1000)


def require_node(registry_address: str, settings: Settings) -> None:
    check_form("--registry", registry_address, 40)
    if not settings.chain_url:
        raise InputError("a registry needs a node to ask: name it with --rpc", code="usage")


async def check_registry(options: argparse.Namespace, settings: Settings) -> list[Problem]:
    """What is wrong with one orchestration of a registry, or with all of them, rules included."""
    from anabranch.work.chain.registry import list_registry
    from anabranch.work.chain.wiring import rpc_options

    require_node(options.registry, settings)
    ids = [options.ostc] if options.ostc else []
    if not ids:
        found = await list_registry(settings.chain_url, options.registry, rpc_options(settings))
        ids = [one.id for one in found.entries]
    return [problem for one in ids for problem in await _problems(options, settings, one)]


async def _problems(options: argparse.Namespace, settings: Settings, ostc: str) -> list[Problem]:
    place = f"{options.registry.lower()}/{ostc}"
    try:
        text = await loaded_text(options, settings, ostc)
    except DefinitionError as error:
        return list(error.problems)
    except AnabranchError as error:
        if getattr(error, "retryable", False):
            raise
        return [Problem(Position(1, 1, place), "cannot-load", error.message)]
    tools = default_toolbox.signatures()
    return list(check_definition(text, tools, options.rules, file=place).problems)


async def draw_registry(options: argparse.Namespace, settings: Settings) -> str:
    require_node(options.registry, settings)
    if not options.ostc:
        raise InputError("--registry keeps many orchestrations: name one with --ostc", code="usage")
    text = await loaded_text(options, settings, options.ostc)
    place = f"{options.registry.lower()}/{options.ostc}"
    tools = default_toolbox.signatures()
    compiled = check_definition(text, tools, options.rules, file=place)
    if compiled.net is None:
        raise DefinitionError(compiled.errors)
    return draw(compiled.net, options.format)


async def loaded_text(options: argparse.Namespace, settings: Settings, ostc: str) -> str:
    """The bundle of one orchestration with its rules as they are now."""
    from anabranch.work.chain.loader import load_orchestration
    from anabranch.work.chain.wiring import rpc_options

    loaded = await load_orchestration(
        settings.chain_url,
        options.registry,
        ostc,
        pin_rules=True,
        encrypted_rules=True,
        options=rpc_options(settings),
    )
    return loaded.bundle()
