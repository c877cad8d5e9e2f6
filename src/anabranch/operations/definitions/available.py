"""What an engine of given settings has for its runs, as far as settings say it."""

from __future__ import annotations

from collections.abc import Collection

from anabranch.operations.definitions.preflight import Available
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.settings import Settings
from anabranch.work.file_policy import policy_of
from anabranch.work.from_settings import own_variables
from anabranch.work.kinds.buckets.places import EXTRA, installed
from anabranch.work.kinds.switched_off import STANDARD_KINDS, SWITCHABLE_KINDS, switched_off

#: The kinds of work that every engine has, beside registered tools.
ENGINE_KINDS = (
    *STANDARD_KINDS,
    *("pipeline", "loop.shard", "loop.cut", "playbook", "rule"),
    *("targets", "dispatch", "request", "capability"),
)


def available_in(
    settings: Settings,
    kinds: Collection[str],
    *,
    workers: bool,
    clusters: Collection[str] = (),
    unasking: Collection[str] = (),
    participants: bool = False,
    book: str = "",
) -> Available:
    """What an engine of these settings has, with these kinds of work. `clusters` are the pools that
    one does, `unasking` those of them whose work cannot ask the engine; `participants` and their
    `book` may be given by a program."""
    return Available(
        kinds=kinds,
        extras=frozenset({EXTRA} if installed() else ()),
        off=switched_off(settings.no_inline, SWITCHABLE_KINDS),
        outside=PoolQueues(settings.pools_here).outside,
        workers=workers,
        clusters=frozenset(clusters),
        unasking=frozenset(unasking),
        participants=participants or bool(settings.participants),
        chain=bool(settings.chain_url),
        book=book or settings.participants,
        node=_shown_node(settings.chain_url),
        files=policy_of(settings),
        own=own_variables(settings),
    )


def _shown_node(url: str) -> str:
    if not url:
        return ""
    from anabranch.work.chain.wiring import shown_node  # few have a chain

    return shown_node(url)
