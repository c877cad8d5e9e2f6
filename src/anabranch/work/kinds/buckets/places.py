"""Addresses of objects in buckets, and whether the package that reads them is installed.

Apart from `buckets`, which loads what calls need: every engine asks this, few have a bucket.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any
from urllib.parse import unquote

import msgspec

from anabranch.errors import InputError

EXTRA, PACKAGE = "buckets", "s3fs"
SCHEMES = {"s3": "s3", "gs": "gcs"}  # with the word that definitions use for each
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_KEY_BYTES = 1024
_VERSION = "?versionId="  # s3fs takes this and what stands behind it for no part of a key


class ObjectAddress(msgspec.Struct, frozen=True):
    """One object."""

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"


def installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def is_object(uri: Any) -> bool:
    return isinstance(uri, str) and uri.partition("://")[0].lower() in SCHEMES and "://" in uri


def read_place(uri: str, what: str) -> ObjectAddress:
    """The object that an address names."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    place = ObjectAddress(scheme.lower(), bucket, key)
    if place.scheme not in SCHEMES or not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise InputError(f"{what} must look like gs://bucket/key or s3://bucket/key")
    if not key or len(key.encode("utf-8", "replace")) > _KEY_BYTES or not key.isprintable():
        raise InputError(f"{what} names no object: a key has 1 to {_KEY_BYTES:,} bytes")
    if leads_elsewhere(key) or _VERSION in key:
        raise InputError(
            f"{what} may name another object than it says: a key has no part `.` or `..` between "
            f"slashes, which services take for folders, and no `{_VERSION}`"
        )
    return place


def leads_elsewhere(path: str) -> bool:
    """Whether a server, or a client, that tidies this path up gets at something else."""
    return not {".", ".."}.isdisjoint(re.split(r"[/\\]", unquote(path)))
