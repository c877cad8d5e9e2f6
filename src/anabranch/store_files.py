"""The files of the stores that this process has open; nothing else in it may open one of them.

POSIX takes away every lock that a process has on a file as soon as the process closes any
descriptor of that file. A task that reads the engine's database, say as an artifact, would so leave
the engine without its locks: the next process that closes the database believes that it is the last
one and removes the write-ahead log, into which the engine goes on writing. So whoever opens a file
that a user has named asks here first. Files are told by their inode: a link is no way round.
"""

from __future__ import annotations

import os

from anabranch.errors import InputError

Inode = tuple[int, int]  # device and number
APPLICATION_ID = 0x414E4142  # "ANAB", in the header of every SQLite file of ours
#: What SQLite keeps beside a database, under its name, and believes.
SIDES = ("-wal", "-shm", "-journal")
_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68

_inodes: dict[Inode, str] = {}
_names: dict[str, str] = {}  # of every store of this process, also of files not there yet


def inode_of(about: os.stat_result) -> Inode:
    return about.st_dev, about.st_ino


def protect(inode: Inode, store: str) -> None:
    """From now on this is a file of that store."""
    _inodes[inode] = store


def protect_names(store: str) -> None:
    for suffix in ("", *SIDES, ".lock"):
        _names[store + suffix] = store


def unprotect(inode: Inode) -> None:
    _inodes.pop(inode, None)


def unprotect_store(store: str) -> None:
    """This process has let go of it."""
    for known in (_inodes, _names):
        for key in [key for key, owner in known.items() if owner == store]:
            del known[key]  # type: ignore[arg-type]


def is_store_file(about: os.stat_result) -> bool:
    """Whether that is a file of a store which this process has open."""
    return inode_of(about) in _inodes


def is_store_header(header: bytes) -> bool:
    """Whether a file that begins so is a store, also one that nobody here has open."""
    about = header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4]
    return header.startswith(_MAGIC) and int.from_bytes(about, "big") == APPLICATION_ID


def database_of(path: str) -> str:
    """The database that a file of this name would be a part of, if it is there."""
    for side in SIDES:
        database = path.removesuffix(side)
        if database != path and os.path.isfile(database):
            return database
    return ""


def refuse_store_file(path: str | os.PathLike[str]) -> None:
    """Raises where that names a file of a store which this process has open."""
    if not _inodes:
        return
    try:
        found = is_store_file(os.stat(path))
    except (OSError, ValueError):  # whoever opens it says what is wrong with it
        found = False
    try:
        found = found or os.path.realpath(path) in _names
    except (OSError, ValueError):
        return
    if found:
        raise InputError(
            f"{os.fspath(path)} belongs to the store of this engine, which nothing else may open "
            "here: name another file",
            code="store_file",
        )
