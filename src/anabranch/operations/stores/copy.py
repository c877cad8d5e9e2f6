"""One store copied to another: everything in it, compared row by row, and every log replayed.

    source ──rows──▶ target ──compared with the source──▶ checked ──▶ a store

Both are opened so that nothing else can change them. The target is no store before all of this is
done; what interrupts it leaves a target that the same command goes on with. Webhooks go on where
they were: what one of them has not seen, and could not be told apart in the target, is found here
and waits there as a delivery (see `store.relational.plan`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import msgspec

from anabranch.errors import InputError, StoreError
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.stores.check import Progress, StoreReport, check_store
from anabranch.operations.stores.files import files_beside
from anabranch.operations.stores.opening import inspect_store, require_driver, require_kept
from anabranch.operations.webhooks.matcher import WebhookMatcher
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.access_ports import AuditEntry
from anabranch.store.factory import open_store
from anabranch.store.hook_ports import Hook, WebhookDelivery
from anabranch.store.location import on_postgres, shown
from anabranch.store.ports import Store
from anabranch.store.relational.comparison import Compared, compare
from anabranch.store.relational.plan import Range, unseen
from anabranch.store.relational.transfer import Source, Target, Transfer

ROWS_AT_ONCE = 500
DIFFERS = "copy_differs"
_LISTED = 20  # differences in one message


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    rows: int
    sha256: str  # of all its rows, in the order of their key: the same on both sides


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    resumed: bool  # it went on with what an earlier one had begun
    tables: list[CopiedTable]
    notifications: int  # found for webhooks on the way
    check: StoreReport  # of the target
    notes: list[str]


def copy_store(
    settings: Settings,
    source: str,
    target: str,
    progress: Progress,
    audit: Callable[[str], AuditEntry] | None = None,
) -> TargetReport:
    """`settings` say what a new store gets, and with which key its secrets are opened. The line
    for its audit trail, which names the source, is in the commit that makes it a store."""
    _require_two(source, target)
    with closing(_open_source(source)) as here:
        if on_postgres(target):
            here.require_no_node(shown(target))
        with closing(_open_target(target, here.shown, settings)) as there:
            transfer = Transfer(here, there, progress)
            resumed = transfer.begin()
            tables = _copied(transfer, here, there, progress)
            found = _caught_up(settings, source, here, there)
            checked = _checked(replace(settings, store=target), progress)
            _require_placed(there, checked)
            with there.transaction():
                if audit is not None:
                    there.put_audit(msgspec.structs.asdict(audit(here.shown)))
                there.drop_mark()
        return TargetReport(
            source=here.shown,
            target=there.shown,
            resumed=resumed,
            tables=tables,
            notifications=found,
            check=checked,
            notes=[*checked.notes, *_left_behind(settings, source, target)],
        )


def _require_two(source: str, target: str) -> None:
    for one in (source, target):
        require_kept(one)
    if _same(source) == _same(target):
        raise InputError(f"{shown(source)} and {shown(target)} are the same store", code="usage")


def _same(store: str) -> str:
    """Equal for two names of one store."""
    if not on_postgres(store):
        return os.path.realpath(store)
    require_driver()
    from anabranch.store.postgres.address import identity_of, read_address

    return identity_of(read_address(store))


def _open_source(store: str) -> Source:
    if on_postgres(store):
        from anabranch.store.postgres.transfer import PostgresSource

        return PostgresSource(store)
    from anabranch.store.sqlite.transfer import SqliteSource

    return SqliteSource(store)


def _open_target(store: str, source: str, settings: Settings) -> Target:
    if on_postgres(store):
        from anabranch.store.postgres.transfer import PostgresTarget

        return PostgresTarget(store, source, settings.store_partitions or None)
    from anabranch.store.sqlite.transfer import SqliteTarget

    return SqliteTarget(store, source)


# -- rows ------------------------------------------------------------------------------------


def _copied(
    transfer: Transfer, source: Source, target: Target, progress: Progress
) -> list[CopiedTable]:
    """Copied and compared, or known to be from an earlier attempt."""
    said = target.said("compared")
    if said is not None:
        return msgspec.json.decode(said, type=list[CopiedTable])
    transfer.copy_rows()
    compared = list(_compared(transfer, source, target, progress))
    if not all(one.same for one in compared):
        raise _different(source, target, compared)
    tables = [CopiedTable(table=one.table, rows=one.rows, sha256=one.sha256) for one in compared]
    with target.transaction():
        target.say("compared", msgspec.json.encode(tables).decode())
    return tables


def _compared(
    transfer: Transfer, source: Source, target: Target, progress: Progress
) -> Iterator[Compared]:
    done, total = 0, sum(transfer.counts.values())

    def tick() -> None:
        nonlocal done
        done += 1
        progress("of all rows compared", min(done, total), total)

    for table in transfer.tables:
        yield compare(source, target, table, tick)


def _different(source: Source, target: Target, compared: list[Compared]) -> StoreError:
    listed = [str(one) for table in compared for one in table.differences]
    more = len(listed) - _LISTED + sum(table.not_listed for table in compared)
    said = "; ".join(listed[:_LISTED]) + (f"; and {more:,} more" if more > 0 else "")
    return StoreError(
        f"the copy at {target.shown} is not what {source.shown} holds: {said}. Remove the copy, "
        "and copy again",
        code=DIFFERS,
    )


# -- webhooks --------------------------------------------------------------------------------


def _caught_up(settings: Settings, store: str, source: Source, target: Target) -> int:
    """Look at what webhooks have not seen and their cursors in the target say they have."""
    keeps = source.partitions == target.partitions
    rest = unseen(source.cursors(), source.ends(), keeps=keeps)
    if not rest:
        return 0
    found = 0
    # The number of partitions that the settings may ask for is that of the target.
    settings = replace(settings, store=store, store_partitions=0)
    with closing(open_store(settings, read_only=True)) as read:
        matcher = WebhookMatcher(read, Nets(read, compiler()), settings.webhook_body_bytes)
        for hook_id, ranges in rest.items():
            hook = read.hook(hook_id)
            for within in ranges if hook is not None else ():
                assert hook is not None
                for deliveries in _looked_through(read, matcher, hook, within):
                    with target.transaction():
                        for one in deliveries:
                            target.put_delivery(msgspec.structs.asdict(one))
                    found += len(deliveries)
    return found


def _looked_through(
    store: Store, matcher: WebhookMatcher, hook: Hook, within: Range
) -> Iterator[list[WebhookDelivery]]:
    at, now = within.after, int(time.time() * 1000)
    while at < within.upto:
        page = store.feed(at, ROWS_AT_ONCE, within.partition)
        entries = [entry for entry in page if entry.position <= within.upto]
        if not entries:
            return
        found, at = matcher.find(hook, entries, now)
        yield found


# -- the end ---------------------------------------------------------------------------------


def _checked(settings: Settings, progress: Progress) -> StoreReport:
    def told(what: str, done: int, total: int) -> None:
        progress(f"of the check: {what}", done, total)

    with inspect_store(settings, unfinished=True) as inspection:
        return check_store(inspection, compiler(), told, key_of(inspection, settings))


def _require_placed(target: Target, checked: StoreReport) -> None:
    """What else is wrong was wrong in the source. A row in a wrong partition would be moved by a
    server that does not own its run, so this is no store."""
    wrong = [one for one in checked.problems if one.part == "partition"]
    if wrong:
        listed = [f"run {one.run}: {one.message}" if one.run else one.message for one in wrong]
        more = f"; and {len(wrong) - _LISTED:,} more" if len(wrong) > _LISTED else ""
        raise StoreError(
            f"the copy at {target.shown} cannot be used, its partitions are wrong: "
            f"{'; '.join(listed[:_LISTED])}{more}. Check the source with `anabranch store check`, "
            "remove the copy, and copy again",
            code=DIFFERS,
        )


def _left_behind(settings: Settings, source: str, target: str) -> list[str]:
    """Files that belong to the source and are not in it."""
    if on_postgres(source):
        return []
    where = "name it in the settings of every server" if on_postgres(target) else "copy it too"
    return [
        f"{file}, {purpose}, is not part of the copy: {where}"
        for file, purpose in files_beside(source, settings).items()
        if file.exists()
    ]
