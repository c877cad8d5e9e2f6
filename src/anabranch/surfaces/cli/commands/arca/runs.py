"""`arca run|runs|show|explain|dispatches|pause|resume|cancel|confirm`: runs on a node."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from anabranch.errors import InputError, NotFound
from anabranch.kernel.step import deep_merge
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.commands.arca.client import ArcaClient
from anabranch.surfaces.cli.commands.node.client import part
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.exit_codes import FAILED, LEFT_WAITING

Asked = Callable[[argparse.Namespace, ArcaClient], Awaitable[int]]
LOOK_SECONDS = 0.1
MOVING = ("pending", "running")
LOOKS_BETWEEN = 5  # two questions whom the run waits for
NEWEST = "last"
_MANY = {"limit": 500}
#: What to look at first, by the class of the error.
HINTS = {
    "no_targets": "`anabranch offers sync`, `anabranch offers list --hidden` and `anabranch node "
    "directory query CAPABILITY` say what this node knows",
    "offer-not-found": "see `anabranch offers list --hidden` and `anabranch node offers trust`",
    "settlement-blocked": "put money in with `anabranch node ledger top-up AMOUNT`",
}
_DEFINITION_BYTES = 16 * 1024 * 1024


async def run(options: argparse.Namespace, arca: ArcaClient) -> int:
    given = deep_merge(values.file_input(options.input_file), values.pairs(options.input, "input"))
    body = {"definition": _text(options.definition), "input": given}
    if options.run_id is not None:
        body["run_id"] = options.run_id
    begun = await arca.ask("POST", "arca/runs", body)
    return await shown(options, arca, begun)


async def shown(options: argparse.Namespace, arca: ArcaClient, run: Mapping[str, Any]) -> int:
    """A run as it stands, or with `--wait` as it ends; the exit code says how."""
    if options.wait is None:
        return render.tell(options, run, f"{run['run_id']}: {run['status']}")
    end, people = time.monotonic() + options.wait, list[str]()
    for number in count(1):
        if run["status"] not in MOVING or people or time.monotonic() >= end:
            break
        await asyncio.sleep(LOOK_SECONDS)
        run = await arca.ask("GET", f"arca/runs/{part(run['run_id'])}")
        if number % LOOKS_BETWEEN == 0:
            people = await _who_decides(arca, run)
    render.tell(options, run, "\n".join([*_lines(run), *(f"  {line}" for line in people)]))
    if run["status"] == "completed":
        return 0
    return LEFT_WAITING if run["status"] in (*MOVING, "paused") else FAILED


async def _who_decides(arca: ArcaClient, run: Mapping[str, Any]) -> list[str]:
    """What a run waits for that stands still until people decide; nothing of one that moves."""
    found = await arca.ask("GET", f"arca/runs/{part(run['run_id'])}/explain")
    steps = [one for one in found["waiting"] if one.get("step")]
    if not all(map(_is_for_people, steps)):
        return []
    return [line for one in steps for line in waiting_lines(one)]


def _is_for_people(one: Mapping[str, Any]) -> bool:
    movers = one.get("movers", ())
    return bool(movers) and all(mover.startswith("anabranch ") for mover in movers)


async def runs(options: argparse.Namespace, arca: ArcaClient) -> int:
    query = {"status": options.status, "workflow_id": options.workflow, "limit": options.limit}
    found = (await arca.ask("GET", "arca/runs", query=query))["items"]
    rows = [
        (one["run_id"], render.standing(one), one["workflow_id"], one["created_at"])
        for one in found
    ]
    return render.tell_rows(
        options, found, rows, ("RUN", "STATUS", "WORKFLOW", "STARTED"), "there are no such runs"
    )


async def show(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("GET", await _path(options, arca))
    return render.tell(options, found, "\n".join(_lines(found)))


async def explain(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("GET", f"{await _path(options, arca)}/explain")
    lines = [f"{found['run_id']}: {found['status']}"]
    waiting = [f"  {line}" for one in found["waiting"] for line in waiting_lines(one)]
    lines += waiting or ["  nothing is unfinished"]
    return render.tell(options, found, "\n".join(lines))


def waiting_lines(one: Mapping[str, Any]) -> list[str]:
    """What is at work waits for nothing, and nobody has to move it."""
    where = f"step {one['step']}" if one.get("step") else one["what"]
    movers = () if one.get("at_work") else one.get("movers", ())
    return [
        f"{where}: {render.clean(render.stands(one))}",
        *(f"  {render.clean(mover)}" for mover in movers),
    ]


async def dispatches(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = (await arca.ask("GET", f"{await _path(options, arca)}/dispatches"))["items"]
    rows = [
        (one["step_id"], str(one["attempt"]), one["target"], one["status"], one["outcome"] or "-")
        for one in found
    ]
    head = ("STEP", "ATTEMPT", "ASKED", "STATUS", "OUTCOME")
    return render.tell_rows(options, found, rows, head, "no participant has been asked yet")


def _act(verb: str) -> Asked:
    async def act(options: argparse.Namespace, arca: ArcaClient) -> int:
        said = {"actor": options.actor, "reason": options.reason}
        found = await arca.ask("POST", f"{await _path(options, arca)}/{verb}", said)
        return render.tell(options, found, f"{found['run_id']}: {found['status']}")

    return act


async def confirm(options: argparse.Namespace, arca: ArcaClient) -> int:
    said = {
        "fulfilled": not options.reject,
        "actor": options.actor,
        "reason": options.reason,
        "evidence": values.evidence(options.evidence),
    }
    path = f"{await _path(options, arca)}/steps/{part(options.step)}/confirm"
    found = await arca.ask("POST", path, said)
    how = "not fulfilled" if options.reject else "fulfilled"
    text = f"{found['run_id']}: step {options.step} is {how}; the run is {found['status']}"
    return render.tell(options, found, text)


async def _path(options: argparse.Namespace, arca: ArcaClient) -> str:
    """Of the run with this id, the only one that begins so, or the newest one for `last`."""
    name = options.run
    if name == NEWEST:
        newest = (await arca.ask("GET", "arca/runs", query={"limit": 1}))["items"]
        if not newest:
            raise NotFound("this node has no run yet")
        return f"arca/runs/{part(newest[0]['run_id'])}"
    known = [one["run_id"] for one in (await arca.ask("GET", "arca/runs", query=_MANY))["items"]]
    found = [one for one in known if one.startswith((name, f"run:{name}"))] if name else []
    if name not in known and len(found) > 1:
        raise NotFound(f"several runs start with {name!r}: give more of the id")
    return f"arca/runs/{part(name if name in known or not found else found[0])}"


def _text(file: str) -> str:
    if file == "-":
        return str(values.source(file))
    try:
        data = Path(file).read_bytes()
        if len(data) > _DEFINITION_BYTES:
            raise InputError(f"{file} is larger than a definition may be", code="usage")
        return data.decode("utf-8") + "\n"
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", code="usage") from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8", code="usage") from None


def _lines(run: Mapping[str, Any]) -> list[str]:
    problems = sum("error" in step for step in run["steps"])
    status = render.standing({"status": run["status"], "problems": problems})
    lines = [f"{run.get('workflow_id', '')} ({run['run_id']}): {status}"]
    if run.get("pause_reason"):
        lines.append(f"  waits for: {render.clean(run['pause_reason'])}")
    for step in run["steps"]:
        lines.append(f"  {step['step_id']}: {step['status']}{_more(step)}")
    if error := run.get("error"):
        lines.append(f"  reason: {error['code']}: {render.clean(error.get('message', ''))}")
        lines += [f"  hint: {hint}" for code, hint in HINTS.items() if code == error["code"]]
    return lines


def _more(step: Mapping[str, Any]) -> str:
    said = [step[name] for name in ("order_id", "receipt_id") if step.get(name)]
    output = step.get("selected_output", step.get("output"))
    if output is not None:
        said.append(render.short(output))
    if error := step.get("error"):
        said.append(f"{error['code']}: {render.short(error.get('message', ''))}")
    return f"  {', '.join(said)}" if said else ""


ACTIONS: dict[str, Asked] = {
    "run": run,
    "runs": runs,
    "show": show,
    "explain": explain,
    "dispatches": dispatches,
    "pause": _act("pause"),
    "resume": _act("resume"),
    "cancel": _act("cancel"),
    "confirm": confirm,
}
