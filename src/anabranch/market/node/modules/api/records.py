"""The module store: records of a module by kind and id, kept by the host.

`state/module-store/{base64url(module·kind·id)}` holds every version; a deletion is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.listing import collected
from anabranch.market.node.modules.api.words import encoded, is_name, stream_key
from anabranch.market.node.paging import cursor_of, read_cursor
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


RECORDS: Family[StoredRecord] = Family(
    "module-store",
    StoredRecord,
    RecordWritten,
    _evolve,
    group=lambda state: "" if state.deleted else state.module_id,
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
    def __init__(self, entities: Entities) -> None:
        self._entities = entities

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
        rows = await collected(
            self._entities,
            RECORDS,
            min(limit, LIST_MAX),
            group=call.caller.module,
            before=None if wanted.before is None else read_cursor(wanted.before),
            keep=lambda record: _fits(record, wanted),
        )
        shown = _within(rows, LIST_BYTES)
        more = {"next": cursor_of(rows[shown - 1][2])} if shown < len(rows) else {}
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
                ),
            )
        await self._entities.durable()
        return _answer("deleted")

    def _find(self, thing: str) -> StoredRecord | None:
        record = self._entities.get(RECORDS, thing)
        return None if record is None or record.deleted else record

    def _thing(self, call: Call, wanted: PutRecord | GetRecord | DeleteRecord) -> str:
        for name in ("record_kind", "record_id"):
            if not is_name(getattr(wanted, name)):
                raise _invalid(f"{name} is 1 to 256 printable characters without ·")
        return stream_key(call.caller.module, wanted.record_kind, wanted.record_id)


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
