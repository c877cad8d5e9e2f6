"""`node offers|orders|inbox`: what is offered, ordered and done."""

from __future__ import annotations

import argparse
import json
from typing import Any

from anabranch.errors import InputError
from anabranch.market.sources import fetch_source, load_source
from anabranch.surfaces.cli.commands.node.arguments import STATES
from anabranch.surfaces.cli.commands.node.client import NodeClient, part, until
from anabranch.surfaces.cli.commands.node.network import Asked
from anabranch.surfaces.cli.output import render


async def offers(options: argparse.Namespace, node: NodeClient) -> int:
    query = {
        "source": "observed" if options.observed else None,
        "service_type": options.service_type,
    }
    found = (await node.ask("GET", "/v1/service-offers", query=query))["offers"]
    rows = [_offer_row(one.get("offer", one)) for one in found]
    head = ("OFFER", "SEQ", "SERVICE", "PRICE", "EXPIRES")
    return render.tell_rows(options, found, rows, head, "no active offers")


def _offer_row(offer: dict[str, Any]) -> tuple[str, ...]:
    price = f"{offer['pricing/amount']} {offer['pricing/currency']} {offer['pricing/unit']}"
    sequence = str(offer["sequence/no"])
    return offer["offer/id"], sequence, offer["service/type"], price, offer["expires-at"]


async def publish(options: argparse.Namespace, node: NodeClient) -> int:
    document = load_source(fetch_source(options.file), options.file)
    found = await node.ask("POST", "/v1/service-offers", document)
    offer = found.get("offer", found)
    return render.tell(options, found, f"published {offer['offer/id']}")


async def withdraw(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("POST", f"/v1/service-offers/{part(options.offer)}/withdraw")
    return render.tell(options, found, f"withdrew {options.offer}")


async def offer(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", f"/v1/service-offers/{part(options.offer)}")
    return render.tell(options, found, render.json_text(found))


async def fetch(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("POST", "/v1/service-offers/fetch", {"node_id": options.node_id})
    counts = found["counts"]
    said = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no offers"
    return render.tell(options, found, said)


async def push(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"node_ids": [options.node_id]}
    found = (await node.ask("POST", "/v1/service-offers/push", body))["results"][0]
    reason = f": {found['reason']}" if found.get("reason") else ""
    render.tell(options, found, f"{options.node_id}: {found['status']}{reason}")
    return 1 if found["status"] == "failed" else 0


async def drop(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("POST", "/v1/service-offers/drop", {"by": options.id})
    return render.tell(options, found, f"dropped {len(found['offers']):,}")


async def trusted(options: argparse.Namespace, node: NodeClient) -> int:
    found = (await node.ask("GET", "/v1/trusted-providers"))["items"]
    rows = [(one["entry/participant-id"], one["entry/added-at"]) for one in found]
    head = ("PARTICIPANT", "SINCE")
    return render.tell_rows(options, found, rows, head, "no provider is trusted yet")


async def trust(options: argparse.Namespace, node: NodeClient) -> int:
    body = {"participant_id": options.participant}
    found = await node.ask("POST", "/v1/trusted-providers", body)
    return render.tell(options, found, f"offers of {options.participant} are trusted")


async def distrust(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("DELETE", f"/v1/trusted-providers/{part(options.participant)}")
    return render.tell(options, found, f"offers of {options.participant} are not trusted any more")


async def orders(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"limit": options.limit, "open": "true" if options.open else None}
    found = (await node.ask("GET", "/v1/executions", query=query))["items"]
    rows = [(one["execution_id"], one["state"], one["offer_id"], _payment(one),
             one["receipt_id"] or "-") for one in found]  # fmt: skip
    head = ("EXECUTION", "STATE", "OFFER", "PRICE", "RECEIPT")
    return render.tell_rows(options, found, rows, head, "no orders yet")


def _payment(execution: dict[str, Any]) -> str:
    payment = execution["payment"]
    return f"{payment['amount']:,} {payment['currency']}"


async def place(options: argparse.Namespace, node: NodeClient) -> int:
    body: dict[str, Any] = {
        "offer_id": options.offer,
        "input": _json(options.input, "--input"),
        "units": options.units,
        "max_amount": options.max_amount,
        "order_id": options.id,
        "dispatch": not options.no_dispatch,
    }
    opened = await node.ask("POST", "/v1/orders", body)
    if opened["status"] == "rejected":
        why = f"{opened['classifier']}: {opened['rejected-reason']}"
        render.tell(options, opened, f"rejected: {why}")
        return 1
    done = f"{opened['order_id']} opened {opened['execution_id']}"
    delivery = opened.get("delivery", {})
    if delivery.get("status") == "failed":
        render.tell(options, opened, f"{done}; it was not sent: {delivery['detail']}")
        return 1
    return render.tell(options, opened, done)


async def execution(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", f"/v1/executions/{part(options.execution)}")
    return render.tell(options, found, render.json_text(found))


async def result(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", f"/v1/executions/{part(options.execution)}/result")
    return render.tell(options, found, render.json_text(found))


async def wait(options: argparse.Namespace, node: NodeClient) -> int:
    """1 where it does not come to that in time, or ends in another state."""
    path = f"/v1/executions/{part(options.execution)}"
    wanted = (options.state,) if options.state else STATES[STATES.index("dispatched") + 1 :]

    async def look() -> dict[str, Any]:
        found: dict[str, Any] = await node.ask("GET", path)
        return found

    found = await until(look, lambda one: one["state"] in wanted or one["terminal"],
                        options.seconds)  # fmt: skip
    render.tell(options, found, f"{options.execution}: {found['state']}")
    return 0 if found["state"] in wanted else 1


def _act(verb: str) -> Asked:
    async def act(options: argparse.Namespace, node: NodeClient) -> int:
        path = f"/v1/executions/{part(options.execution)}/{verb}"
        body: dict[str, Any] = {"reason": getattr(options, "reason", "")}
        if verb == "resolve":
            body["for"] = options.party
        found = await node.ask("POST", path, None if verb == "dispatch" else body)
        return render.tell(options, found, f"{options.execution}: {found['state']}")

    return act


async def receipt(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", f"/v1/receipts/{part(options.receipt)}")
    return render.tell(options, found, render.json_text(found))


async def inbox(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"limit": options.limit, "open": "true" if options.open else None}

    async def look() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await node.ask("GET", "/v1/inbox", query=query))["items"]
        return items

    found = await until(look, bool, options.wait or 0)
    rows = [
        (
            one["request_id"], one["status"], one["service_type"], _price_of(one),
            f"{one['request/units']:,}", render.short(one["request/input"]),
        )
        for one in found
    ]  # fmt: skip
    head = ("REQUEST", "STATUS", "SERVICE", "PRICE", "UNITS", "INPUT")
    return render.tell_rows(options, found, rows, head, "no orders of others yet")


def _price_of(request: dict[str, Any]) -> str:
    """Of all its units; nothing where this node had no such offer."""
    total = request.get("pricing/total")
    return "" if total is None else f"{total:,} {request['pricing/currency']}"


async def answer(options: argparse.Namespace, node: NodeClient) -> int:
    if options.output is not None:
        body: dict[str, Any] = {
            "status": "completed",
            "output": _json(options.output, "--output"),
        }
    else:
        status = "failed" if options.failed is not None else "rejected"
        message = options.failed if options.failed is not None else options.rejected
        body = {"status": status, "error": {"code": status, "message": message}}
    found = await node.ask("POST", f"/v1/inbox/{part(options.request)}/answer", body)
    return render.tell(options, found, f"answered {options.request}")


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{what} is not JSON: {error}", code="usage") from None


ACTIONS: dict[tuple[str, str], Asked] = {
    ("offers", ""): offers,
    ("offers", "publish"): publish,
    ("offers", "withdraw"): withdraw,
    ("offers", "show"): offer,
    ("offers", "fetch"): fetch,
    ("offers", "push"): push,
    ("offers", "drop"): drop,
    ("offers", "trusted"): trusted,
    ("offers", "trust"): trust,
    ("offers", "distrust"): distrust,
    ("orders", ""): orders,
    ("orders", "place"): place,
    ("orders", "show"): execution,
    ("orders", "result"): result,
    ("orders", "wait"): wait,
    ("orders", "dispatch"): _act("dispatch"),
    ("orders", "release"): _act("release"),
    ("orders", "accept"): _act("accept"),
    ("orders", "dispute"): _act("dispute"),
    ("orders", "resolve"): _act("resolve"),
    ("orders", "receipt"): receipt,
    ("inbox", ""): inbox,
    ("inbox", "answer"): answer,
}
