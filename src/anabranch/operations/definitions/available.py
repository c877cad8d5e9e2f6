"""What an engine of given settings has for its runs, as far as settings say it."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.operations.definitions.preflight import Available
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.settings import Settings
from anabranch.work.kinds.buckets.buckets import EXTRA, installed
from anabranch.work.kinds.switched_off import STANDARD_KINDS, SWITCHABLE_KINDS, switched_off

#: The kinds of work that every engine has, beside registered tools.
ENGINE_KINDS = (
    *STANDARD_KINDS,
    *("pipeline", "loop.shard", "loop.cut", "playbook", "rule"),
    *("targets", "dispatch", "request", "capability"),
)


def available_in(settings: Settings, kinds: Collection[str], *, workers: bool) -> Available:
    """What an engine of these settings has, with these kinds of work."""
    return Available(
        kinds=kinds,
        extras=frozenset({EXTRA} if installed() else ()),
        off=switched_off(settings.no_inline, SWITCHABLE_KINDS),
        outside=PoolQueues(settings.pools_here).outside,
        workers=workers,
        participants=bool(settings.participants),
        chain=bool(settings.chain_url),
        book=settings.participants,
        node=_shown_node(settings.chain_url),
    )


def _shown_node(url: str) -> str:
    if not url:
        return ""
    from anabranch.work.chain.wiring import shown_node  # few have a chain

    return shown_node(url)
