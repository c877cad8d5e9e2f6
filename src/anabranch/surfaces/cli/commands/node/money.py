"""`node ledger`: accounts, movements and holds, in minor units."""

from __future__ import annotations

import argparse

from anabranch.errors import InputError
from anabranch.surfaces.cli.commands.node.client import NodeClient, part
from anabranch.surfaces.cli.commands.node.network import Asked
from anabranch.surfaces.cli.output import render


async def account(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"account": options.account}
    found = await node.ask("GET", "/v1/ledger/account", query=query)
    money = f"  {found['unit']} {found['balance']:,}, on hold {found['held']:,}"
    lines = [found["account_id"], money]
    return render.tell(options, found, "\n".join(lines))


async def top_up(options: argparse.Namespace, node: NodeClient) -> int:
    if not options.amount.isascii() or not options.amount.isdigit():
        raise InputError(f"{options.amount!r} is no whole number of minor units", code="usage")
    body = {
        "amount": int(options.amount),
        "account": options.account,
        "idempotency_key": options.key,
    }
    given = {name: value for name, value in body.items() if value is not None}
    found = await node.ask("POST", "/v1/ledger/top-up", given)
    account = found["account"]
    return render.tell(options, found, f"balance {account['balance']:,} {account['unit']}")


async def movements(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"limit": options.limit, "account": options.account}
    found = (await node.ask("GET", "/v1/ledger/movements", query=query))["items"]
    rows = [
        (one["at"], one["kind"], f"{entry['amount']:+,}", entry["account"])
        for one in found
        for entry in one["entries"]
    ]
    head = ("AT", "WHAT", "AMOUNT", "ACCOUNT")
    return render.tell_rows(options, found, rows, head, "nothing has moved yet")


async def accounts(options: argparse.Namespace, node: NodeClient) -> int:
    query = {"limit": options.limit}
    found = (await node.ask("GET", "/v1/ledger/accounts", query=query))["items"]
    rows = [(one["account_id"], f"{one['balance']:,}", f"{one['held']:,}", one["unit"])
            for one in found]  # fmt: skip
    head = ("ACCOUNT", "BALANCE", "ON HOLD", "UNIT")
    return render.tell_rows(options, found, rows, head, "no account has had money yet")


async def hold(options: argparse.Namespace, node: NodeClient) -> int:
    found = await node.ask("GET", f"/v1/ledger/holds/{part(options.hold)}")
    return render.tell(options, found, render.json_text(found))


ACTIONS: dict[tuple[str, str], Asked] = {
    ("ledger", ""): account,
    ("ledger", "top-up"): top_up,
    ("ledger", "movements"): movements,
    ("ledger", "accounts"): accounts,
    ("ledger", "hold"): hold,
}
