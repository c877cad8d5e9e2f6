"""`dator`: which action it is; those that ask, ask the node at the routes of the module."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.market.node.folder import NodeFolder
from anabranch.market.sources import fetch_source, load_source
from anabranch.settings import Settings
from anabranch.surfaces.cli.commands.node.client import NodeClient, hosting, until
from anabranch.surfaces.cli.output import render

PUBLISH_SECONDS = 10.0  # for offers of a module that was just started
Asked = Callable[[argparse.Namespace, NodeClient], Awaitable[int]]


async def dator(options: argparse.Namespace, settings: Settings) -> int:
    if options.action in ("serve", "role"):
        from anabranch.surfaces.cli.commands.dator import serving

        work = serving.serve if options.action == "serve" else serving.role
        return await work(options)
    folder = NodeFolder(options.node or os.environ.get("ANABRANCH_NODE") or ".")
    return await _ACTIONS[options.action](options, await hosting(folder, "dator"))


async def offers(options: argparse.Namespace, node: NodeClient) -> int:
    async def look() -> list[Any]:
        return list((await node.ask("GET", "/v1/enact/dator/offers"))["items"])

    found = await until(
        look, lambda all_: all(one["status"] != "pending" for one in all_), PUBLISH_SECONDS
    )
    rows = [_offer_row(one) for one in found]
    head = ("OFFER", "STATUS", "SEQ", "QUEUE", "ROLE", "PROBLEM")
    return render.tell_rows(options, found, rows, head, "no offers are configured")


def _offer_row(one: dict[str, Any]) -> tuple[str, ...]:
    offer = one["offer"] or {}
    queue = f"{one['depth']} of {offer.get('queue/max-depth', '-')}"
    number = str(offer.get("sequence/no", "-"))
    problem = one.get("problem", "")
    return one["offer/id"], one["status"], number, queue, one.get("role", "-"), problem


async def queue(options: argparse.Namespace, node: NodeClient) -> int:
    body = await node.ask("GET", "/v1/enact/dator/queue")
    found = [*body["items"], *(body["ended"] if options.all else ())]
    rows = [
        (one["request_id"], one["state"], one["service_type"], one["order/id"],
         one.get("code") or one.get("result") or "-", one["delivery_deadline"])
        for one in found
    ]  # fmt: skip
    head = ("REQUEST", "STATE", "SERVICE", "ORDER", "RESULT", "DEADLINE")
    return render.tell_rows(options, found, rows, head, "no orders are open")


async def accept(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"request": options.request}
    found = await node.ask("POST", "/v1/enact/dator/queue/accept", body)
    return render.tell(options, found, f"accepted {options.request}")


async def reject(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"request": options.request, "reason": options.reason}
    found = await node.ask("POST", "/v1/enact/dator/queue/reject", body)
    return render.tell(options, found, f"rejected {options.request}")


async def publish(options: argparse.Namespace, node: NodeClient) -> int:
    offer = load_source(fetch_source(options.file), options.file)
    found = await node.ask("POST", "/v1/enact/participant/service-offers", offer)
    return render.tell(options, found, f"{found['status']} {found['offer']['offer/id']}")


async def withdraw(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"offer_id": options.offer}
    path = "/v1/enact/participant/service-offers/withdraw"
    found = await node.ask("POST", path, body)
    return render.tell(options, found, f"withdrew {options.offer}")


_ACTIONS: dict[str, Asked] = {
    "offers": offers,
    "queue": queue,
    "accept": accept,
    "reject": reject,
    "publish": publish,
    "withdraw": withdraw,
}
