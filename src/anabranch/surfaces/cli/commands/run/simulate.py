"""`simulate`: the user's own definition under random schedules and faults."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.operations.definitions.input_check import read_typed, require_input
from anabranch.operations.definitions.prepare import prepare
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.output import render
from anabranch.work.kinds.callables import default_toolbox

if TYPE_CHECKING:
    from anabranch.testing import Simulation


async def simulate(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.testing import SimulationFailed
    from anabranch.testing import simulate as run_simulation

    values.import_tools(options.tools)
    known = default_toolbox.signatures()
    prepared = prepare(Path(options.file), known, options.rules)
    given = read_typed(prepared.net, {}, values.texts(options.input, "input"))
    require_input(prepared.net, given, extra=options.allow_extra_input)
    seeds = [options.seed] if options.seed is not None else options.seeds
    try:
        simulation = run_simulation(
            prepared.net,
            seeds=seeds,
            input=given,
            repeat=lambda seed: _command(options, seed),
        )
    except SimulationFailed as failure:
        render.tell(options, {"ok": False, "problem": str(failure)}, failure)
        return 1
    return render.tell(options, _sums(simulation), simulation)


def _command(options: argparse.Namespace, seed: int) -> str:
    """What to type to see the same failure again."""
    given = [f"--input {shlex.quote(pair)}" for pair in options.input]
    tools = [f"--tools {module}" for module in options.tools]
    rules = [f"--rules {shlex.quote(options.rules)}"] if options.rules else []
    words = ["anabranch simulate", shlex.quote(options.file), *rules, *given, *tools]
    words.append(f"--seed {seed}")
    return " ".join(words)


def _sums(simulation: Simulation) -> dict[str, Any]:
    sums = {field.name: getattr(simulation, field.name) for field in fields(simulation)}
    return {"ok": True, **sums, "hours": simulation.hours}
