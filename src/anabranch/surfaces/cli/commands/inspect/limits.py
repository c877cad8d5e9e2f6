"""`limits`: the keys of limits across runs, and the runs under one of them."""

from __future__ import annotations

import argparse
from typing import Any

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.output import render


async def limits(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        if options.key is None:
            found = await at.limits.all()
            return render.tell(options, found, "\n".join(_keys(found)) or "no run has limits")
        shown = await at.limits.show(options.key)
    return render.tell(options, shown, "\n".join(_runs(shown)))


def _keys(found: list[dict[str, Any]]) -> list[str]:
    rows = [
        (render.clean(one["key"]), f"{one['holding']} of {one['limit']}", str(one["waiting"]),
         f"{render.ago(one['waiting_since'])}" if one["waiting_since"] is not None else "-")
        for one in found
    ]  # fmt: skip
    return render.table(rows, ("KEY", "HELD", "WAITING", "LONGEST")) if rows else []


def _runs(shown: dict[str, Any]) -> list[str]:
    waiting = "1 run waits" if shown["waiting"] == 1 else f"{shown['waiting']} runs wait"
    said = f"{shown['holding']} of {shown['limit']} places are held, {waiting}"
    rows = [
        (one["run"], "holds a place" if one["state"] == "holding" else f"waits, {one['place']}.",
         str(one["priority"]),
         f"{render.ago(one['admitted_at'] if one['admitted_at'] is not None else one['asked_at'])}")
        for one in shown["runs"]
    ]  # fmt: skip
    table = render.table(rows, ("RUN", "STATE", "PRIORITY", "FOR"))
    return [f"{render.clean(shown['key'])}: {said}", *table]
