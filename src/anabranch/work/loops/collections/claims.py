"""`{claim: {kind: postgres, command: …, …}}`: rows that a statement takes, frame by frame.

The statement marks rows as taken and returns them (`UPDATE … RETURNING …`); it is executed again
and again until it returns none. Each execution is one frame, and one shard. What it returned is
kept, so a shard that is tried again has the same rows without claiming any.

The statement may use two parameters besides its own: `frame`, the same text when a frame is claimed
again because a crash came between claiming and recording, and `max_rows`. One that also returns
the rows already marked with this frame loses none, though the frame may then be larger:

    UPDATE jobs SET frame = :frame WHERE frame = :frame OR id IN
      (SELECT id FROM jobs WHERE frame IS NULL LIMIT :max_rows) RETURNING id

`auth` is the name of a keychain entry: the descriptor is recorded and must not hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.loops.collections.databases import (
    NAMED,
    ask,
    described,
    kind_of,
    one_statement,
)
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    CollectionLimits,
    Cursor,
    Cuts,
    Descriptor,
    Keyring,
    ShardRange,
    Walked,
)
from anabranch.work.port import Performer
from anabranch.work.sql.text import take_apart
from anabranch.work.values.payloads import PayloadPort, encoded, load, place_of

_OWN = frozenset({"kind", "command", "params", "auth", "timeout", "key", "whole", "owner"})
_SCOPE = "execution"  # a run that goes on with the rest of a loop reads the same rows


class ClaimedItems(Walked):
    def __init__(
        self,
        performers: Mapping[str, Performer],
        payloads: PayloadPort | None,
        limits: CollectionLimits,
    ) -> None:
        self._performers = performers
        self._payloads = payloads
        self._limits = limits

    async def describe(self, value: Any) -> Descriptor:
        given = inputs.mapping(value["claim"], "claim")
        return {
            KIND: "claim",
            **described(given, "claim", _OWN, ("params", "auth", "timeout", "key")),
            "command": await take_apart(given.get("command"), _command, given),
            "owner": inputs.text(given.get("owner", ""), "claim.owner"),
            "whole": inputs.flag(given.get("whole", False), "claim.whole"),
        }

    async def cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int, ring: Keyring
    ) -> Cuts:
        """Claim some frames. Not more than will be begun soon: a claimed row is nobody else's."""
        number = 0 if cursor is None else int(cursor["frame"])
        index = 0 if cursor is None else int(cursor["index"])
        made: list[ShardRange] = []
        while len(made) < max(1, shards // 2):
            rows = await self._claimed(descriptor, number, count, ring)
            if not rows:
                return Cuts(made, None, True)
            length = 1 if descriptor["whole"] else len(rows)
            kept = await self._kept(rows, descriptor["owner"].partition("/")[0])
            made.append(ShardRange({"frame": number, **kept}, index, length))
            number, index = number + 1, index + length
        return Cuts(made, {"frame": number, "index": index}, False)

    async def items(
        self, descriptor: Descriptor, shard: ShardRange, _ring: Keyring
    ) -> list[tuple[str, Any]]:
        cursor = shard.cursor or {}
        if "frame" not in cursor:
            raise CollectionError("claimed rows are read by their cursor")
        rows = cursor.get("rows")
        if rows is None:
            rows = await load(self._payloads, str(cursor["place"]))
        if descriptor["whole"]:
            return [(str(cursor["frame"]), rows)]
        key = descriptor.get("key")
        if key is None:
            return [(f"{cursor['frame']}-{offset}", row) for offset, row in enumerate(rows)]
        if any(row.get(key) is None for row in rows):
            raise CollectionError(f"a claimed row has no {key} to know it by")
        return [(str(row[key]), row) for row in rows]

    # -- claiming ----------------------------------------------------------------------------

    async def _claimed(
        self, descriptor: Descriptor, number: int, count: int, ring: Keyring
    ) -> list[dict[str, Any]]:
        own = {"frame": f"{descriptor['owner']}/{number}", "max_rows": count}
        named = NAMED[descriptor["database"]]
        used = {name: own[name] for name in own if named.format(name) in descriptor["command"]}
        params = {**descriptor.get("params", {}), **used}
        given = {"command": descriptor["command"], "params": params or None}
        return await ask(self._performers, descriptor, given, ring, "the claim")

    async def _kept(self, rows: list[dict[str, Any]], run: str) -> dict[str, Any]:
        content = encoded(rows)
        if self._payloads is None or len(content) <= self._limits.inline_bytes:
            return {"rows": rows}
        return {"place": place_of(await self._payloads.put(content, run, _SCOPE))}


def _command(given: Mapping[str, Any]) -> str:
    statement = one_statement(given.get("command"), "claim.command", kind_of(given, "claim"))
    if statement is None:
        raise InputError("claim.command must be one statement that returns the rows it claims")
    if statement.reads:
        raise InputError(
            "claim.command claims nothing: it only reads, and would return the same rows for ever; "
            "use {sql: {query: …, key: …}}"
        )
    return statement.text
