"""`security`: what of a server is open, and what of that is risky."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.output import render

RISKY = 1


async def security(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        found = await at.tokens.security()
    render.tell(options, found, "\n".join(_lines(found)))
    return RISKY if found["status"] == "risk" else 0


def _lines(found: Row) -> Iterator[str]:
    yield f"server: {found['place'] or 'none was asked; one with these settings would be so'}"
    cells = [(one["level"], one["topic"], render.clean(one["what"])) for one in found["findings"]]
    for one, row in zip(found["findings"], render.table(cells), strict=True):
        yield row
        if one["level"] == "risk":
            yield f"        why:    {render.clean(one['why'])}"
            yield f"        change: {render.clean(one['change'])}"
    risks = sum(one["level"] == "risk" for one in found["findings"])
    yield f"{risks} at risk" if risks else "nothing is at risk"
