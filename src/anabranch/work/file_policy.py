"""Which files definitions, and the data that flows through them, may name: one guard for all.

    any                   every folder
    none                  no file at all
    /srv/data:reports     these folders, and what is beneath them

Whatever the setting `files_allowed` says, nobody reads or writes this way what belongs to the
system (`/proc`, `/sys`, `/dev`), nor what belongs to an engine: stores and what lies beside them
under their name (log, lock, key, backups), the files that settings name, `anabranch.toml`, the keys
of nodes. Of folders that are listed nobody gets what is hidden (`.ssh`, `.git`, `.env`), unless it
is listed itself: programs keep there what they believe, and a store often is in somebody's home.

A path is resolved first, links and all, and only where it leads counts. What comes out has no link
in it, and it is opened part by part from the root of the file system without following one: a link
that appears meanwhile is an error. What a library opens by itself (SQLite, DuckDB) gets the path
that was checked. Functions block as long as the disk does.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from anabranch.errors import InputError
from anabranch.files import FileRefused, require_regular
from anabranch.settings import FILE, FILE_VARIABLE, PATH_WORDS, PATHS, Settings
from anabranch.store.location import has_file
from anabranch.store_files import (
    SIDES,
    database_of,
    is_store_file,
    is_store_header,
    refuse_store_file,
)

ANY, NONE = PATH_WORDS
SETTING = "files_allowed"
SYSTEM = ("/proc", "/sys", "/dev")
SHARED_MEMORY = "/dev/shm"  # files as in any other folder
#: Of a catalog: whoever could write these would decide what others start.
DEFINITIONS = (".yaml", ".yml", ".json")

_NODE_KEY = re.compile(r"(node|participant|org(-[a-z0-9-]+)?)\.key|(host-)?authtok")
_STORE = "belongs to the store of this engine, which nothing else may open here: name another file"
_COPY = "is a store of Anabranch, or a copy of one"
_BESIDE_A_COPY = "would be a part of a store of Anabranch, or of a copy of one"
_OWN = "is private to this engine: no setting allows it"
_STORE_PARTS = "-.~"  # what follows the name of a store in names of files that belong to it
_HEADER_BYTES = 72
_SEARCH = getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
_FOLDER = _SEARCH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o666  # less what the umask takes

Path = str | os.PathLike[str]


class FileNotAllowed(FileRefused):
    """A file that definitions may not name. The message says why, and which setting decides."""

    code = "file_not_allowed"


class FilePolicy(msgspec.Struct, frozen=True, kw_only=True):
    roots: tuple[str, ...] | None = None  # folders, beneath which files may lie; None: everywhere
    stores: tuple[str, ...] = ()  # with everything beside them whose name begins so
    private: tuple[str, ...] = ()  # further files and folders of the engine
    catalog: str = ""  # its definitions are read, and not written

    # -- paths -------------------------------------------------------------------------------

    def resolve(self, path: Path, *, write: bool = False) -> str:
        """Where the path leads, without a link in it; `FileNotAllowed` where nobody may read or,
        with `write`, write."""
        return self._decide(path, _real(path), write=write)

    def _decide(self, path: Path, real: str, *, write: bool) -> str:
        if why := self._why_not(real, write=write) or self._why_there(real):
            raise self._refusal(path, real, why)
        return real

    def exists(self, path: Path) -> bool:
        return os.path.exists(self.resolve(path))

    def why_not(self, path: str) -> str:
        """Why a path that is written in a definition would be refused, or nothing. Looks at no
        file, so a link may still lead elsewhere."""
        try:
            plain = os.path.abspath(path)
        except ValueError:
            return ""
        why = self._why_not(plain, write=False)
        return f"{path} {why}" if why else ""

    def why_refused(self, real: str) -> str:
        """Why nobody may write to a path without links, or nothing; what may be written may be
        read. Looks at no file."""
        return self._why_not(real, write=True)

    def may_list(self, folder: str) -> bool:
        """Whether names in the folder may be looked for."""
        real = _real(folder)
        inside = self.roots is None or any(_is_visible_from(root, real) for root in self.roots)
        return inside and not _is_of_system(real)

    @property
    def own(self) -> tuple[str, ...]:
        """Files and folders that are not handed to anybody with what is around them."""
        return (*self.stores, *self.private, *([self.catalog] if self.catalog else ()))

    def own_inodes(self) -> set[tuple[int, int]]:
        """Those that are there: a hard link is the same file."""
        found = set[tuple[int, int]]()
        for path in (*self.stores, *self.private):
            with suppress(OSError):
                about = os.stat(path)
                if stat.S_ISREG(about.st_mode):
                    found.add((about.st_dev, about.st_ino))
        return found

    def refuse_own(self, path: Path) -> None:
        """Raises where that is a file of the engine which is there: most texts are no names of
        files at all. What would be a part of a database is one as soon as that is there."""
        real = _real(path)
        why = self._why_own(real) or self._why_there(real)
        if why and (os.path.exists(real) or database_of(real)):
            raise self._refusal(path, real, why)

    def _why_not(self, real: str, *, write: bool) -> str:
        folder, name = os.path.split(real)
        if _is_of_system(real):
            return "belongs to the system: no setting allows it"
        if why := why_name_refused(name):
            return why
        if own := self._why_own(real):
            return own
        if write and self._is_definition(folder, name):
            return "would be a definition of the catalog, which definitions do not write"
        return self._why_outside(real)

    def _why_outside(self, real: str) -> str:
        if self.roots is None or any(_is_visible_from(root, real) for root in self.roots):
            return ""
        if any(is_beneath(real, root) for root in self.roots):
            return f"is hidden (a name that begins with a dot): {SETTING} would have to list it"
        return f"is not in a folder that definitions may use: {self._allowed()}"

    def _is_definition(self, folder: str, name: str) -> bool:
        """What callers start by its name, where not everybody who starts it may say what it is."""
        known = self.roots is not None and self.catalog and is_beneath(folder, self.catalog)
        return bool(known) and name.casefold().endswith(DEFINITIONS)

    def _why_own(self, real: str) -> str:
        if any(_is_part_of(real, store) for store in self.stores):
            return _STORE
        return _OWN if any(_is_private(real, each) for each in self.private) else ""

    def _allowed(self) -> str:
        if not self.roots:
            return f"the setting {SETTING} names none"
        shown = os.pathsep.join(dict.fromkeys(self.roots))
        return f"the setting {SETTING} allows {shown}"

    def _why_there(self, real: str) -> str:
        """By what is on the disk: another name of a file of ours, which is a hard link, or that of
        a part of a store which somebody copied."""
        database = database_of(real)
        if database and _holds_store(database):
            return _BESIDE_A_COPY
        with suppress(OSError):
            about = os.stat(real)
            if stat.S_ISREG(about.st_mode):
                if any(_is_same(about, each) for each in self.stores):
                    return _STORE
                if any(_is_same(about, each) for each in self.private):
                    return _OWN
        return ""

    def _refusal(self, path: Path, real: str, why: str) -> FileNotAllowed:
        named = os.fspath(path)
        leads = "" if os.path.abspath(named) == real else f" leads to {real}, which"
        return FileNotAllowed(f"{named}{leads} {why}")

    # -- files -------------------------------------------------------------------------------

    def open_regular(self, path: Path) -> int:
        """As `files.open_regular`, for a path that a definition names."""
        real = self.resolve(path)
        refuse_store_file(real)
        folder, name = os.path.split(real)
        with _open_parts(folder) as above:
            self._check(path, os.stat(name or ".", dir_fd=above, follow_symlinks=False))
            descriptor = os.open(name or ".", _READ, dir_fd=above)
        try:
            self._check(path, os.fstat(descriptor))
            if is_store_header(os.pread(descriptor, _HEADER_BYTES, 0)):
                raise FileNotAllowed(f"{os.fspath(path)} {_COPY}")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def refuse_store(self, real: str) -> None:
        """Raises where that is a store or a copy of one, for what is opened by a library and for
        what is replaced."""
        refuse_store_file(real)
        if _holds_store(real):
            raise FileNotAllowed(f"{real} {_COPY}")

    def _check(self, path: Path, about: os.stat_result) -> None:
        """Of what is opened, whatever its name was a moment ago."""
        require_regular(path, about)
        if about.st_dev in system_devices() or is_store_file(about):
            raise FileNotAllowed(f"{os.fspath(path)} belongs to the system, or to a store")

    @contextmanager
    def open_folder(self, path: Path) -> Iterator[int]:
        """A descriptor of the folder, to list it by."""
        real = self.resolve(path)
        above, name = os.path.split(real)
        with _open_parts(above) as parent:
            descriptor = os.open(name or ".", _LIST, dir_fd=parent)
        try:
            if os.fstat(descriptor).st_dev in system_devices():
                raise FileNotAllowed(f"{os.fspath(path)} belongs to the system")
            yield descriptor
        finally:
            os.close(descriptor)

    def write(self, path: Path, content: bytes) -> None:
        """The file as a whole or not at all; folders above it are made."""
        real = self._decide(path, _real_target(path), write=True)
        folder, name = os.path.split(real)
        self.refuse_store(real)
        try:
            with _open_parts(folder, make=True) as above:
                _write_beside(above, name, content)
        except OSError as error:  # which names a part of the path
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None


#: Of who brings no settings: everything but what belongs to the system or to an engine.
EVERYWHERE = FilePolicy()


# -- settings ----------------------------------------------------------------------------------


def policy_of(settings: Settings) -> FilePolicy:
    """What the settings of a process allow to the definitions that it works for."""
    from anabranch.settings_file import places  # whoever says the limits alone needs none

    named = [getattr(settings, name) for name in PATHS if name not in ("store", "catalog")]
    private = [*named, os.environ.get(FILE_VARIABLE, ""), *map(str, places())]
    stores = tuple(_both(settings.store)) if has_file(settings.store) else ()
    private += [f"{store}.key" for store in stores]
    return FilePolicy(
        roots=read_roots(settings.files_allowed),
        stores=stores,
        private=tuple(form for each in private if each for form in _both(each)),
        catalog=os.path.realpath(settings.catalog) if settings.catalog else "",
    )


def read_roots(text: str) -> tuple[str, ...] | None:
    """The folders that the setting names; None for `any`, which is also what nothing says."""
    folders = [each.strip() for each in text.split(os.pathsep) if each.strip()]
    words = {ANY, NONE} & set(folders)
    if words and len(folders) > 1:
        raise InputError(f"{SETTING}: {words.pop()!r} stands alone, without folders beside it")
    if words == {NONE}:
        return ()
    if not folders or words:
        return None
    for folder in folders:
        if "\0" in folder or _is_of_system(os.path.realpath(folder)):
            raise InputError(f"{SETTING}: {folder!r} cannot be allowed")
    return tuple(form for folder in folders for form in _both(os.path.expanduser(folder)))


def folders_of_server(settings: Settings) -> str:
    """What a server allows where its operator says nothing: the folder of its store, and that of
    its catalog."""
    folders = list[str]()
    if has_file(settings.store):
        folders.append(os.path.dirname(os.path.realpath(settings.store)))
    if settings.catalog:
        folders.append(os.path.realpath(settings.catalog))
    usable = [folder for folder in folders if os.pathsep not in folder and folder != os.sep]
    return os.pathsep.join(usable) or NONE


# -- paths ---------------------------------------------------------------------------------------


def _both(path: str) -> dict[str, None]:
    """As it is named, and where it leads now."""
    return dict.fromkeys((os.path.abspath(path), os.path.realpath(path)))


def _real(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a NUL in it
        raise FileRefused(f"{os.fspath(path)!r:.200} is not a path") from None


def _real_target(path: Path) -> str:
    """Of what is written: a link of that name is replaced, and not followed."""
    folder, name = os.path.split(os.fspath(path))
    return _real(path) if name in ("", ".", "..") else os.path.join(_real(folder or "."), name)


def why_name_refused(name: str) -> str:
    """In whatever folder, and be it there yet or not."""
    if name.casefold() == FILE or _NODE_KEY.fullmatch(name.casefold()):
        return "holds settings or keys: no setting allows it"
    return ""


def is_beneath(path: str, folder: str) -> bool:
    """Or the folder itself."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_visible_from(root: str, path: str) -> bool:
    """Beneath it, with nothing hidden on the way."""
    return is_beneath(path, root) and "/." not in f"/{path[len(root) :].lstrip(os.sep)}"


def _is_same(about: os.stat_result, path: str) -> bool:
    with suppress(OSError):
        return os.path.samestat(about, os.stat(path))
    return False


def _is_of_system(path: str) -> bool:
    beneath = any(is_beneath(path, each) for each in SYSTEM)
    return beneath and not is_beneath(path, SHARED_MEMORY)


def _holds_store(path: str) -> bool:
    from anabranch.work.store_copies import holds_store  # few definitions name such files

    return holds_store(path)


def _is_private(path: str, each: str) -> bool:
    """With what SQLite believes beside a database."""
    return is_beneath(path, each) or any(path == each + side for side in SIDES)


def _is_part_of(path: str, store: str) -> bool:
    """The store, or what lies beside it under its name: `runs.db-wal`, `runs.db.key`."""
    if not path.startswith(store):
        hidden = os.path.join(os.path.dirname(store), f".{os.path.basename(store)}.")
        return path.startswith(hidden)  # a copy that is being made
    rest = path[len(store) :]
    return not rest or rest[0] in _STORE_PARTS or rest[0] == os.sep


def system_devices() -> set[int]:
    """Of `/proc` and its like, wherever else they are mounted."""
    devices = set[int]()
    for place in SYSTEM:
        with suppress(OSError):
            devices.add(os.stat(place).st_dev)
    return devices - {os.stat(os.sep).st_dev}


def _write_beside(folder: int, name: str, content: bytes) -> None:
    """Under another name first."""
    beside = f".{name}.{secrets.token_hex(4)}"
    descriptor = os.open(beside, _WRITE, _MODE, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise


@contextmanager
def _open_parts(real: str, *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder, opened part by part; a part that is a link is an error."""
    descriptor = os.open(os.sep, _FOLDER)
    try:
        for part in real.split(os.sep):
            if not part:
                continue
            if make:
                with suppress(OSError):  # it is there, or opening it says what is wrong
                    os.mkdir(part, dir_fd=descriptor)
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
