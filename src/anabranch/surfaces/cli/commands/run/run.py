"""`run`, `resume` and `redrive`: these verbs really differ with the place, so each has two sides.

At a store there is an engine to open in this process; a server has one, and is only watched.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.output import render


class Side(Protocol):
    """What `local_run` and `remote_run` have in common."""

    async def run(self, options: argparse.Namespace, settings: Settings) -> int: ...

    async def run_template(
        self, options: argparse.Namespace, settings: Settings, parameters: Mapping[str, Any]
    ) -> int: ...

    async def redrive(self, options: argparse.Namespace, settings: Settings) -> int: ...

    async def resume(self, options: argparse.Namespace, settings: Settings) -> int: ...


def _side(settings: Settings) -> Side:
    if settings.server:
        from anabranch.surfaces.cli.commands.run import remote_run

        return remote_run
    from anabranch.surfaces.cli.commands.run import local_run

    return local_run


async def run(options: argparse.Namespace, settings: Settings) -> int:
    return await _side(settings).run(options, settings)


async def run_template(
    options: argparse.Namespace, settings: Settings, parameters: Mapping[str, Any]
) -> int:
    return await _side(settings).run_template(options, settings, parameters)


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    return await _side(settings).resume(options, settings)


async def redrive(options: argparse.Namespace, settings: Settings) -> int:
    if not options.dry_run:
        return await _side(settings).redrive(options, settings)
    values.import_tools(options.tools)
    async with open_backend(options, settings) as at:
        plan = await at.runs.plan_redrive(options.run, options.from_step)
    lines = render.redrive_lines(plan)
    return render.tell(options, msgspec.to_builtins(plan), "\n".join(lines))
