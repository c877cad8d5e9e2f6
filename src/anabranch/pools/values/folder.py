"""A folder of values that engine and cluster share: a path, or a URL for fsspec such as s3://….

A value is one file, named by its hash, below two levels of folders. It is written once, as a whole:
to another name first where the file system can rename, and at once where that is atomic anyway, as
in object stores. What is read is compared with its hash.

The folder is no store: the engine keeps what it needs, and copies it here when a job goes out. So a
file that was not used for `KEPT_SECONDS` may go (`sweep`); one that is missed is copied again.

Whoever works on the cluster may write here, and says what is here. So what is no hash is no name of
a file, and only regular files are read, as far as the largest value goes.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from anabranch.errors import AnabranchError, InputError
from anabranch.files import open_regular
from anabranch.work.libraries import load
from anabranch.work.values.payloads import hash_of

KEPT_SECONDS = 24 * 3600.0  # after the last use of a file
BYTES_MAX = 1 << 32  # of a value, where nobody says less
MISSING = "this folder needs the package fsspec: pip install 'anabranch[buckets]'"
#: Where writing a file is one step, and renaming it is not.
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"}
)
#: Files of ours, also those that were never finished.
_OURS = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/\.?(\1\2[0-9a-f]{60})(\.[0-9a-f]{16})?")
_HASH = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


class FolderError(AnabranchError):
    """The folder cannot be read or written now."""

    code = "values_folder"
    retryable = True


class _Files(Protocol):
    """Files by their path below the folder. They raise `OSError`, or what a library raises."""

    def read(self, name: str, most: int) -> bytes | None:
        """The beginning, of so many bytes at most."""

    def write(self, name: str, content: bytes) -> None: ...

    def age(self, name: str) -> float | None:
        """Seconds since it was written or used last; None where it is not there."""

    def touch(self, name: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self) -> Iterator[str]: ...


class ValuesFolder:
    """Nothing is opened before the first call. Calls block in threads."""

    def __init__(self, url: str, bytes_max: int = BYTES_MAX) -> None:
        """Raises `InputError` where fsspec is needed and not there, or does not know the URL.
        Values have at most so many bytes."""
        self._files = _files_at(url)
        self._bytes_max = bytes_max

    def __repr__(self) -> str:
        return "ValuesFolder()"  # its URL may hold a password

    async def get(self, sha256: str) -> bytes | None:
        """None where it is not here, or what is here is something else. Raises `InputError` for
        what can be no value."""
        name, most = _name(sha256), self._bytes_max
        content = await self._call(lambda: self._files.read(name, most + 1))
        if content is not None and len(content) > most:
            what = f"the file of the value {sha256:.12} has more than {most:,} bytes"
            raise InputError(what, code="too_large")
        return content if content is not None and hash_of(content) == sha256 else None

    async def put(self, content: bytes) -> str:
        """Gives its hash. What is here already is not written again."""
        sha256 = hash_of(content)
        name = _name(sha256)

        def write() -> None:
            if self._files.age(name) is None:
                self._files.write(name, content)
            else:
                self._files.touch(name)

        await self._call(write)
        return sha256

    async def use(self, sha256: str) -> bool:
        """Whether it is here; then it stays for as long as if it were new."""
        name = _name(sha256)

        def use() -> bool:
            age = self._files.age(name)
            if age is not None and age > KEPT_SECONDS / 8:
                self._files.touch(name)
            return age is not None

        return await self._call(use)

    async def mend(self, content: bytes) -> None:
        """Write it also where something is under its name: that was damaged."""
        await self._call(lambda: self._files.write(_name(hash_of(content)), content))

    async def sweep(
        self, needed: Collection[str] = (), *, older_than_seconds: float = KEPT_SECONDS
    ) -> int:
        """Remove what nobody has used for so long, apart from `needed`. Returns how many files."""
        return await self._call(lambda: self._sweep(frozenset(needed), older_than_seconds))

    def _sweep(self, needed: frozenset[str], older_than_seconds: float) -> int:
        removed = 0
        for name in list(self._files.names()):
            ours = _OURS.fullmatch(name)
            if ours is None or ours.group(3) in needed:
                continue
            age = self._files.age(name)
            if age is None or age < older_than_seconds:
                continue
            self._files.remove(name)
            removed += 1
        return removed

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except AnabranchError:
            raise
        except Exception as error:  # of the file system, or of a library for one
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise FolderError(f"the shared folder of values does not work: {reason}") from None


def _name(sha256: str) -> str:
    if not _HASH.fullmatch(sha256):
        raise InputError(f"{sha256[:80]!r} is not the hash of a value", code="checksum")
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}"


def _files_at(url: str) -> _Files:
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if not scheme:
        return _LocalFiles(Path(url))
    if scheme == "file":
        return _LocalFiles(Path(url2pathname(urlsplit(url).path)))
    try:
        core = load("fsspec.core")
    except ImportError:
        raise InputError(MISSING, code="values_folder") from None
    try:
        system, root = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        what = f"fsspec cannot open a {scheme}:// folder: {error}"
        raise InputError(what, code="values_folder") from None
    return _RemoteFiles(system, str(root), atomic=scheme in _OBJECT_STORES)


class _LocalFiles:
    """A folder that this machine has mounted."""

    def __init__(self, root: Path) -> None:
        if not root.is_absolute():
            raise InputError(
                "the folder of values must be an absolute path, the same on both sides",
                code="values_folder",
            )
        self._root = root

    def read(self, name: str, most: int) -> bytes | None:
        try:
            descriptor = open_regular(self._root / name)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most)

    def write(self, name: str, content: bytes) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with unfinished.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def age(self, name: str) -> float | None:
        try:
            return max(0.0, time.time() - (self._root / name).stat().st_mtime)
        except FileNotFoundError:
            return None

    def touch(self, name: str) -> None:
        with suppress(OSError):  # of another user: it stays as old as it is
            os.utime(self._root / name)

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        for path in self._root.glob("??/??/*"):
            yield path.relative_to(self._root).as_posix()


class _RemoteFiles:
    """A folder or a bucket that fsspec knows."""

    def __init__(self, system: Any, root: str, *, atomic: bool) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._atomic = atomic

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str, most: int) -> bytes | None:
        try:
            return bytes(self._system.cat_file(self._at(name), start=0, end=most))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        path = self._at(name)
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._atomic:
            self._system.pipe_file(path, content)
            return
        unfinished = f"{path}.{secrets.token_hex(8)}"
        self._system.pipe_file(unfinished, content)
        self._system.mv(unfinished, path)

    def age(self, name: str) -> float | None:
        path = self._at(name)
        self._system.invalidate_cache(path.rpartition("/")[0])
        try:
            written = self._system.modified(path)
        except FileNotFoundError:
            return None
        except NotImplementedError:
            return 0.0 if self._system.exists(path) else None
        return max(0.0, time.time() - float(written.timestamp()))

    def touch(self, name: str) -> None:
        """Object stores have no other way than to write it again."""
        content = self.read(name, BYTES_MAX)
        if content is not None and hash_of(content) == name.rpartition("/")[2]:
            self.write(name, content)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._system.rm_file(self._at(name))

    def names(self) -> Iterator[str]:
        self._system.invalidate_cache()
        for path in self._system.find(self._root):
            yield str(path).removeprefix(self._root).lstrip("/")
