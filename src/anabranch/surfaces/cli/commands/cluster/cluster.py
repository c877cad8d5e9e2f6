"""`cluster`: the servers of a store, its partitions, who owns a run; drain a server and wait."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import ClusterBackend, Row
from anabranch.surfaces.cli.output import render

NOT_DRAINED = 1
LOOK_SECONDS = 0.5  # between two looks at how far a drain is

SERVERS = ("SERVER", "STATE", "PARTITIONS", "LEASE", "URL", "VERSION", "JOINED", "NAME")
PARTITIONS = ("PARTITION", "OWNER", "EPOCH", "NUMBER", "WAITING", "WEBHOOK LAG", "SERVER")


async def cluster(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action or "servers"](options, at.cluster)


async def _servers(options: argparse.Namespace, at: ClusterBackend) -> int:
    found = await at.summary()
    return render.tell(options, found, "\n".join(_summary_lines(found)))


async def _partitions(options: argparse.Namespace, at: ClusterBackend) -> int:
    found = await at.partitions()
    rows = [
        (str(one["partition"]), one["owner"] or "-", str(one["epoch"]), f"{one['number']:,}",
         _waiting(one), f"{one['webhook_lag']:,}", render.clean(one["server"]))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, PARTITIONS, "no partitions")


async def _owner(options: argparse.Namespace, at: ClusterBackend) -> int:
    found = await at.owner(options.run)
    server = found["server"]
    place = f", partition {found['partition']} in epoch {found['epoch']}" if found["shared"] else ""
    if server is None:
        said = "no server owns it now"
    else:
        said = f"owned by {_named(server)}" + ("" if server["alive"] else ", whose lease has ended")
    return render.tell(options, found, f"run {found['run']}{place}: {said}")


async def _drain(options: argparse.Namespace, at: ClusterBackend) -> int:
    if options.undo:
        card = await at.undrain(options.name)
        return render.tell(options, card, f"server {card['id']} takes its share again")
    card = await at.drain(options.name)
    if options.no_wait:
        left = f"{card['partitions']:,} partitions to hand over"
        return render.tell(options, card, f"server {card['id']} drains: {left}")
    try:
        return await _until_drained(options, at, card)
    except asyncio.CancelledError:
        undo = f"`anabranch cluster drain {card['id']} --undo` takes it back"
        print(f"interrupted; server {card['id']} goes on draining: {undo}", file=sys.stderr)
        raise


async def _until_drained(options: argparse.Namespace, at: ClusterBackend, card: Row) -> int:
    progress = _Progress(options)
    while card["partitions"] and card["draining"]:
        found = await at.summary()
        now = {one["id"]: one for one in found["servers"]}.get(card["id"])
        if now is None:
            card = {**card, "partitions": 0, "alive": False, "state": "expired"}
            break
        card = now
        progress.show(card, _others(found["servers"], card["id"]))
        if card["partitions"] and card["draining"]:
            await asyncio.sleep(LOOK_SECONDS)
    progress.end()
    if not card["draining"]:
        said = f"server {card['id']} takes its share again: another command has undone the drain"
        render.tell(options, card, said)
        return NOT_DRAINED
    gone = "" if card["alive"] else " and has left the cluster"
    return render.tell(options, card, f"server {card['id']} owns nothing any more{gone}")


def _others(servers: Sequence[Row], server: str) -> int:
    return sum(one["alive"] and not one["draining"] for one in servers if one["id"] != server)


class _Progress:
    """One line on a terminal that says how many partitions are left; elsewhere the hindrances."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._shown = sys.stderr.isatty() and not options.json
        self._warned = False

    def show(self, card: Row, others: int) -> None:
        if card["partitions"] and not others and not self._warned:
            self._warned = True
            self._say("no other server takes partitions now: the drain waits for one\n")
        if self._shown:
            self._say(f"\r\x1b[2K{card['partitions']:,} partitions left")

    def end(self) -> None:
        if self._shown:
            self._say("\r\x1b[2K")

    @staticmethod
    def _say(text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


# -- words -----------------------------------------------------------------------------------------


def _summary_lines(found: Row) -> list[str]:
    servers = found["servers"]
    if not found["shared"]:
        who = _named(servers[0]) if servers else "none works on it now"
        return [
            f"this store has one server at a time: {who}",
            "several servers share a store on PostgreSQL: see docs/postgres.md",
        ]
    count = f"{len(servers):,} server{'s' if len(servers) != 1 else ''}"
    rows = [_server_row(one) for one in servers]
    return [
        f"{found['partitions']:,} partitions, {count}",
        *render.table(rows, SERVERS if rows else ()),
        *_hindrances(found),
    ]


def _server_row(one: Row) -> tuple[str, ...]:
    lease = max(0, one["lease_left_ms"]) / 1000
    return (
        one["id"],
        one["state"],
        f"{one['partitions']:,}",
        f"{lease:.1f} s",
        render.clean(one["url"]) or "-",
        render.clean(one["version"]),
        render.instant(one["joined_at"]),
        render.clean(one["name"]),
    )


def _hindrances(found: Row) -> list[str]:
    lines = []
    if found["unowned"]:
        lines.append(f"{found['unowned']:,} partitions have no owner with a good lease")
    if found["waiting"]:
        lines.append(f"{_waiting(found)} messages between servers wait for an answer")
    if found["webhook_lag"]:
        lines.append(f"a webhook is {found['webhook_lag']:,} rows behind in one partition")
    return lines


def _waiting(one: Row) -> str:
    """How many, and how long the oldest has waited."""
    if not one["waiting"]:
        return "0"
    age = max(0, int(time.time() * 1000) - one["waiting_since"]) / 1000
    return f"{one['waiting']:,} ({render.duration(age)})"


def _named(server: Row) -> str:
    """For people: the name says process and machine, the id is what verbs take."""
    name, url = render.clean(server["name"]), render.clean(server["url"])
    at = f" at {url}" if url else ""
    return f"{name}{at}" if server["joined_at"] is None else f"{server['id']}, {name}{at}"


ACTIONS = {
    "servers": _servers,
    "partitions": _partitions,
    "owner": _owner,
    "drain": _drain,
}
