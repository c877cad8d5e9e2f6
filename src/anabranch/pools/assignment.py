"""What travels to a compute cluster and back: a job with the parts it needs, and its outcome.

Parts (the source of the definition, the names that jobs of a run share, large values) are known by
their hash. A process of the cluster keeps those it has seen, so a part travels once per process and
not once per job: the dispatcher leaves out what the workers have, and a worker that lacks one
answers `Missing` instead of doing the job.

The words are JSON, as between servers and workers; the parts follow them as they are. The bytes may
hold secrets, and clusters print the arguments of their tasks: whatever is encoded here shows its
size and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from anabranch.errors import InputError
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.work.logs.attempt_log import LogBatch

T = TypeVar("T")


class SealedBlob(bytes):
    """Bytes that nobody reads by accident, on a dashboard or in a log."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<sealed blob of {len(self):,} bytes>"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> tuple[type[SealedBlob], tuple[bytes]]:
        return SealedBlob, (bytes(self),)


class ValuesPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where values over the inline limit are, for work on the cluster."""

    mode: str = "cluster"  # "cluster": in `parts` and in the outcome; "server"; "folder"
    url: str = ""  # of the server, or of the folder for fsspec
    token: str = ""  # for the server, of scope `work`

    def __repr__(self) -> str:
        return f"ValuesPlace({self.mode!r})"


class Tools(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A module of callables that the cluster has to have, as the engine has it."""

    module: str
    sha256: str = ""  # of its source; "" where it has none


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job for one process of the cluster."""

    ticket: str
    job: ClaimedJob
    worker: str  # the name of the lease, as which a server is asked
    definition: str  # the hash of the part with the source
    names: str  # the hash of the part with the names that the jobs of the run share
    values: ValuesPlace
    needs: list[str] = []  # the hashes of values without which the work cannot begin
    tools: list[Tools] = []
    settings: dict[str, Any] = {}  # of the engine, those that change what work does
    parts: dict[str, bytes] = {}
    version: str = ""  # of the engine that sends it

    def __repr__(self) -> str:
        return f"Assignment({self.ticket!r})"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="outcome"):
    """What the job came to."""

    verb: str  # "report", "fail" or "park", as `pools.answers.worded` says it, or "release"
    body: dict[str, Any]
    parts: dict[str, bytes] = {}  # large values of the result, where they travel with it
    put: list[str] = []  # the hashes of those that are in the shared folder
    seconds: float = 0.0
    process: str = ""  # which process this was; see `worker_entry.probe`
    had: list[str] = []  # parts of this job that the process keeps now
    logs: list[LogBatch] = []  # what the job has printed

    def __repr__(self) -> str:
        return f"Outcome({self.verb!r})"


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="missing"):
    """Nothing was begun: these parts are needed first."""

    parts: list[str]
    process: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """How far the job is, as a worker tells it: counts, and from where another one can go on."""

    progress: dict[str, Any]
    parts: dict[str, bytes] = {}  # a checkpoint that is too large for the words
    put: list[str] = []  # the same, where it is in the shared folder

    def __repr__(self) -> str:
        return "Progress()"


Said = Outcome | Missing | Progress


def encode_assignment(given: Assignment) -> SealedBlob:
    """Raises what the encoder raises for values that are not JSON."""
    return _encode(given)


def decode_assignment(blob: bytes) -> Assignment:
    """Raises `InputError` where these are not the bytes of an assignment."""
    found, parts = _decode(blob, _ASSIGNMENT)
    return msgspec.structs.replace(found, parts=parts) if parts else found


def version_of(blob: bytes) -> str:
    """Of the engine that wrote an assignment that cannot be read here; "" where nothing says it."""
    try:
        return _decode(blob, _VERSION)[0].version
    except InputError:
        return ""


def encode_outcome(said: Said) -> SealedBlob:
    """What the process of the cluster says of a job: at its end, or while it is done."""
    return _encode(said)


def decode_said(said: bytes) -> Said:
    """Raises `InputError` where these are not words of `worker_entry`."""
    found, parts = _decode(said, _SAID)
    return msgspec.structs.replace(found, parts=parts) if parts else found


# -- the bytes -------------------------------------------------------------------------------
#
#   mark | length of the JSON | length of the list | JSON without parts | [[hash, size], …] | parts


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


_MARK = b"anabr1"
_HEAD = struct.Struct(">6sQQ")
_dump = msgspec.json.Encoder().encode
_ASSIGNMENT = msgspec.json.Decoder(Assignment)
_VERSION = msgspec.json.Decoder(_Version)
_SAID: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_SIZES = msgspec.json.Decoder(list[tuple[str, int]])


def _encode(given: Assignment | Said) -> SealedBlob:
    parts: Mapping[str, bytes] = {}
    if not isinstance(given, Missing) and given.parts:
        parts, given = given.parts, msgspec.structs.replace(given, parts={})
    words = _dump(given)
    sizes = _dump([(sha256, len(content)) for sha256, content in parts.items()])
    head = _HEAD.pack(_MARK, len(words), len(sizes))
    return SealedBlob(b"".join((head, words, sizes, *parts.values())))


def _decode(blob: bytes, decoder: msgspec.json.Decoder[T]) -> tuple[T, dict[str, bytes]]:
    """The words, and the parts that came along."""
    view = memoryview(blob)
    try:
        mark, words, sizes = _HEAD.unpack_from(view)
        if mark != _MARK:
            raise ValueError("they were not written by this version")
        begin = _HEAD.size + words
        at = begin + sizes
        body, tail = view[_HEAD.size : begin], view[begin:at]
        said, listed = decoder.decode(body), _SIZES.decode(tail)
        if any(size < 0 for _, size in listed) or at + sum(dict(listed).values()) != len(view):
            raise ValueError("they are cut short, or too long")
    except (ValueError, RecursionError, struct.error, msgspec.MsgspecError) as error:
        what = f"these {len(view):,} bytes are no message between engine and cluster: {error}"
        raise InputError(what, code="cluster_message") from None
    parts = {}
    for sha256, size in listed:
        parts[sha256] = bytes(view[at : at + size])
        at += size
    return said, parts
