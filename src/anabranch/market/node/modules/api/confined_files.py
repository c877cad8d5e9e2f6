"""Files below one folder and nowhere else: no link is followed, nothing is seen half written.

Every part of a path is opened from the folder before it, so a link that appears meanwhile is found
by the system and not by a look beforehand. Functions block as long as the disk does.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch.errors import AnabranchError

PATH_MAX = 1024
PART_MAX = 255
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNFINISHED = ".unfinished-write"


class PathRefused(AnabranchError):
    """The path leads, or could lead, out of the folder."""

    code = "path_refused"


class FileExists(AnabranchError):
    """Another content is there, and must not be replaced."""

    code = "file_exists"


def parts_of(path: str) -> list[str]:
    """The parts of a relative path. Raises `PathRefused`."""
    if not path or len(path) > PATH_MAX:
        raise PathRefused(f"path has 1 to {PATH_MAX} characters")
    if path.startswith("/") or "\\" in path or not path.isprintable():
        raise PathRefused("path is relative, with / between printable names")
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", "..") or len(part.encode()) > PART_MAX or part == _UNFINISHED:
            raise PathRefused("path has a part that is empty, a dot, too long or not allowed")
    return parts


def read_confined(root: Path, path: str, limit: int) -> bytes | None:
    """The content of a regular file; None where there is none."""
    *folders, name = parts_of(path)
    try:
        with _folder(root, folders, make=False) as folder:
            return _read_in(folder, name, limit)
    except FileNotFoundError:
        return None


def write_confined(root: Path, path: str, data: bytes, *, overwrite: bool) -> bool:
    """Write the file as a whole; False where exactly that is there. Raises `FileExists`."""
    *folders, name = parts_of(path)
    with _folder(root, folders, make=True) as folder:
        before = _read_in(folder, name, len(data) + 1, whole=False)
        if before == data:
            return False
        if before is not None and not overwrite:
            raise FileExists(f"{path} is there with another content")
        _put(folder, name, data, overwrite=overwrite)
        return True


@contextmanager
def _folder(root: Path, names: list[str], *, make: bool) -> Iterator[int]:
    """A descriptor of the folder below the root, opened step by step."""
    if make:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = _open_folder(root, None)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=descriptor)
            inner = _open_folder(name, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(name: str | Path, above: int | None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PathRefused("path passes a link or a file that is no folder") from None
        raise


def _read_in(folder: int, name: str, limit: int, *, whole: bool = True) -> bytes | None:
    """At most `limit` bytes; with `whole` a longer file is refused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise PathRefused("path leads to a link or to no regular file") from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PathRefused("path leads to something that is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1 if whole else limit)
    finally:
        os.close(descriptor)
    if whole and len(data) > limit:
        raise FileExists(f"the file has more than {limit:,} bytes")
    return data


def _put(folder: int, name: str, data: bytes, *, overwrite: bool) -> None:
    """Beside it first, then under its name at once."""
    with suppress(FileNotFoundError):
        os.unlink(_UNFINISHED, dir_fd=folder)  # of a writer that was killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(_UNFINISHED, flags, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if overwrite:
            os.replace(_UNFINISHED, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(_UNFINISHED, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise FileExists("another content appeared under that path") from None
    except IsADirectoryError:
        raise PathRefused("path leads to a folder") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(_UNFINISHED, dir_fd=folder)
    os.fsync(folder)
