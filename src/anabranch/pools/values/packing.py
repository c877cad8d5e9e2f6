"""Claimed jobs on their way to the cluster, and outcomes on their way back: the dispatcher's side.

    names(shared) ─▶ pack(job) ─▶ … ─▶ take(outcome)        ticket over: over(ticket)
                          ▲─────────── lacks(missing)

A job goes out with the parts that processes of the cluster may lack. With `values=cluster` its
large values are such parts, and those of its result come back with the outcome; with a folder they
are copied there before the job leaves, once, and taken from there. With `values=server` the work
asks for them itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.errors import InputError, NotFound
from anabranch.operations.workers.job_data import JobData
from anabranch.operations.workers.leases import LeaseClaim
from anabranch.pools.answers import JobAnswer, heard
from anabranch.pools.assignment import (
    Assignment,
    Missing,
    Outcome,
    Progress,
    SealedBlob,
    Tools,
    ValuesPlace,
    encode_assignment,
)
from anabranch.pools.parts import PartsKnown
from anabranch.pools.values.folder import FolderError, ValuesFolder
from anabranch.runtime.jobs.wire import ClaimedJob, refs_in, refs_of
from anabranch.version import __version__
from anabranch.work.values.payloads import encoded, hash_of

log = logging.getLogger("anabranch.pools")

DEFINITIONS_KEPT = 100
SIZES_KEPT = 10_000
SWEEP_SECONDS = 3600.0  # between two sweeps of the folder
NAME_MAX = 1000  # letters of a process
PARTS_MAX = 10_000  # that a process asks for at once
HASH_LETTERS = 64


class Part(NamedTuple):
    sha256: str
    content: bytes


class NamesPart(NamedTuple):
    """What all jobs of a run can see at an instant, and the hashes of the large values in it."""

    part: Part
    refs: frozenset[str]


class JobPacker:
    """One per pool. Raises `InputError` for a folder that cannot be used."""

    def __init__(
        self,
        supply: JobData,
        place: ValuesPlace,
        *,
        tools: Sequence[Tools] = (),
        settings: Mapping[str, Any] | None = None,
        known: PartsKnown | None = None,
    ) -> None:
        """`settings` are those to send (`entry.settings`)."""
        self._supply = supply
        self._place = place
        self._tools = list(tools)
        self._settings = dict(settings or {})
        self._known = known or PartsKnown()
        folder = place.mode == "folder"
        self._folder = ValuesFolder(place.url, supply.bytes_max) if folder else None
        self._definitions: OrderedDict[str, Part] = OrderedDict()  # by fingerprint
        self._sizes: OrderedDict[str, int] = OrderedDict()  # of large values, by hash
        self._needs: dict[str, frozenset[str]] = {}  # of tickets that are out

    @property
    def lists_travel(self) -> bool:
        """Whether jobs are to be claimed with the items of lists: where the work cannot ask for
        them, each shard takes its own along."""
        return self._place.mode != "server"

    # -- out ---------------------------------------------------------------------------------

    def names(self, shared: Mapping[str, Any]) -> NamesPart:
        """The names of a run, for all of its jobs of one claim."""
        content = encoded(shared)
        return NamesPart(Part(hash_of(content), content), frozenset(refs_in(shared)))

    async def pack(
        self,
        ticket: str,
        out: LeaseClaim,
        leased: ClaimedJob,
        names: NamesPart,
        asked: Collection[str] = (),
    ) -> SealedBlob:
        """The bytes for the cluster. `asked` are parts that a process has asked for. Raises
        `Refused` or `NotFound` where the job is no longer out, `FolderError` where the folder
        cannot be written."""
        definition = await self._definition(out, leased.definition)
        values = await self._values(out, leased, names)
        content = {definition.sha256: definition.content, names.part.sha256: names.part.content}
        sizes = {sha256: len(one) for sha256, one in content.items()}
        if self._folder is None:
            sizes |= values
        else:
            await self._copy(out, values, asked)
        parts = {}
        for sha256 in self._known.choose(ticket, sizes, asked):
            found = content.get(sha256)
            parts[sha256] = found if found is not None else await self._supply.payload(out, sha256)
        self._needs[ticket] = frozenset(values)
        return encode_assignment(
            Assignment(
                ticket=ticket,
                job=leased,
                worker=out.worker,
                definition=definition.sha256,
                names=names.part.sha256,
                values=self._place,
                needs=list(values),
                tools=self._tools,
                settings=self._settings,
                parts=parts,
                version=__version__,
            )
        )

    async def _definition(self, out: LeaseClaim, fingerprint: str) -> Part:
        known = self._definitions.pop(fingerprint, None)
        if known is None:
            content = encoded(await self._supply.definition(out))
            known = Part(hash_of(content), content)
        self._definitions[fingerprint] = known
        while len(self._definitions) > DEFINITIONS_KEPT:
            self._definitions.popitem(last=False)
        return known

    async def _values(
        self, out: LeaseClaim, leased: ClaimedJob, names: NamesPart
    ) -> dict[str, int]:
        """The large values that the job needs, with their sizes. One that is gone is left out: the
        work fails if it looks at it, and only then."""
        if self._place.mode == "server":
            return {}
        found = {}
        for sha256 in sorted(refs_of(leased, {}) | names.refs):
            try:
                found[sha256] = await self._size(out, sha256)
            except NotFound as error:
                if error.code != "payload_gone":
                    raise
        return found

    async def _size(self, out: LeaseClaim, sha256: str) -> int:
        size = self._sizes.pop(sha256, None)
        if size is None:
            size = len(await self._supply.payload(out, sha256))
        self._sizes[sha256] = size
        while len(self._sizes) > SIZES_KEPT:
            self._sizes.popitem(last=False)
        return size

    async def _copy(self, out: LeaseClaim, values: Collection[str], asked: Collection[str]) -> None:
        assert self._folder is not None
        for sha256 in values:
            if sha256 in asked:
                await self._folder.mend(await self._supply.payload(out, sha256))
            elif not await self._folder.use(sha256):
                await self._folder.put(await self._supply.payload(out, sha256))

    # -- back --------------------------------------------------------------------------------

    async def take(self, out: LeaseClaim, said: Outcome) -> JobAnswer:
        """What to report of the job; the large values of its result are in the store by then.
        Raises `InputError` for an outcome that is none of `worker_entry`, `FolderError` where a
        value is not in the folder, `Refused` or `NotFound` where the job is no longer out."""
        self._known.heard(said.process[:NAME_MAX], had=said.had)
        await self._keep(out, said.parts, said.put)
        return heard(said.verb, said.body)

    async def take_progress(self, out: LeaseClaim, said: Progress) -> dict[str, Any]:
        """The progress as a worker tells it; a checkpoint that is large is in the store by then."""
        await self._keep(out, said.parts, said.put)
        return said.progress

    def lacks(self, said: Missing) -> list[str]:
        """The parts to pack the job with once more: `asked`. What no part is called is not kept."""
        asked = [one for one in said.parts[:PARTS_MAX] if len(one) == HASH_LETTERS]
        self._known.heard(said.process[:NAME_MAX], lacks=asked)
        return asked

    def over(self, ticket: str) -> None:
        """The cluster no longer has it."""
        self._known.over(ticket)
        self._needs.pop(ticket, None)

    def forget(self) -> None:
        """Contact was lost: another cluster may be at the address, and nothing is out."""
        self._known.forget()
        self._needs.clear()

    async def keep_swept(self) -> None:
        """Sweep the folder now and then, for as long as the engine lives."""
        while self._folder is not None:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
            except FolderError as error:  # the next job says so
                log.debug("%s", error)

    async def sweep(self) -> int:
        """Remove from the folder what was not used for a day and no ticket of this engine needs;
        returns how many files that are."""
        if self._folder is None:
            return 0
        return await self._folder.sweep(frozenset().union(*self._needs.values()))

    async def _keep(self, out: LeaseClaim, parts: Mapping[str, bytes], put: Sequence[str]) -> None:
        for sha256, content in parts.items():
            if hash_of(content) != sha256:
                raise InputError(
                    f"the value {sha256:.12} was damaged on its way from the cluster",
                    code="checksum",
                )
            await self._supply.put_payload(out, content)
        for sha256 in put:
            assert self._folder is not None, "only work with a folder puts something there"
            found = await self._folder.get(sha256)
            if found is None:
                raise FolderError(f"the value {sha256:.12} of a result is not in the shared folder")
            await self._supply.put_payload(out, found)
