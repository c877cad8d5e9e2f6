"""The kind `artifact`: fetch a stored value, or store one.

    action: get   result_ref (a stand-in, its `_ref`, the `refs` of a loop, or a step's result as
                  the summary of a final step names it) or uri; checksum (sha256, optional);
                  offset and limit, for the results of a loop
    action: put   data; uri (without one: the payload store); compress: gzip; scope

A uri is `anabranch:sha256:…`, `file:///…`, a plain path, or an object of a bucket (`gs://…`,
`s3://…`, with `auth`, see `buckets.py`). `get` gives the whole value: payloads
and `.json` files decoded, other files as text, and what is not text as base64. Its result is marked
to stay as it is, since storing again what was just fetched would help nobody. The results of a loop
come as `{results, total, offset, next}`; `next` is where the page after this one begins, or null.
Text given to `put` is written as it is, anything else as JSON; files appear whole or not at all.
What an item of a loop stores says which item that was: its receipt has `loop_id`, `shard_id`,
`iter_index` and `iter_key`.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from anabranch import files
from anabranch.dialects.noetl.names import item_of
from anabranch.dialects.result_policy import SCOPES
from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault, misconfigured
from anabranch.work.file_policy import FilePolicy
from anabranch.work.kind_options import ArtifactOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.buckets.buckets import Buckets
from anabranch.work.kinds.buckets.places import is_object, read_place
from anabranch.work.loops.results import Loops, is_loop, step_in
from anabranch.work.port import InlineAnswer, Task
from anabranch.work.secrets.redaction import brief, cleaned_for_store
from anabranch.work.values.json_check import MAX_DEPTH, too_deep
from anabranch.work.values.payloads import (
    KIND,
    PLACE,
    PayloadPort,
    encoded,
    hash_of,
    is_packed,
    load,
    place_in,
    place_of,
    unpack,
)

_WRITE_SECONDS = 600.0  # longer than a read may take: one that is given up may still happen


class Artifact:
    def __init__(
        self,
        payloads: PayloadPort | None = None,
        options: ArtifactOptions | None = None,
        *,
        loops: Loops | None = None,
        buckets: Buckets | None = None,
    ) -> None:
        self._loops = loops
        self._buckets = buckets
        self._payloads = payloads
        chosen = options or ArtifactOptions()
        self._limit, self._allowed = chosen.bytes_max, chosen.files

    async def perform(self, task: Task) -> Answer:
        given = task.inputs
        try:
            action = str(given.get("action") or ("put" if "data" in given else "get")).lower()
            if action == "get":
                return await self._get(given, task)
            if action == "put":
                return await self._put(given, task)
            raise InputError(f"action must be get or put, not '{action:.20}'")
        except NotFound as error:
            return fault("not_found", error.message)
        except InputError as error:
            if error.code == "checksum":
                return fault("result", error.message, code="CHECKSUM", retryable=False)
            return misconfigured(error)
        except AnabranchError as error:  # the store itself
            return fault("storage_access", error.message, retryable=True)
        except OSError as error:
            return _unreachable(error)

    # -- get ---------------------------------------------------------------------------------

    async def _get(self, given: Mapping[str, Any], task: Task) -> Answer:
        source = given.get("result_ref", given.get("uri"))
        if source is None:
            raise InputError("an artifact is fetched by result_ref or uri")
        if step_in(source) is not None:
            [result] = await self._reader().results(source, 0, 1, self._limit)
            return _as_is(result)
        if is_loop(source):
            return _as_is(await self._results(source, given))
        if given.get("offset") is not None or given.get("limit") is not None:
            raise InputError("offset and limit are for the results of a loop (its `refs`)")
        place = place_in(source)
        if place is not None:
            return _as_is(await load(self._payloads, place))
        if not isinstance(source, str):
            return _as_is(source)  # small enough to have travelled itself
        content, path = await self._content(source, given, task)
        _check(content, given.get("checksum", given.get("sha256")), path)
        return _as_is(await asyncio.to_thread(_value, content, path, self._limit))

    async def _content(
        self, source: str, given: Mapping[str, Any], task: Task
    ) -> tuple[bytes, PurePath]:
        """What the address leads to, and the path to call it by."""
        if self._buckets is not None and is_object(source):
            place = read_place(source, "uri")
            content = await self._buckets.read(place, given, task, self._limit, "artifact_bytes")
            return content, PurePosixPath(place.key)
        path = _path(source)
        return await files.in_thread(partial(_read, path, self._limit, self._allowed), path), path

    async def _results(self, ref: str, given: Mapping[str, Any]) -> dict[str, Any]:
        loops = self._reader()
        total = await loops.size(ref)
        offset = min(_count(given.get("offset"), "offset", 0), total)
        stop = min(offset + _count(given.get("limit"), "limit", total), total)
        results = await loops.results(ref, offset, stop, self._limit)
        following = stop if stop < total else None
        return {"results": results, "total": total, "offset": offset, "next": following}

    def _reader(self) -> Loops:
        if self._loops is None:
            raise InputError("this worker has no way to the log, where results of runs are")
        return self._loops

    # -- put ---------------------------------------------------------------------------------

    async def _put(self, given: Mapping[str, Any], task: Task) -> Answer:
        if "data" not in given:
            raise InputError("an artifact is stored from data")
        compression = _compression(given.get("compress", given.get("compression")))
        uri, item = given.get("uri"), item_of(task.names)
        if uri is None:
            scope = _scope(given.get("scope"))
            return await self._put_payload(given["data"], compression, task.run, scope, item)
        if str(uri).startswith(PLACE):
            raise InputError("payloads are named by their content: leave uri out to store one")
        uri = inputs.text(uri, "uri")
        content = await asyncio.to_thread(_content, given["data"], compression)
        self._within_limit(len(content))
        if self._buckets is not None and is_object(uri):
            place = read_place(uri, "uri")
            await self._buckets.write(place, content, given, task)
            return succeeded({**_receipt(str(place), content, compression), **item})
        path = _path(uri)
        await files.in_thread(partial(self._allowed.write, path, content), path, _WRITE_SECONDS)
        return succeeded({**_receipt(path.absolute().as_uri(), content, compression), **item})

    async def _put_payload(
        self, data: Any, compression: str, run: str, scope: str, item: Mapping[str, Any]
    ) -> Answer:
        if self._payloads is None:
            raise InputError("this worker has no way to the payload store; give uri a file")
        content = await asyncio.to_thread(_payload, data, compression)
        self._within_limit(len(content))
        sha256 = await self._payloads.put(content, run)
        receipt = _receipt(place_of(sha256), content, compression)
        # Not called `_ref`: later steps shall see this receipt, not the value behind it.
        ref = {"kind": KIND, "ref": place_of(sha256), "bytes": len(content), "scope": scope}
        return succeeded({**receipt, **item, "ref": {**ref, **item}})

    def _within_limit(self, size: int) -> None:
        if size > self._limit:
            raise InputError(_too_large(size, self._limit))


def _count(value: Any, name: str, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, str) and value.isascii() and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name} must be a whole number from 0 up, not {brief(value)}")
    return value


def _as_is(value: Any) -> Answer:
    return InlineAnswer(status="ok", outcome="ok", result=value)


def _receipt(uri: str, content: bytes, compression: str) -> dict[str, Any]:
    receipt = {"uri": uri, "bytes": len(content), "sha256": hash_of(content)}
    return {"status": "stored", **receipt, "compression": compression}


def _path(uri: str) -> Path:
    if "://" not in uri:
        return Path(uri)
    parts = urlsplit(uri)
    if parts.scheme != "file":
        raise InputError(f"'{parts.scheme}' addresses cannot be reached from here; use file://")
    return Path(unquote(parts.path))


def _read(path: Path, limit: int, allowed: FilePolicy) -> bytes:
    if not allowed.exists(path):
        raise NotFound(f"{path} does not exist")
    return files.read_limited(path, limit, "artifact_bytes", opening=allowed.open_regular)


def _check(content: bytes, expected: Any, path: PurePath) -> None:
    if expected is None:
        return
    wanted = inputs.text(expected, "checksum").removeprefix("sha256:").lower()
    if hash_of(content) != wanted:
        raise InputError(f"{path} has another checksum than {wanted:.64}", code="checksum")


def _value(content: bytes, path: PurePath, limit: int) -> Any:
    name = path.name
    if is_packed(content):
        content, name = unpack(content, limit, str(path)), name.removesuffix(".gz")
    if name.endswith(".json"):
        return _json(content, path)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"data": base64.b64encode(content).decode(), "encoding": "base64"}


def _json(content: bytes, path: PurePath) -> Any:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if too_deep(content, value):
        raise InputError(f"{path} nests more than {MAX_DEPTH} levels deep")
    return value


def _content(data: Any, compression: str) -> bytes:
    content = data.encode("utf-8", "replace") if isinstance(data, str) else encoded(data)
    return gzip.compress(content, 6, mtime=0) if compression == "gzip" else content


def _payload(data: Any, compression: str) -> bytes:
    """What the store keeps of a value."""
    return encoded(cleaned_for_store(data), compression)


def _compression(value: Any) -> str:
    if value in (None, False, "none"):
        return "none"
    if value in (True, "gzip"):
        return "gzip"
    raise InputError(f"compress must be gzip or none, not {brief(value)}")


def _scope(value: Any) -> str:
    """How long the payload is kept."""
    if value is None:
        return "execution"
    if value not in SCOPES:
        raise InputError(f"scope must be one of {', '.join(sorted(SCOPES))}, not {brief(value)}")
    return str(value)


def _unreachable(error: OSError) -> Answer:
    name = error.filename or "the file"
    if isinstance(error, FileNotFoundError):
        return fault("not_found", f"{name} does not exist")
    return fault("storage_access", f"{name}: {error.strerror or error}", retryable=False)


def _too_large(size: int, limit: int) -> str:
    return f"{size:,} bytes are too much; the limit is {limit:,} (setting artifact_bytes)"
