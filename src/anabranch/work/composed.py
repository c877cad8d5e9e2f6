"""The kinds of work that are made of others: pipelines, and the shards of loops.

Each is loaded with its first task, as the standard kinds are: few runs use all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch.kernel.values import Answer
from anabranch.settings import Settings
from anabranch.work.file_policy import policy_of
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.pipeline.services import Services
from anabranch.work.port import Performer, Task

if TYPE_CHECKING:
    from anabranch.kernel.tracker import Shard
    from anabranch.work.loops.collection_reader import CollectionReader
    from anabranch.work.loops.collections.all import Collections
    from anabranch.work.loops.collections.port import Item
    from anabranch.work.loops.results import Loops


class _LazyShards(LazyPerformer):
    """Shards, which may be done in place."""

    def perform_at_once(self, task: Task) -> Answer | None:
        shards: Any = self.made()
        answer: Answer | None = shards.perform_at_once(task)
        return answer


class PipelinePerformers:
    """One per engine. The others are those of `services`."""

    def __init__(self, services: Services, loops: Loops, settings: Settings) -> None:
        self._services = services
        self._loops = loops
        self._settings = settings
        self.performers: dict[str, Performer] = {
            "pipeline": LazyPerformer(self._pipeline),
            "loop.shard": _LazyShards(self._shards),
            "loop.cut": LazyPerformer(self._read_ahead),
        }

    @cached_property
    def _collections(self) -> Collections:
        from anabranch.work.loops.collections.all import Collections
        from anabranch.work.loops.collections.port import CollectionLimits

        chosen = self._settings
        limits = CollectionLimits(
            line_bytes=chosen.collection_line_bytes,
            shard_bytes=chosen.collection_shard_bytes,
            files=policy_of(chosen),
        )
        return Collections(
            payloads=self._services.payloads,
            performers=self._services.performers,
            loops=self._loops,
            limits=limits,
        )

    @cached_property
    def _reader(self) -> CollectionReader:
        from anabranch.work.loops.collection_reader import CollectionReader

        return CollectionReader(self._collections)

    async def read_items(
        self, source: Any, shard: Shard, keyring: Mapping[str, Any]
    ) -> Sequence[Item]:
        """The items of a shard, for who does it elsewhere."""
        return await self._reader.items(source, shard, keyring=keyring)

    def _pipeline(self) -> Performer:
        from anabranch.work.pipeline.pipeline import Pipeline

        return Pipeline(self._services)

    def _shards(self) -> Performer:
        from anabranch.work.loops.shards import Shards

        return Shards(self._services, self._reader)

    def _read_ahead(self) -> Performer:
        from anabranch.work.loops.shards import ReadAhead

        return ReadAhead(self._reader)

    async def close(self) -> None:
        if "_collections" in self.__dict__:  # some loop had one
            await self._collections.close()
