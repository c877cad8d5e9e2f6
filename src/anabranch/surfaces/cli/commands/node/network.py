"""`node status|peers|modules|directory|deliveries`: the node and those around it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.surfaces.cli.commands.node.client import NodeClient, part
from anabranch.surfaces.cli.output import render

Asked = Callable[[argparse.Namespace, NodeClient], Awaitable[int]]


async def status(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", "/v1/status")
    opened = ", ".join(f"{count:,} {name}" for name, count in found["open"].items())
    lines = [
        f"node {found['name']} at {found['url']}",
        f"  {found['node_id']}",
        f"  {found['participant_id']}",
        f"  up for {render.duration((found['now'] - found['opened_at']) / 1000)}",
        f"  open: {opened or 'nothing'}",
    ]
    return render.tell(options, found, "\n".join(lines))


async def peers(options: argparse.Namespace, node: NodeClient) -> int:
    found = (await node.ask("GET", "/v1/peers"))["items"]
    rows = [(one["node_id"], one["status"], one["url"] or "-", one["error"] or "") for one in found]
    head = ("NODE", "STATUS", "URL", "ERROR")
    return render.tell_rows(options, found, rows, head, "it has talked to no other node yet")


async def ping(options: argparse.Namespace, node: NodeClient) -> int:
    began = time.monotonic()
    found = await node.ask("POST", f"/v1/peers/{part(options.node_id)}/session")
    took = render.duration(time.monotonic() - began)
    return render.tell(options, found, f"session {found['session_id']} after {took}")


async def modules(options: argparse.Namespace, node: NodeClient) -> int:
    found = (await node.ask("GET", "/v1/modules"))["items"]
    rows = [(one["module_id"], one["state"], str(one["restarts"]), _problem(one)) for one in found]
    head = ("MODULE", "STATE", "RESTARTS", "PROBLEM")
    return render.tell_rows(options, found, rows, head, "this node hosts no module")


def _problem(module: Mapping[str, Any]) -> str:
    """The last one; a module that is ready may have had one."""
    last = module["last_problem"]
    return render.clean(f"{last['code']}: {last['message']}") if last else ""


async def notifications(options: argparse.Namespace, node: NodeClient) -> int:
    found = (await node.ask("GET", "/v1/notifications", query={"limit": options.limit}))["items"]
    rows = [(one["emitted_at"], one["module_id"], one["level"], render.short(one["title"]))
            for one in found]  # fmt: skip
    head = ("AT", "MODULE", "LEVEL", "TITLE")
    return render.tell_rows(options, found, rows, head, "no module has told anything yet")


async def module(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", f"/v1/modules/{part(options.module)}")
    return render.tell(options, found, render.json_text(found))


def _act_on_module(verb: str) -> Asked:
    async def act(options: argparse.Namespace, node: NodeClient) -> int:
        found = await node.ask("POST", f"/v1/modules/{part(options.module)}/{verb}")
        return render.tell(options, found, f"module {options.module}: {found['state']}")

    return act


async def directory(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", "/v1/directory")
    lines = [f"seed {one['url']}: {one['error'] or 'read'}" for one in found["seeds"]]
    lines.append(f"{found['nodes']:,} nodes have published in the directory of this one")
    lines += [f"{name}: {count:,} nodes" for name, count in found["capabilities"].items()]
    if not found["capabilities"]:
        lines.append("no valid passport is known")
    return render.tell(options, found, "\n".join(lines))


async def sync(options: argparse.Namespace, node: NodeClient) -> int:
    await node.ask("POST", "/v1/directory/sync")
    return await directory(options, node)


async def query(options: argparse.Namespace, node: NodeClient) -> int:
    asked = {"capability": options.capability}
    found = (await node.ask("GET", "/v1/directory/holders", query=asked))["items"]
    rows = [(one["node_id"], _url(one), str(one.get("expires_at") or "-")) for one in found]
    said = f"no valid passport for {options.capability} is known"
    return render.tell_rows(options, found, rows, ("NODE", "URL", "EXPIRES"), said)


def _url(row: Mapping[str, Any]) -> str:
    return next((one["endpoint/url"] for one in row.get("endpoints") or ()), "-")


async def nodes(options: argparse.Namespace, node: NodeClient) -> int:
    asked = {"source": options.source, "limit": options.limit}
    found = (await node.ask("GET", "/v1/directory/nodes", query=asked))["items"]
    rows = [
        (one["node_id"], one["source"] or "-", "yes" if one["trusted"] else "no",
         one["expires_at"], " ".join(one["capabilities"]) or "-")
        for one in found
    ]  # fmt: skip
    head = ("NODE", "SOURCE", "TRUSTED", "EXPIRES", "CAPABILITIES")
    return render.tell_rows(options, found, rows, head, "no node has published here")


async def drop(options: argparse.Namespace, node: NodeClient) -> int:
    if (options.node_id is None) == (options.source is None):
        raise InputError("say which node, or which --source", code="usage")
    body = {"source": options.source} if options.node_id is None else {"node_id": options.node_id}
    found = await node.ask("POST", "/v1/directory/drop", body)
    return render.tell(options, found, f"dropped {len(found['nodes']):,}")


async def drop_revocations(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"signer": options.signer, "registered": options.registered}
    found = await node.ask("POST", "/v1/directory/revocations/drop", body)
    return render.tell(options, found, f"dropped {found['revocations']:,}")


async def passport(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"capability_id": options.capability, "life_seconds": options.days * 86_400}
    if options.subject:
        body["node_id"] = options.subject
    found = await node.ask("POST", "/v1/passports", body)
    signed = found.get("passport", found)
    return render.tell(options, found, f"issued {signed['passport_id']}")


async def passports(options: argparse.Namespace, node: NodeClient) -> int:
    found = (await node.ask("GET", "/v1/passports"))["items"]
    rows = [
        (one["passport"]["passport_id"], one["passport"]["capability_id"],
         "revoked" if one["revoked"] else "held" if one["held"] else "issued",
         one["passport"]["expires_at"])
        for one in found
    ]  # fmt: skip
    head = ("PASSPORT", "CAPABILITY", "STATUS", "EXPIRES")
    return render.tell_rows(options, found, rows, head, "this node holds and issued no passport")


async def revoke(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("POST", "/v1/passports/revoke", {"passport_id": options.passport})
    return render.tell(options, found, f"revoked {options.passport}")


async def deliveries(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"limit": options.limit, "open": "true" if options.open else None}
    found = (await node.ask("GET", "/v1/artifact-delivery/deliveries", query=query))["items"]
    rows = [(one["delivery/id"], one["status"], one["artifact"]["schema"], one["submitted-at"],
             one.get("failure/class") or "") for one in found]  # fmt: skip
    head = ("DELIVERY", "STATUS", "ARTIFACT", "SUBMITTED", "FAILURE")
    return render.tell_rows(options, found, rows, head, "it has sent no artifact yet")


async def delivery(options: argparse.Namespace, node: NodeClient) -> int:
    path = f"/v1/artifact-delivery/deliveries/{part(options.delivery)}"
    found = await node.ask("GET", path)
    return render.tell(options, found, render.json_text(found))


async def recover(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("POST", "/v1/artifact-delivery/recover")
    lines = [f"{found['recovered']:,} are tried again", *found["deliveries"]]
    return render.tell(options, found, "\n".join(lines))


async def admissions(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"limit": options.limit}
    found = (await node.ask("GET", "/v1/artifact-delivery/admissions", query=query))["items"]
    rows = [(one["admission/id"], one["status"], one["artifact"]["schema"], one["offered-at"],
             one.get("reason") or "") for one in found]  # fmt: skip
    head = ("ADMISSION", "STATUS", "ARTIFACT", "OFFERED", "REASON")
    return render.tell_rows(options, found, rows, head, "no artifact has come in yet")


ACTIONS: dict[tuple[str, str], Asked] = {
    ("status", ""): status,
    ("peers", ""): peers,
    ("peers", "ping"): ping,
    ("modules", ""): modules,
    ("modules", "show"): module,
    ("modules", "notifications"): notifications,
    ("modules", "start"): _act_on_module("start"),
    ("modules", "stop"): _act_on_module("stop"),
    ("modules", "restart"): _act_on_module("restart"),
    ("directory", ""): directory,
    ("directory", "query"): query,
    ("directory", "sync"): sync,
    ("directory", "nodes"): nodes,
    ("directory", "drop"): drop,
    ("directory", "drop-revocations"): drop_revocations,
    ("directory", "passport"): passport,
    ("directory", "passports"): passports,
    ("directory", "revoke"): revoke,
    ("deliveries", ""): deliveries,
    ("deliveries", "show"): delivery,
    ("deliveries", "recover"): recover,
    ("deliveries", "admissions"): admissions,
}
