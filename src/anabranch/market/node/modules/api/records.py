"""The module store: records of a module by kind and id, kept by the host.

`state/module-store/{base64url(module·kind·id)}` holds the newest version; a deletion is a tombstone
for a day. Modules keep there what strangers ask of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.listing import collected_of_some
from anabranch.market.node.modules.api.words import encoded, is_name, stream_key
from anabranch.market.node.paging import cursor_of, read_cursor
from anabranch.market.passports import instant
from anabranch.store.stream_ports import StreamCard
from anabranch.work.participants.performers import rfc3339

PAYLOAD_BYTES = 1024 * 1024
LIST_MAX = 500
LIST_BYTES = 8 * 1024 * 1024  # of the payloads in one answer; the rest is asked for with `before`


class RecordWritten(
    msgspec.Struct, frozen=True, tag_field="type", tag="daemon/module-store-record.v1"
):
    module_id: str
    record_kind: str
    record_id: str
    at: int
    payload: Any = None
    owner_participant_id: str = ""
    deleted: bool = False
    created_at: int = 0  # of the record; 0 in those of a version that kept all of them


class StoredRecord(msgspec.Struct, frozen=True):
    module_id: str
    record_kind: str
    record_id: str
    payload: Any
    owner_participant_id: str
    created_at: int
    updated_at: int
    deleted: bool = False


def _evolve(state: StoredRecord | None, event: RecordWritten) -> StoredRecord:
    created = event.created_at
    if not created:
        created = event.at if state is None or state.deleted else state.created_at
    return StoredRecord(
        module_id=event.module_id,
        record_kind=event.record_kind,
        record_id=event.record_id,
        payload=event.payload,
        owner_participant_id=event.owner_participant_id,
        created_at=created,
        updated_at=event.at,
        deleted=event.deleted,
    )


DELETED = ""  # the group of tombstones

RECORDS: Family[StoredRecord] = Family(
    "module-store",
    StoredRecord,
    RecordWritten,
    _evolve,
    group=lambda state: DELETED if state.deleted else state.module_id,
    begins_anew=lambda event: event.created_at > 0,
)


class PutRecord(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["module_store_put"]
    record_kind: str
    record_id: str
    payload: Any
    owner_participant_id: str | None = None


class GetRecord(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["module_store_get"]
    record_kind: str
    record_id: str


class ListRecords(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["module_store_list"]
    record_kind: str | None = None
    owner_participant_id: str | None = None
    limit: int | None = None
    before: str | None = None  # the `next` of an answer before
    created_before: str | None = None  # an instant


class DeleteRecord(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["module_store_delete"]
    record_kind: str
    record_id: str


_KEY = {"schema_version": "v1", "record_kind": "workflow-template", "record_id": "weekly.v1"}
_EXAMPLES: dict[str, dict[str, Any]] = {
    "put": {**_KEY, "capability_id": "module_store_put", "payload": {"label": "Weekly"}},
    "get": {**_KEY, "capability_id": "module_store_get"},
    "list": {"schema_version": "v1", "capability_id": "module_store_list", "limit": 20},
    "delete": {**_KEY, "capability_id": "module_store_delete"},
}


class ModuleRecords:
    def __init__(self, entities: Entities, deleted: Callable[[], None] = lambda: None) -> None:
        """`deleted` is told that there is one tombstone more."""
        self._entities = entities
        self._deleted = deleted

    def endpoints(self) -> list[Endpoint]:
        wanted: list[tuple[str, Any, Any, str, str]] = [
            ("put", PutRecord, self._put, "Keep a record.", "rejected_invalid_record"),
            ("get", GetRecord, self._get, "Find a record.", "rejected_invalid_record"),
            ("list", ListRecords, self._list, "Newest first.", "rejected_invalid_query"),
            ("delete", DeleteRecord, self._delete, "Leave a tombstone.", "rejected_invalid_record"),
        ]  # fmt: skip
        return [
            Endpoint(
                method="POST",
                path=f"/v1/module/store/records/{verb}",
                scopes=("module",),
                handler=handler,
                summary=summary,
                body=body,
                misfit={"outcome": outcome},
                example=_EXAMPLES[verb],
                errors=(400, 413) if verb == "put" else (400,),
            )
            for verb, body, handler, summary, outcome in wanted
        ]

    async def _put(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, PutRecord)
        thing = self._thing(call, wanted)
        owner = wanted.owner_participant_id or ""
        if owner and not is_name(owner):
            raise _invalid("owner_participant_id is at most 256 printable characters")
        if len(encoded(wanted.payload)) > PAYLOAD_BYTES:
            raise NodeError(
                413,
                "too_large",
                f"payload has at most {PAYLOAD_BYTES:,} bytes",
                more={"outcome": "rejected_other"},
            )
        with self._entities.change() as change:
            before = change.get(RECORDS, thing)
            is_new = before is None or before.deleted
            record = change.add(
                RECORDS,
                thing,
                RecordWritten(
                    module_id=call.caller.module,
                    record_kind=wanted.record_kind,
                    record_id=wanted.record_id,
                    at=change.now,
                    payload=wanted.payload,
                    owner_participant_id=owner,
                    created_at=change.now if before is None or is_new else before.created_at,
                ),
            )
        await self._entities.durable()
        return _answer("stored", record=_view(record))

    async def _get(self, call: Call) -> Answer:
        record = self._find(self._thing(call, msgspec.convert(call.body, GetRecord)))
        await self._entities.durable()
        return _answer("missing") if record is None else _answer("found", record=_view(record))

    async def _list(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, ListRecords)
        limit = LIST_MAX if wanted.limit is None else wanted.limit
        if limit < 1:
            raise _invalid("limit is at least 1", "rejected_invalid_query")
        rows, left_at = await collected_of_some(
            self._entities,
            RECORDS,
            min(limit, LIST_MAX),
            group=call.caller.module,
            before=_place(wanted),
            keep=lambda record: _fits(record, wanted),
        )
        shown = _within(rows, LIST_BYTES)
        if shown < len(rows):
            left_at = rows[shown - 1][2]
        elif len(rows) == limit:
            left_at = None  # there are as many as were asked for
        more = {} if left_at is None else {"next": cursor_of(left_at)}
        records = [_view(record) for _, record, _ in rows[:shown]]
        return _answer("listed", records=records, **more)

    async def _delete(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, DeleteRecord)
        thing = self._thing(call, wanted)
        record = self._find(thing)
        if record is None:
            await self._entities.durable()
            return _answer("missing")
        with self._entities.change() as change:
            change.add(
                RECORDS,
                thing,
                RecordWritten(
                    module_id=record.module_id,
                    record_kind=record.record_kind,
                    record_id=record.record_id,
                    at=change.now,
                    deleted=True,
                    created_at=record.created_at,
                ),
            )
        await self._entities.durable()
        self._deleted()
        return _answer("deleted")

    def _find(self, thing: str) -> StoredRecord | None:
        record = self._entities.get(RECORDS, thing)
        return None if record is None or record.deleted else record

    def _thing(self, call: Call, wanted: PutRecord | GetRecord | DeleteRecord) -> str:
        for name in ("record_kind", "record_id"):
            if not is_name(getattr(wanted, name)):
                raise _invalid(f"{name} is 1 to 256 printable characters without ·")
        return stream_key(call.caller.module, wanted.record_kind, wanted.record_id)


def _place(wanted: ListRecords) -> tuple[int, str] | None:
    """Where the list begins. Raises `NodeError`."""
    places: list[tuple[int, str]] = []
    if wanted.before is not None:
        places.append(read_cursor(wanted.before))
    if wanted.created_before is not None:
        try:
            places.append((instant(wanted.created_before, "created_before"), ""))
        except InputError as error:
            raise _invalid(error.message, "rejected_invalid_query") from None
    return min(places, default=None)


def _fits(record: StoredRecord, wanted: ListRecords) -> bool:
    return wanted.record_kind in (None, record.record_kind) and wanted.owner_participant_id in (
        None,
        record.owner_participant_id,
    )


def _within(rows: Sequence[tuple[str, StoredRecord, StreamCard]], most: int) -> int:
    """How many of the first rows fit; at least one."""
    size = 0
    for number, (_, record, _) in enumerate(rows):
        size += len(encoded(record.payload))
        if size > most and number:
            return number
    return len(rows)


def _view(record: StoredRecord) -> dict[str, Any]:
    view = {
        "record_kind": record.record_kind,
        "record_id": record.record_id,
        "payload": record.payload,
        "created_at": rfc3339(record.created_at),
        "updated_at": rfc3339(record.updated_at),
    }
    if record.owner_participant_id:
        view["owner_participant_id"] = record.owner_participant_id
    return view


def _answer(outcome: str, **more: Any) -> Answer:
    return Answer(body={"schema_version": "v1", "outcome": outcome, **more})


def _invalid(message: str, outcome: str = "rejected_invalid_record") -> NodeError:
    return NodeError(400, "schema", message, more={"outcome": outcome})
