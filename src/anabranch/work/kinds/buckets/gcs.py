"""The kind `gcs`: a file, or a value, becomes an object in a bucket of Google Cloud Storage.

Inputs: `source` (a local file) or `data` (ours: text as it is, anything else as JSON),
`destination` (`gs://bucket/key`; a key that is empty or ends with `/` gets the name of the file),
`auth`, `content_type`, `metadata`, `timeout`. The object is written as a whole, in one request:
whoever does it twice leaves the same behind.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import Unavailable, fault, misconfigured
from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kinds import inputs
from anabranch.work.kinds.buckets.buckets import Buckets
from anabranch.work.kinds.buckets.places import ObjectAddress, read_place
from anabranch.work.port import Task
from anabranch.work.values.payloads import encoded

_METADATA_BYTES = 8 * 1024  # what Google takes
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Gcs:
    """Performs uploads."""

    def __init__(self, buckets: Buckets, bytes_max: int, allowed: FilePolicy = EVERYWHERE) -> None:
        self._buckets = buckets
        self._bytes_max = bytes_max
        self._allowed = allowed

    async def perform(self, task: Task) -> Answer:
        given = task.inputs
        try:
            place = _destination(given)
            metadata = _metadata(given.get("metadata"))
            content_type = _content_type(given, place)
            content = await self._content(given)
            about = {"ContentType": content_type, "Metadata": metadata}
            await self._buckets.write(place, content, given, task, **about)
        except InputError as error:
            return misconfigured(error)
        return succeeded(
            {
                "status": "success",
                "uri": str(place),
                "bucket": place.bucket,
                "blob": place.key,
                "size": len(content),
                "content_type": content_type,
                "message": f"Uploaded {len(content)} bytes to GCS",
            }
        )

    async def _content(self, given: Mapping[str, Any]) -> bytes:
        source = given.get("source")
        if source is not None:
            path = inputs.text(source, "source").removeprefix("file://")
            return await files.in_thread(partial(_read, path, self._bytes_max, self._allowed), path)
        data = given["data"]
        content = data.encode("utf-8", "replace") if isinstance(data, str) else encoded(data)
        if len(content) > self._bytes_max:
            limit = f"{self._bytes_max:,} bytes (setting artifact_bytes)"
            raise InputError(f"data is larger than {limit}")
        return content


def _read(path: str, limit: int, allowed: FilePolicy) -> bytes:
    if not allowed.exists(path):
        message = f"source: {path} does not exist"
        raise Unavailable(message, fault("not_found", message))
    return files.read_limited(path, limit, "artifact_bytes", opening=allowed.open_regular)


def _destination(given: Mapping[str, Any]) -> ObjectAddress:
    if (given.get("source") is None) == (given.get("data") is None):
        raise InputError("an upload takes either source (a file) or data")
    uri = inputs.text(given.get("destination"), "destination")
    if not uri.startswith("gs://"):
        raise InputError("destination must look like gs://bucket/key")
    if uri.count("/") == 2:
        uri += "/"
    if uri.endswith("/") and given.get("source") is not None:
        uri += PurePath(inputs.text(given["source"], "source")).name
    return read_place(uri, "destination")


def _content_type(given: Mapping[str, Any], place: ObjectAddress) -> str:
    value = given.get("content_type")
    if value is None:
        guessed = mimetypes.guess_type(place.key)[0]
        plain = "text/plain" if isinstance(given.get("data"), str) else "application/json"
        return guessed or ("application/octet-stream" if given.get("data") is None else plain)
    text = inputs.text(value, "content_type")
    if not text.isascii() or not text.isprintable() or not text or len(text) > 200:
        raise InputError("content_type must be a media type such as text/csv")
    return text


def _metadata(value: Any) -> dict[str, str]:
    found = {}
    for name, each in inputs.mapping(value, "metadata").items():
        text = inputs.scalar(each, f"metadata.{name}")
        if not _NAME.fullmatch(name) or not text.isascii() or not text.isprintable():
            raise InputError(f"metadata: {name[:60]!r} and its value must be plain ASCII")
        found[name] = text
    if sum(len(name) + len(text) for name, text in found.items()) > _METADATA_BYTES:
        raise InputError(f"metadata has more than {_METADATA_BYTES:,} bytes")
    return found
