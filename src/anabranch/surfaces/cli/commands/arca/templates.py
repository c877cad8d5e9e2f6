"""`arca templates`: templates of workflows at a node, and those that other nodes publish."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.commands.arca import runs
from anabranch.surfaces.cli.commands.arca.client import ArcaClient
from anabranch.surfaces.cli.commands.arca.runs import Asked
from anabranch.surfaces.cli.commands.node.client import part
from anabranch.surfaces.cli.output import render

EVERY = "arca/templates"


async def listed(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = (await arca.ask("GET", EVERY))["items"]
    rows = [
        (one["template_id"], one.get("template_kind") or "workflow", _shared(one), _label(one))
        for one in found
    ]
    head = ("TEMPLATE", "KIND", "SHARED", "LABEL")
    return render.tell_rows(options, found, rows, head, "this node keeps no templates")


async def put(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("POST", EVERY, values.file_input(options.file))
    return render.tell(options, found, f"{found['status']} {found['template_id']}")


async def show(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("GET", _one(options))
    return render.tell(options, found, render.json_text(found["template"]))


async def delete(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("DELETE", _one(options))
    return render.tell(options, found, f"deleted {options.template}")


async def materialise(options: argparse.Namespace, arca: ArcaClient) -> int:
    body = {"template_id": options.template, "parameters": _parameters(options)}
    found = await arca.ask("POST", f"{EVERY}/materialize", body)
    return render.tell(options, found, render.json_text(found["definition"]))


async def run(options: argparse.Namespace, arca: ArcaClient) -> int:
    body = {
        "template_id": options.template,
        "parameters": _parameters(options),
        "input": values.pairs(options.input, "input"),
        "run_id": options.run_id,
    }
    return await runs.shown(options, arca, await arca.ask("POST", "arca/runs", body))


async def publish(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("POST", f"{_one(options)}/publish", {"publish": not options.withdraw})
    said = f"published {options.template} as {found['digest']}"
    return render.tell(options, found, f"{options.template} is private" if options.withdraw
                       else said)  # fmt: skip


async def browse(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await arca.ask("POST", f"{EVERY}/browse", {"node_id": options.node_id})
    rows = [(one["template_id"], str(one.get("digest") or "-"), _label(one))
            for one in found["templates"]]  # fmt: skip
    head = ("TEMPLATE", "DIGEST", "LABEL")
    return render.tell_rows(options, found, rows, head, "that node publishes no templates")


async def preview(options: argparse.Namespace, arca: ArcaClient) -> int:
    found = await _previewed(options, arca)
    return render.tell(options, found, "\n".join(_preview_lines(found)))


async def import_(options: argparse.Namespace, arca: ArcaClient) -> int:
    """What is kept is what was shown: the digest of the preview, or the one that was typed."""
    digest = options.digest
    if digest is None:
        seen = await _previewed(options, arca)
        if not options.json:
            print("\n".join(_preview_lines(seen)))
        digest = seen["digest"]
    body = {"node_id": options.node_id, "template_id": options.template, "digest": digest}
    if options.publisher is not None:
        body["publisher"] = options.publisher
    found = await arca.ask("POST", f"{EVERY}/import", body)
    return render.tell(options, found, f"{found['status']} {found['template_id']}")


async def _previewed(options: argparse.Namespace, arca: ArcaClient) -> Any:
    body = {"node_id": options.node_id, "template_id": options.template}
    return await arca.ask("POST", f"{EVERY}/import/preview", body)


def _preview_lines(found: Mapping[str, Any]) -> list[str]:
    runs_node = "which runs that node" if found["publisher_runs_node"] else "of another node"
    lines = [
        f"{found['template_id']} of {found['node_id']}",
        f"  publisher: {found['publisher'] or 'not said'}, {runs_node}",
        f"  signature: {found['signature']}",
        f"  digest: {found['digest']}",
        f"  here: {found['here']}",
    ]
    return lines + [f"  {one['code']}: {render.clean(one['message'])}" for one in found["problems"]]


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    return values.pairs(options.param, "param")


def _one(options: argparse.Namespace) -> str:
    return f"{EVERY}/{part(options.template)}"


def _shared(one: Mapping[str, Any]) -> str:
    return "published" if one["public"] else "imported" if one["imported"] else "-"


def _label(one: Mapping[str, Any]) -> str:
    return render.short(one.get("label") or one.get("description") or "")


ACTIONS: dict[str, Asked] = {
    "": listed,
    "put": put,
    "list": listed,
    "show": show,
    "delete": delete,
    "materialise": materialise,
    "run": run,
    "publish": publish,
    "browse": browse,
    "preview": preview,
    "import": import_,
}
