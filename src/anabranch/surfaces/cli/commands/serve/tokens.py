"""`token`: make, list and revoke the tokens of a store, or of a server."""

from __future__ import annotations

import argparse
import sys

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.port import Row, TokenBackend
from anabranch.surfaces.cli.output import render

HEAD = ("ID", "NAME", "SCOPES", "POOLS", "STATE", "MADE", "EXPIRES", "LAST USED")


async def token(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action](options, at.tokens)


async def _create(options: argparse.Namespace, tokens: TokenBackend) -> int:
    name = options.name or who(options)
    made = await tokens.create(name, options.scope, options.days, options.pool)
    if options.json:
        print(render.json_line(made))
        return 0
    print(made["token"])
    scopes = ", ".join(made["scopes"])
    pools = f", for {_pools(made)}" if made.get("pools") else ""
    told = f"token {made['id']} of {made['name']} ({scopes}{pools}); it is shown only once"
    print(told, file=sys.stderr)
    return 0


async def _list(options: argparse.Namespace, tokens: TokenBackend) -> int:
    rows = await tokens.all()
    cells = [
        (row["id"], row["name"], ",".join(row["scopes"]), _pools(row), row["state"],
         _instant(row["created_at"]), _instant(row["expires_at"]), _instant(row["last_used_at"]))
        for row in rows
    ]  # fmt: skip
    return render.tell_rows(options, rows, cells, HEAD, "no tokens")


async def _revoke(options: argparse.Namespace, tokens: TokenBackend) -> int:
    row = await tokens.revoke(options.token_id)
    return render.tell(options, row, f"revoked: {row['id']} of {row['name']}")


def _pools(row: Row) -> str:
    return ",".join(row.get("pools") or ()) or "all" if "work" in row["scopes"] else "-"


def _instant(at: int | None) -> str:
    return render.instant(at) if at else "-"


ACTIONS = {"create": _create, "list": _list, "revoke": _revoke}
