"""Files that modules write through their host, each below its own output folder.

The file is on the disk before its event; a write that was cut off between the two is completed by
the next write of the same content.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from anabranch.market.documents import digest_of
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.confined_files import (
    FileExists,
    PathRefused,
    parts_of,
    read_confined,
    write_confined,
)
from anabranch.market.node.modules.api.words import derived_id, encoded, stream_key
from anabranch.work.participants.performers import rfc3339

ARTIFACT_BYTES = 8 * 1024 * 1024
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class WriteArtifact(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["artifact_write"]
    path: str
    content_type: Name
    bytes_base64: str | msgspec.UnsetType = msgspec.UNSET
    json: Any = msgspec.UNSET
    overwrite: bool = False
    idempotency_key: Name | None = None


class ReadArtifact(msgspec.Struct, frozen=True):
    schema_version: Literal["v1"]
    capability_id: Literal["artifact_read"]
    path: str


class ArtifactWritten(msgspec.Struct, frozen=True, tag="artifact-written"):
    module_id: str
    path: str
    content_type: str
    digest: str
    size_bytes: int
    at: int


class KeyUsed(msgspec.Struct, frozen=True, tag="key-used"):
    """An idempotency key stands for one path and content."""

    path: str
    digest: str


def _evolve_file(_state: ArtifactWritten | None, event: ArtifactWritten) -> ArtifactWritten:
    return event


def _evolve_key(_state: KeyUsed | None, event: KeyUsed) -> KeyUsed:
    return event


ARTIFACTS: Family[ArtifactWritten] = Family(
    "module-artifact",
    ArtifactWritten,
    ArtifactWritten,
    _evolve_file,
    group=lambda state: state.module_id,
)
ARTIFACT_KEYS: Family[KeyUsed] = Family("module-artifact-key", KeyUsed, KeyUsed, _evolve_key)


class ModuleArtifacts:
    """`folder` holds the output folders of all modules: <folder>/<module>/output."""

    def __init__(self, entities: Entities, folder: Path | None) -> None:
        self._entities = entities
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="POST",
                path="/v1/module/artifact/write",
                scopes=("module",),
                handler=self._write,
                summary="Write a file below the output folder of the module.",
                body=WriteArtifact,
                example={
                    "schema_version": "v1",
                    "capability_id": "artifact_write",
                    "path": "runs/run-1.json",
                    "content_type": "application/json",
                    "json": {"status": "completed"},
                },
                misfit={"outcome": "rejected_other"},
                errors=(400, 409, 413, 503),
            ),
            Endpoint(
                method="POST",
                path="/v1/module/artifact/read",
                scopes=("module",),
                handler=self._read,
                summary="Read a file below the output folder of the module.",
                body=ReadArtifact,
                example={
                    "schema_version": "v1",
                    "capability_id": "artifact_read",
                    "path": "runs/run-1.json",
                },
                misfit={"outcome": "rejected_other"},
                errors=(400, 413, 503),
            ),
        ]

    async def _write(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, WriteArtifact)
        module = call.caller.module
        data = _content(wanted)
        _require_path(wanted.path)
        async with self._locks.setdefault(module, asyncio.Lock()):
            return await self._write_one(module, wanted, data)

    async def _write_one(self, module: str, wanted: WriteArtifact, data: bytes) -> Answer:
        used = KeyUsed(wanted.path, digest_of(data))
        key = derived_id("key", module, wanted.idempotency_key or "")
        if wanted.idempotency_key is not None:
            before = self._entities.get(ARTIFACT_KEYS, key)
            if before is not None and before != used:
                raise _refused(
                    409,
                    "idempotency_conflict",
                    "idempotency_key was used for another path or content",
                    "rejected_conflict",
                )
        written = await self._on_disk(module, wanted, data)
        with self._entities.change() as change:
            event = ArtifactWritten(
                module_id=module,
                path=wanted.path,
                content_type=wanted.content_type,
                digest=used.digest,
                size_bytes=len(data),
                at=change.now,
            )
            known = change.get(ARTIFACTS, stream_key(module, wanted.path))
            if known is None or (known.digest, known.content_type) != (
                event.digest,
                event.content_type,
            ):
                change.add(ARTIFACTS, stream_key(module, wanted.path), event)
            if wanted.idempotency_key is not None and change.get(ARTIFACT_KEYS, key) is None:
                change.add(ARTIFACT_KEYS, key, used)
        await self._entities.durable()
        return _answer("written" if written else "already_present", event)

    async def _on_disk(self, module: str, wanted: WriteArtifact, data: bytes) -> bool:
        root = self._root(module)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                None,
                lambda: write_confined(root, wanted.path, data, overwrite=wanted.overwrite),
            )
        except PathRefused as error:
            raise _refused(400, error.code, error.message, "rejected_path") from None
        except FileExists as error:
            raise _refused(409, error.code, error.message, "rejected_conflict") from None
        except OSError as error:
            raise _unwritable(error) from None

    async def _read(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, ReadArtifact)
        module = call.caller.module
        data = await self._data(module, wanted.path)
        if data is None:
            return Answer(body={"schema_version": "v1", "outcome": "missing", "path": wanted.path})
        return self._found(module, wanted.path, data)

    async def content(self, module: str, path: str) -> bytes:
        """What the module has written there; 404 where there is nothing."""
        data = await self._data(module, path)
        if data is None:
            raise NodeError(404, "not_found", f"the module {module} has written no {path[:200]!r}")
        return data

    async def _data(self, module: str, path: str) -> bytes | None:
        _require_path(path)
        root = self._root(module)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(None, read_confined, root, path, ARTIFACT_BYTES)
        except PathRefused as error:
            raise _refused(400, error.code, error.message, "rejected_path") from None
        except FileExists as error:
            raise _refused(413, "too_large", error.message, "rejected_other") from None
        except OSError as error:
            raise _unwritable(error) from None

    def _found(self, module: str, path: str, data: bytes) -> Answer:
        known = self._entities.get(ARTIFACTS, stream_key(module, path))
        event = ArtifactWritten(
            module_id=module,
            path=path,
            content_type=known.content_type if known else "application/octet-stream",
            digest=digest_of(data),
            size_bytes=len(data),
            at=known.at if known else 0,
        )
        answer = _answer("found", event)
        answer.body["bytes_base64"] = base64.b64encode(data).decode()
        if known is not None:
            answer.body["written_at"] = rfc3339(known.at)
        return answer

    def _root(self, module: str) -> Path:
        if self._folder is None:
            raise _refused(
                503, "no_data_dir", "the node has no data folder (data_dir)", "rejected_other"
            )
        return self._folder / module / "output"


def _content(wanted: WriteArtifact) -> bytes:
    has_bytes = wanted.bytes_base64 is not msgspec.UNSET
    has_json = wanted.json is not msgspec.UNSET
    if has_bytes == has_json:
        raise _refused(400, "schema", "give either bytes_base64 or json", "rejected_other")
    if has_json:
        data = encoded(wanted.json)
    else:
        try:
            data = base64.b64decode(str(wanted.bytes_base64), validate=True)
        except (binascii.Error, ValueError):
            raise _refused(
                400, "schema", "bytes_base64 is not standard base64", "rejected_other"
            ) from None
    if len(data) > ARTIFACT_BYTES:
        raise _refused(
            413, "too_large", f"an artifact has at most {ARTIFACT_BYTES:,} bytes", "rejected_other"
        )
    return data


def _require_path(path: str) -> None:
    try:
        parts_of(path)
    except PathRefused as error:
        raise _refused(400, error.code, error.message, "rejected_path") from None


def _answer(outcome: str, event: ArtifactWritten) -> Answer:
    return Answer(
        body={
            "schema_version": "v1",
            "outcome": outcome,
            "artifact_id": derived_id("artifact", event.module_id, event.path, event.digest),
            "path": event.path,
            "content_type": event.content_type,
            "digest": event.digest,
            "size_bytes": event.size_bytes,
        }
    )


def _refused(status: int, code: str, message: str, outcome: str) -> NodeError:
    return NodeError(status, code, message, more={"outcome": outcome})


def _unwritable(error: OSError) -> NodeError:
    return _refused(
        503, "disk", f"the output folder cannot be used: {error.strerror}", "rejected_other"
    )
