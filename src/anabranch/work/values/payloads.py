"""Payloads: values kept by their hash, outside the log.

A worker reaches them through the two calls of `PayloadPort`; in the engine's own process that is
the store (`StoredPayloads`), elsewhere whatever leads there. A place is written
`anabranch:sha256:<hash>`. Content is JSON, perhaps gzipped, and is checked against its hash on
every read.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from io import BytesIO
from typing import Any, Protocol

import msgspec

from anabranch.errors import InputError, NotFound
from anabranch.store.ports import Hold, Payloads
from anabranch.work.values.json_check import MAX_DEPTH

REF = "_ref"
KIND = "result_ref"
PLACE = "anabranch:sha256:"
_SCALARS = frozenset((type(None), bool, int, float, str))
_CONTAINERS = (dict, list)
_GZIP = b"\x1f\x8b"  # no JSON text begins like this
_PIECE = 256 * 1024  # is unpacked at once
_HASH = re.compile(r"[0-9a-f]{64}")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Pay = Callable[[int], None]  # told how many bytes it is by now, all together


class PayloadPort(Protocol):
    async def get(self, sha256: str) -> bytes | None: ...

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:
        """Keeps the content and gives its hash; putting it twice changes nothing.

        It is held for the run, by default only until the run has ended: what is recorded of it
        meanwhile says for how long it is wanted."""
        ...


class StoredPayloads:
    """The port on a store in this process. A call takes as long as one small commit."""

    def __init__(self, store: Payloads, *, aside: bool = False) -> None:
        """`aside` where others wait for the event loop: what is large is hashed and written in a
        thread."""
        self._store = store
        self._aside = aside

    async def get(self, sha256: str) -> bytes | None:
        return self._store.payload(sha256)

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:
        if self._aside and len(content) > _PIECE:
            return await asyncio.to_thread(self._put, content, run, scope)
        return self._put(content, run, scope)

    def _put(self, content: bytes, run: str, scope: str) -> str:
        sha256 = hash_of(content)
        hold = Hold(sha256, run, scope) if run else None
        self._store.put_payload(sha256, content, hold)
        return sha256


class MemoryPayloads:
    """The port on a plain dict, for tests and for work without an engine. Nothing is deleted."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    async def get(self, sha256: str) -> bytes | None:
        return self.contents.get(sha256)

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:  # noqa: ARG002
        sha256 = hash_of(content)
        self.contents[sha256] = content
        return sha256


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def encoded(value: Any, compression: str = "none") -> bytes:
    content = _encode(value)
    # Without a time in its head the same value has the same hash wherever it is compressed.
    return gzip.compress(content, 6, mtime=0) if compression == "gzip" else content


def decoded(content: bytes, pay: Pay | None = None) -> Any:
    """The value of a payload, compressed or not. `pay` is asked before each part is unpacked or
    decoded."""
    if pay is not None:
        pay(len(content))
    if is_packed(content):
        content = gzip.decompress(content) if pay is None else _unpacked(content, pay)
    return _decode(content)


def _unpacked(content: bytes, pay: Pay) -> bytes:
    parts, size = [], 0
    with gzip.GzipFile(fileobj=BytesIO(content)) as packed:
        while part := packed.read(_PIECE):
            size += len(part)
            pay(size)
            parts.append(part)
    return b"".join(parts)


def is_packed(content: bytes) -> bool:
    return content[:2] == _GZIP


def unpack(content: bytes, bytes_max: int, what: str) -> bytes:
    """What gzip has packed, in however many parts; never more than so many bytes in memory."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as packed:
            plain = packed.read(bytes_max + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{what} is not valid gzip: {error}", code="bad_gzip") from None
    if len(plain) > bytes_max:
        message = f"{what} has more than the {bytes_max:,} bytes allowed once it is unpacked"
        raise InputError(message, code="too_large")
    return plain


def read_untrusted(content: bytes, bytes_max: int, what: str) -> Any:
    """The value of a payload that somebody made who may send whatever they like."""
    from anabranch.work.values import json_size  # a run without workers needs none of it

    plain = unpack(content, bytes_max, what) if is_packed(content) else content
    try:
        json_size.scan(plain, json_size.PAYLOAD, MAX_DEPTH)  # before anything is built of it
        return json_size.decode(plain)
    except InputError as error:
        raise InputError(f"{what} cannot be kept: {error.message}", code=error.code) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{what} is not JSON: {error}", code="not_json") from None


def place_of(sha256: str) -> str:
    return f"{PLACE}{sha256}"


def is_ref(value: Any) -> bool:
    """Is it the stand-in for a payload?"""
    return isinstance(value, Mapping) and _place_in(value.get(REF)) is not None


def holds_ref(value: Any) -> bool:
    """Is there a stand-in anywhere in it? Only containers are looked into."""
    if type(value) in _SCALARS:
        return False
    if type(value) is dict or isinstance(value, Mapping):
        if REF in value and is_ref(value):
            return True
        return any(map(holds_ref, containers(value.values())))
    return isinstance(value, list) and any(map(holds_ref, containers(value)))


def containers(values: Collection[Any]) -> Sequence[Any]:
    """Lists and objects among them. Millions of numbers and texts are passed over at C speed."""
    if _SCALARS.issuperset(map(type, values)):
        return ()
    return [each for each in values if isinstance(each, _CONTAINERS)]


def place_in(value: Any) -> str | None:
    """The place named by a stand-in, by its `_ref`, or by the text itself."""
    if isinstance(value, Mapping) and REF in value:
        return _place_in(value[REF])
    return _place_in(value) or (value if _is_place(value) else None)


def _place_in(ref: Any) -> str | None:
    if not isinstance(ref, Mapping) or ref.get("kind") != KIND:
        return None
    place = ref.get("ref")
    return place if _is_place(place) else None


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(PLACE)


def purged(sha256: str) -> NotFound:
    return NotFound(
        f"the payload {sha256} is not in the store: the engine deleted it when no run needed "
        "it any more (see `scope` of its task, retention_days and `anabranch purge`), or it was "
        "never stored here",
        code="payload_gone",
    )


async def load(port: PayloadPort | None, place: str) -> Any:
    """The value kept at a place, after its checksum was found right."""
    sha256 = place.removeprefix(PLACE)
    if not _HASH.fullmatch(sha256):
        raise InputError(f"'{place:.120}' is not the address of a payload ({PLACE}<64 hex digits>)")
    if port is None:
        raise InputError("this worker has no way to the payload store")
    content = await port.get(sha256)
    if content is None:
        raise purged(sha256)
    if hash_of(content) != sha256:
        raise InputError(f"the payload {sha256} is damaged: its checksum differs", code="checksum")
    return decode_kept(sha256, content)


def decode_kept(sha256: str, content: bytes, pay: Pay | None = None) -> Any:
    try:
        return decoded(content, pay)
    except (ValueError, RecursionError, zlib.error, OSError, EOFError) as error:
        raise InputError(f"the payload {sha256} cannot be read: {error}") from None
