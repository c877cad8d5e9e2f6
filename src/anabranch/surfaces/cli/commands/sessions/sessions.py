"""`session`: ask about the sessions of orchestrations, wake or kill them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anabranch.errors import InputError, NotFound
from anabranch.operations.read.processes import run_and_token
from anabranch.operations.sessions.sessions import LIVE
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import SessionBackend
from anabranch.surfaces.cli.output import render

COLUMNS = ("pid", "parentPid", "step", "status", "outcome", "joinGroupId", "joinFromGroupId",
           "error")  # fmt: skip
CELL_LETTERS = 100


async def session(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action](options, at.sessions)


# -- looking ---------------------------------------------------------------------------------


async def _list(options: argparse.Namespace, sessions: SessionBackend) -> int:
    rows = await sessions.list_sessions(owner=options.owner, last=options.last)
    return _print_rows(options, rows)


async def _show(options: argparse.Namespace, sessions: SessionBackend) -> int:
    rows = await sessions.list_sessions(run=await _run(sessions, options))
    return _print_rows(options, rows)


async def _run(sessions: SessionBackend, options: argparse.Namespace) -> str:
    """The run that is meant: a number is one of the owner that is named."""
    name, token = run_and_token(options.run)
    if options.owner is None and not (name.isascii() and name.isdecimal()):
        return str(options.run)
    found = await sessions.find(name, options.owner)
    return f"{found}:{token}" if token else found


async def _next(options: argparse.Namespace, sessions: SessionBackend) -> int:
    number = await sessions.next_number(options.owner)
    return render.tell(options, {"next": number}, number)


async def _wakeable(options: argparse.Namespace, sessions: SessionBackend) -> int:
    rows = await sessions.wakeable(
        options.runner,
        owner=options.owner,
        run=options.session,
        step=options.step,
        last=options.last,
    )
    cells = [[str(row[key]) for key in ("owner", "pid", "step", "run")] for row in rows]
    head = ("OWNER", "PID", "STEP", "RUN")
    return render.tell_rows(options, rows, cells, head, "nothing that you may wake waits")


def _print_rows(options: argparse.Namespace, rows: list[dict[str, Any]]) -> int:
    columns, head = (
        [*COLUMNS],
        ["PID", "PARENT", "STEP", "STATUS", "OUTCOME", "GROUP", "TAKES FROM", "ERROR"],
    )
    if len({row["owner"] for row in rows}) > 1:  # two owners may both have a session 1
        columns, head = ["owner", *columns], ["OWNER", *head]
    cells = [[render.short(row[column], CELL_LETTERS) for column in columns] for row in rows]
    return render.tell_rows(options, rows, cells, head, "no sessions")


async def _receipts(options: argparse.Namespace, sessions: SessionBackend) -> int:
    found = await sessions.receipts(
        await _run(sessions, options), step=options.step, iteration=options.iteration
    )
    if options.json:
        print(render.json_line(found))
        return 0
    for receipt in found:
        said = {key: value for key, value in receipt.items() if value not in ("", None, {}, [])}
        head = f"{receipt['sessionId']}:{receipt['iteration']} {receipt['stepId']}"
        print(render.one_line(head))
        for key, value in said.items():
            if key not in ("sessionId", "iteration", "stepId"):
                print(f"  {render.one_line(key)}: {render.short(value, 100)}")
    return 0


async def _alive(options: argparse.Namespace, sessions: SessionBackend) -> int:
    try:
        alive = await sessions.alive(await _run(sessions, options))
    except NotFound:
        alive = False
    return render.tell(options, {"alive": alive}, "alive" if alive else "not alive")


async def _executed(options: argparse.Namespace, sessions: SessionBackend) -> int:
    try:
        run, iteration = run_and_token(await _run(sessions, options))
        rows = await sessions.list_sessions(run=run)
        found = [row["status"] for row in rows if row["iterationStep"] == iteration]
        executed = found[0] not in LIVE if found else None
    except NotFound:
        executed = None
    words = {True: "executed", False: "not yet executed", None: "no such process"}
    return render.tell(options, {"executed": executed}, words[executed])


# -- doing -----------------------------------------------------------------------------------


async def _wake(options: argparse.Namespace, sessions: SessionBackend) -> int:
    payload = values.pairs(options.payload, "payload")
    told = await sessions.wake(
        await _run(sessions, options), step=options.step, payload=payload, runner=options.runner
    )
    return render.tell(options, told, f"woken: {told['woken']}")


async def _kill(options: argparse.Namespace, sessions: SessionBackend) -> int:
    told = await sessions.kill(await _run(sessions, options), options.reason, options.runner)
    words = f"killed: {told['affected']} processes; session {told['processId']} is {told['status']}"
    return render.tell(options, told, words)


async def _gas(options: argparse.Namespace, sessions: SessionBackend) -> int:
    try:
        rule = Path(options.file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{options.file} cannot be read: {reason}", code="no_file") from None
    told = await sessions.gas(
        rule,
        valid_spawns=options.valid_spawns,
        invalid_spawns=options.invalid_spawns,
        encrypted=options.encrypted,
    )
    lines = [f"{key}: {render.short(value, 100)}" for key, value in told.items()]
    return render.tell(options, told, "\n".join(lines))


ACTIONS = {
    "list": _list,
    "show": _show,
    "next": _next,
    "wakeable": _wakeable,
    "receipts": _receipts,
    "wake": _wake,
    "kill": _kill,
    "alive": _alive,
    "executed": _executed,
    "gas": _gas,
}
