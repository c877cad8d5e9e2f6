"""Calls of a module to its host, and their answers: notify, artifacts, the module store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import exactly_one, needs, when
from anabranch.market.documents.shapes import (
    ANYTHING,
    FLAG,
    INSTANT,
    NAME,
    Constant,
    Fields,
    ListOf,
    Object,
    OrNull,
    Rule,
    Shape,
    Text,
    Whole,
    choice,
)
from anabranch.market.documents.values import BASE64, CALL_VERSION, CORRELATION, DIGEST, PARTICIPANT

_KEY = Text(most=256)


def _call(
    capability: str,
    required: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
    rules: tuple[Rule, ...] = (),
) -> Fields:
    head: Mapping[str, Shape] = {
        "schema_version": CALL_VERSION,
        "capability_id": Constant(capability),
    }
    return Fields({**head, **required}, optional or {}, rules=rules)


# -- notify ----------------------------------------------------------------------------------

NOTIFY = _call(
    "notify_emit",
    {
        "level": choice("info", "warning", "error"),
        "title": Text(most=240),
        "body": Text(least=0, most=4096),
    },
    {"correlation_id": OrNull(CORRELATION), "idempotency_key": OrNull(_KEY)},
)

NOTIFY_ANSWER = Fields(
    {"outcome": choice("emitted", "already_emitted", "rejected_invalid_request", "rejected_other")},
    {"notification_id": OrNull(NAME)},
)

# -- artifacts -------------------------------------------------------------------------------


class RelativePath:
    """A path below the folder of the module: nothing absolute, nothing that leads out."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write a relative path")
        elif not is_relative(value):
            message = (
                f"{shown(value)} leaves the folder of the module; write one such as out/a.json"
            )
            found.add(path, "bad-path", message)

    def words(self) -> str:
        return "relative path"


def is_relative(path: str) -> bool:
    parts = path.split("/")
    plain = path.isprintable() and "\\" not in path and 0 < len(path) <= 1024
    return plain and not any(part in ("", ".", "..") for part in parts) and ":" not in parts[0]


ARTIFACT_WRITE = _call(
    "artifact_write",
    {"path": RelativePath(), "content_type": NAME},
    {
        "bytes_base64": BASE64,
        "json": ANYTHING,
        "overwrite": FLAG,
        "idempotency_key": OrNull(_KEY),
    },
    rules=(exactly_one("bytes_base64", "json"),),
)

ARTIFACT_READ = _call("artifact_read", {"path": RelativePath()})


def _written(answer: Object, path: str, found: Found) -> None:
    because = f"outcome {answer['outcome']}"
    needs(answer, path, found, ("artifact_id", "path", "digest", "size_bytes"), because)


ARTIFACT_ANSWER = Fields(
    {
        "outcome": choice(
            "written", "already_present", "rejected_path", "rejected_conflict", "rejected_other"
        )
    },
    {
        "artifact_id": OrNull(NAME),
        "path": OrNull(NAME),
        "digest": OrNull(DIGEST),
        "size_bytes": OrNull(Whole(0)),
    },
    rules=(when("outcome", "written", _written), when("outcome", "already_present", _written)),
)


def _read(answer: Object, path: str, found: Found) -> None:
    keys = ("artifact_id", "path", "digest", "size_bytes", "bytes_base64")
    needs(answer, path, found, keys, "outcome found")


ARTIFACT_READ_ANSWER = Fields(
    {"outcome": choice("found", "missing", "rejected_path", "rejected_other")},
    {
        "artifact_id": OrNull(NAME),
        "path": OrNull(NAME),
        "content_type": OrNull(NAME),
        "digest": OrNull(DIGEST),
        "size_bytes": OrNull(Whole(0)),
        "bytes_base64": OrNull(BASE64),
    },
    rules=(when("outcome", "found", _read),),
)

# -- module store ----------------------------------------------------------------------------

_RECORD: Mapping[str, Shape] = {"record_kind": NAME, "record_id": NAME}
_OWNER: Mapping[str, Shape] = {"owner_participant_id": OrNull(PARTICIPANT)}

STORE_PUT = _call("module_store_put", {**_RECORD, "payload": ANYTHING}, _OWNER)
STORE_GET = _call("module_store_get", _RECORD, _OWNER)
STORE_LIST = _call(
    "module_store_list",
    {},
    {
        "record_kind": OrNull(NAME),
        **_OWNER,
        "limit": OrNull(Whole(1)),
        "before": OrNull(Text(most=4096)),
    },
)
STORE_DELETE = _call("module_store_delete", _RECORD, _OWNER)

STORE_RECORD = Fields(
    {**_RECORD, "payload": ANYTHING, "created_at": INSTANT, "updated_at": INSTANT}, _OWNER
)


def _found_needs_record(answer: Object, path: str, found: Found) -> None:
    needs(answer, path, found, ("record",), "outcome found")


def _listed_needs_records(answer: Object, path: str, found: Found) -> None:
    if not isinstance(answer.get("records"), list):
        message = "outcome listed needs `records`, a list; add it"
        found.add(below(path, "records"), "missing-field", message)


STORE_ANSWER = Fields(
    {
        "outcome": choice(
            "stored", "found", "missing", "listed", "deleted",
            "rejected_invalid_record", "rejected_invalid_query", "rejected_other",
        )
    },
    {"record": OrNull(STORE_RECORD), "records": ListOf(STORE_RECORD)},
    rules=(
        when("outcome", "found", _found_needs_record),
        when("outcome", "listed", _listed_needs_records),
    ),
)  # fmt: skip

#: Calls say what they are under `capability_id`.
BY_CAPABILITY: Mapping[str, str] = {
    "notify_emit": "notify-emit-request",
    "artifact_write": "artifact-write-request",
    "artifact_read": "artifact-read-request",
    "module_store_put": "module-store-put-request",
    "module_store_get": "module-store-get-request",
    "module_store_list": "module-store-list-request",
    "module_store_delete": "module-store-delete-request",
}

KINDS: Mapping[str, Fields] = {
    "notify-emit-request": NOTIFY,
    "notify-emit-response": NOTIFY_ANSWER,
    "artifact-write-request": ARTIFACT_WRITE,
    "artifact-write-response": ARTIFACT_ANSWER,
    "artifact-read-request": ARTIFACT_READ,
    "artifact-read-response": ARTIFACT_READ_ANSWER,
    "module-store-put-request": STORE_PUT,
    "module-store-get-request": STORE_GET,
    "module-store-list-request": STORE_LIST,
    "module-store-delete-request": STORE_DELETE,
    "module-store-response": STORE_ANSWER,
    "module-store-record.v1": STORE_RECORD,
}
