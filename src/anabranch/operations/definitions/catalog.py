"""The catalog: definitions by path, in versions, kept in a store or lying in a folder.

    etl/load              the newest version
    etl/load@2            that version; also catalog://etl/load@2
    prod                  what the alias leads to, where no path has that name
    catalog-id:17         what the store gave this number

A path is looked for in the folder (setting `catalog`), then in the store. One that ends like a file
(`.yaml`, `.yml`, `.json`) is a file where there is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from anabranch import files
from anabranch.dialects.port import RegisteredTool
from anabranch.dialects.source import SourceLimits
from anabranch.errors import AnabranchError, Conflict, InputError, NotFound, StoreError
from anabranch.net.net import Net
from anabranch.net.problems import Problem, did_you_mean
from anabranch.operations.definitions.alias import FAMILY as ALIAS
from anabranch.operations.definitions.alias import find_alias
from anabranch.operations.definitions.catalog_folder import FolderCatalog
from anabranch.operations.definitions.compile_cache import CACHE
from anabranch.operations.definitions.preflight import is_file
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.store.catalog_ports import CatalogEntry
from anabranch.store.ports import Definition, Store

SUFFIXES = (".yaml", ".yml", ".json")
PATH_MAX = 200
CHILDREN_MAX = 1000  # definitions that are looked at to find a cycle
BY_ID, SCHEME = "catalog-id:", "catalog://"
VERSIONS_MEANWHILE = 8  # whose schedules are kept in the place of that of an older one
_PATH = re.compile(r"[^\s@:\\/]+(?:/[^\s@:\\/]+)*")
_VERSION = re.compile(r"(.+)@([0-9]{1,9}|latest)")


class CatalogTarget(NamedTuple):
    """What a target means."""

    path: str
    version: int | None = None
    id: int | None = None
    only_here: bool = False  # no file is meant


class Found(NamedTuple):
    """A definition that a target leads to."""

    text: str
    file: str  # what it is called in messages
    key: str  # the same for the same definition, whoever names it


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one definition."""

    path: str
    version: int
    catalog_id: int
    name: str
    dialect: str
    fingerprint: str
    new: bool  # False: this text is the newest version already
    created_at: int
    created_by: str
    file: str = ""
    problems: list[str] = []  # warnings, in words


class Draft(msgspec.Struct, frozen=True):
    """A definition to register. Without a path it is the one in its metadata."""

    text: str
    file: str
    path: str = ""


class KeptDraft(NamedTuple):
    """A definition that is in the catalog now."""

    draft: Draft
    prepared: Prepared
    entry: CatalogEntry  # as this caller wrote or found it: others may have added versions since
    is_new: bool
    warning: str  # of its schedule


def wanted(target: str) -> CatalogTarget:
    """What is meant by a target, such as the `path` of a child."""
    if target.startswith(BY_ID):
        number = target.removeprefix(BY_ID)
        if not re.fullmatch(r"[0-9]{1,18}", number):
            raise InputError(f"a catalog_id is a number, not {number[:40]!r}", code="catalog_path")
        return CatalogTarget("", id=int(number), only_here=True)
    here = target.startswith(SCHEME)
    path = target.removeprefix(SCHEME)
    numbered = _VERSION.fullmatch(path)
    if numbered is None:
        return CatalogTarget(path, only_here=here)
    version = None if numbered[2] == "latest" else int(numbered[2])
    return CatalogTarget(numbered[1], version, only_here=True)


def plain_path(target: str) -> str:
    """The path, or the number, as an author writes it."""
    try:
        asked = wanted(target)
    except InputError:
        return ""
    return asked.path if asked.id is None else str(asked.id)


class Catalog:
    """The definitions that a process can find by path. `store` may be missing: only the folder."""

    def __init__(
        self,
        store: Store | None,
        folder: str = "",
        tools: Callable[[], Iterable[RegisteredTool]] = tuple,
    ) -> None:
        self._store = store
        self._folder = FolderCatalog(folder) if folder else None
        self._tools = tools

    # -- finding -----------------------------------------------------------------------------

    def find(self, target: str) -> Found | None:
        """What the target leads to; None where it has to be a file. Reads files."""
        asked = wanted(target)
        if not asked.only_here and asked.path.endswith(SUFFIXES) and is_file(asked.path):
            return None
        found = self._found(asked)
        if found is None and (led := self._by_alias(asked)) is not None:
            target, asked = led.path, led
            found = self._found(led)
        if found is None and (asked.only_here or not _means_a_file(asked.path)):
            raise self._missing(target, asked)
        return found

    def knows(self, target: str) -> bool:
        try:
            return self.find(target) is not None
        except NotFound:
            return False

    def prepared(self, target: str) -> Prepared | None:
        found = self.find(target)
        if found is None:
            return None
        return prepare(_as_text(found.text), tuple(self._tools()), file=found.file)

    def _in_folder(self, asked: CatalogTarget) -> Found | None:
        file = self._folder.find(asked.path, asked.version) if self._folder is not None else None
        if file is None or asked.id is not None:
            return None
        most = SourceLimits().bytes_max
        text = files.read_limited(file, most).decode("utf-8", "replace")
        return Found(text, str(file), str(file))

    def _in_store(self, asked: CatalogTarget) -> Found | None:
        entry = self._entry(asked)
        if entry is None or self._store is None:
            return None
        kept = self._store.definition(entry.fingerprint)
        if kept is None:
            raise NotFound(f"the store has no definition {entry.fingerprint}")
        return Found(kept.source, kept.origin or entry.path, f"{SCHEME}{entry.path}")

    def _entry(self, asked: CatalogTarget) -> CatalogEntry | None:
        if self._store is None:
            return None
        if asked.id is not None:
            return self._store.catalog_by_id(asked.id)
        return self._store.catalog_entry(asked.path, asked.version)

    def _by_alias(self, asked: CatalogTarget) -> CatalogTarget | None:
        """What an alias of this name leads to, which is no alias itself."""
        if self._store is None or asked.id is not None:
            return None
        alias = find_alias(self._store, asked.path)
        if alias is None:
            return None
        led = alias.target
        if asked.version is not None:
            raise NotFound(
                f"{asked.path} is an alias of {led.text()}, which says the version itself: leave "
                f"out @{asked.version}",
                code="no_definition",
            )
        return CatalogTarget(led.path, led.version, only_here=True)

    def _found(self, asked: CatalogTarget) -> Found | None:
        return self._in_folder(asked) or self._in_store(asked)

    def _missing(self, target: str, asked: CatalogTarget) -> NotFound:
        hint = "`anabranch register FILE` stores one, `anabranch catalog list` lists them"
        if self._store is not None and asked.version is not None:
            newest = self._store.catalog_entry(asked.path)
            if newest is not None:
                hint = f"there are the versions 1 to {newest.version}"
        elif self._store is not None and asked.path:
            known = [one.path for one in self._store.catalog_paths(limit=1000)]
            known += [one.name for one in self._store.records(ALIAS, limit=1000)]
            close = did_you_mean(asked.path, known) if known else ""
            hint = close if close.startswith("did") else hint
        file = "" if asked.only_here else ", and no file of that name"
        what = target if asked.id is not None else asked.path
        numbered = f" in version {asked.version}" if asked.version is not None else ""
        return NotFound(
            f"the catalog has no definition {what[:200]!r}{numbered}{file}; {hint}",
            code="no_definition",
        )

    # -- listing -----------------------------------------------------------------------------

    def paths(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[Registered]:
        """The newest version of each path."""
        return [shown(one) for one in self._kept.catalog_paths(prefix, after, limit)]

    def versions(self, path: str, limit: int = 1000) -> list[Registered]:
        found = self._kept.catalog_versions(path, limit)
        if not found:
            raise self._missing(path, CatalogTarget(path, only_here=True))
        return [shown(one) for one in found]

    def show(self, target: str) -> tuple[Registered, Definition]:
        asked = wanted(target)
        entry = self._entry(asked)
        if entry is None and (led := self._by_alias(asked)) is not None:
            asked, entry = led, self._entry(led)
        definition = self._kept.definition(entry.fingerprint) if entry is not None else None
        if entry is None or definition is None:
            raise self._missing(target, asked._replace(only_here=True))
        return shown(entry), definition

    @property
    def _kept(self) -> Store:
        assert self._store is not None, "only a catalog with a store is listed"
        return self._store

    # -- registering -------------------------------------------------------------------------

    def register(self, drafts: Sequence[Draft], now: int, actor: str = "") -> list[Registered]:
        """Keep these, all or none. A text that is the newest version of its path stays that."""
        return self.report(self.keep(drafts, now, actor))

    def keep(self, drafts: Sequence[Draft], now: int, actor: str = "") -> dict[str, KeptDraft]:
        """By path what is there now. What the children of these are is not looked at, which takes
        long: `report` does that when they are kept."""
        tools = tuple(self._tools())
        ready = [(draft, prepare(_as_text(draft.text), tools, file=draft.file)) for draft in drafts]
        paths = _placed(ready)
        for path in paths:
            self._require_no_alias(path)
        written = self._write(paths, now, actor)
        said = {path: self._keep_schedule(path, paths[path][1], now, actor) for path in paths}
        return {path: KeptDraft(*paths[path], *written[path], said[path]) for path in paths}

    def _write(
        self, paths: Mapping[str, tuple[Draft, Prepared]], now: int, actor: str
    ) -> dict[str, tuple[CatalogEntry, bool]]:
        """By path its entry, and whether it is new. Who registers the same text at the same time
        may come first, with another text not."""
        wanted = self._entries(paths, now, actor)
        try:
            return self._add(wanted)
        except Conflict as conflict:
            try:
                again = self._entries(paths, now, actor)
            except StoreError:  # in one transaction with more, which has failed as a whole
                raise conflict from None
            if any(
                not one.id and one.version > wanted[path].version for path, one in again.items()
            ):
                raise
            return self._add(again)

    def _entries(
        self, paths: Mapping[str, tuple[Draft, Prepared]], now: int, actor: str
    ) -> dict[str, CatalogEntry]:
        """The newest version of each path where that is this text, or else the next, without id."""
        found: dict[str, CatalogEntry] = {}
        for path, (_, one) in paths.items():
            before = self._kept.catalog_entry(path)
            if before is not None and before.fingerprint == one.net.fingerprint:
                found[path] = before
                continue
            self._kept.put_definition(msgspec.structs.replace(one.definition, created_at=now))
            found[path] = CatalogEntry(
                path=path,
                version=1 if before is None else before.version + 1,
                fingerprint=one.net.fingerprint,
                name=one.net.name,
                dialect=one.net.dialect,
                created_at=now,
                created_by=actor,
            )
        return found

    def _add(self, entries: Mapping[str, CatalogEntry]) -> dict[str, tuple[CatalogEntry, bool]]:
        fresh = [one for one in entries.values() if not one.id]
        ids = dict(zip((one.path for one in fresh), self._kept.add_catalog(fresh), strict=True))
        return {
            path: (msgspec.structs.replace(one, id=ids.get(path, one.id)), path in ids)
            for path, one in entries.items()
        }

    def report(self, kept: Mapping[str, KeptDraft]) -> list[Registered]:
        return [self._registered(path, one) for path, one in kept.items()]

    def _require_no_alias(self, path: str) -> None:
        alias = find_alias(self._kept, path)
        if alias is not None and self._kept.catalog_entry(path) is None:
            raise Conflict(
                f"{path!r} is an alias of {alias.target.text()}, which the path would hide; "
                "nothing was registered. Give another path, or remove the alias",
                code="alias_taken",
            )

    def _keep_schedule(self, path: str, one: Prepared, now: int, actor: str) -> str:
        """The schedule of a definition is that of its newest version; returns a warning, or ""."""
        from anabranch.operations.schedules.registered import keep_schedule  # only to register

        net = one.net
        for _ in range(VERSIONS_MEANWHILE):
            said = keep_schedule(self._kept, path, net.schedule, now, actor)
            newest = self._newest(path)  # others may have kept the schedule of theirs before ours
            if newest is None or newest.fingerprint == net.fingerprint:
                break
            net = newest
        return said

    def _newest(self, path: str) -> Net | None:
        """Of the versions that the store keeps."""
        found = self._in_store(CatalogTarget(path))
        if found is None:
            return None
        text = _as_text(found.text)
        return CACHE.compile(text, file=found.file, tools=(), any_tool=True).net

    def _registered(self, path: str, kept: KeptDraft) -> Registered:
        one = kept.prepared
        found = [*one.problems, *self.cycles(one.net, f"{SCHEME}{path}")]
        said = [str(problem) for problem in found if problem.severity == "warning"]
        said += [kept.warning] if kept.warning else []
        file, is_new = kept.draft.file, kept.is_new
        return msgspec.structs.replace(shown(kept.entry), new=is_new, file=file, problems=said)

    # -- children ----------------------------------------------------------------------------

    def cycles(self, net: Net, key: str, *, read_files: bool = True) -> Iterator[Problem]:
        """Where the definition begins itself by way of its children, as far as they are named.
        Without `read_files` only those of the catalog are looked at."""
        for child in net.children:
            way = self._way_back(child.path, key, read_files=read_files)
            if way:
                message = f"it starts itself through its children: {' → '.join([key, *way])}"
                hint = "it needs an end: at child_depth_max the run fails"
                shown_message = message.replace(SCHEME, "")
                yield Problem(child.position, "child-cycle", shown_message, hint, "warning")

    def _way_back(self, target: str, key: str, *, read_files: bool) -> list[str]:
        """The definitions from this child to the one that is looked for; empty where none leads."""
        waiting: list[tuple[str, tuple[str, ...]]] = [(target, ())]
        seen: set[str] = set()
        while waiting and len(seen) < CHILDREN_MAX:
            at, before = waiting.pop(0)
            child = self._child(at, read_files=read_files)
            if child is None or child[0] in seen:
                continue
            seen.add(child[0])
            # A file of the folder is told by its path, as what is in the store.
            name = f"{SCHEME}{child[1].path}" if child[1].path else child[0]
            if key in (child[0], name):
                return [*before, key]
            waiting += [(one.path, (*before, name)) for one in child[1].children]
        return []

    def _child(self, target: str, *, read_files: bool) -> tuple[str, Net] | None:
        """A definition that is named as a child; None where it is not here or does not compile."""
        try:
            found = self.find(target)
            if found is None and not read_files:
                return None
            if found is None:
                text = files.read_limited(Path(target), SourceLimits().bytes_max)
                found = Found(text.decode("utf-8", "replace"), target, file_key(target))
            net = CACHE.compile(_as_text(found.text), file=found.file, tools=(), any_tool=True).net
        except (AnabranchError, OSError):
            return None
        return None if net is None else (found.key, net)


def shown(entry: CatalogEntry) -> Registered:
    fields = msgspec.structs.asdict(entry)
    fields["catalog_id"] = fields.pop("id")
    return Registered(**fields, new=False)


def missing_in(net: Net, catalog: Catalog) -> Iterator[Problem]:
    """Children that are named by path and are not in the catalog; files are not looked at."""
    for child in net.children:
        target = child.path
        if not target.endswith(SUFFIXES) and not catalog.knows(target):
            message = f"the catalog has no definition {target!r} for the child"
            yield Problem(child.position, "missing-child", message, "register it", "warning")


def file_key(file: str | Path) -> str:
    return str(Path(file).resolve())


def checked_path(path: str, file: str) -> str:
    if len(path) > PATH_MAX or not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise InputError(
            f"{file}: {path[:60]!r} cannot be a path of the catalog: write words between slashes, "
            f"such as etl/load_orders, at most {PATH_MAX} letters, without blanks, `@`, `:`, `..`",
            code="catalog_path",
        )
    return path


def _placed(
    ready: Sequence[tuple[Draft, Prepared]],
) -> dict[str, tuple[Draft, Prepared]]:
    """By path. One path with two definitions is refused: nobody could say which is newer."""
    paths: dict[str, tuple[Draft, Prepared]] = {}
    for draft, one in ready:
        path = draft.path or one.net.path
        if not path:
            raise InputError(
                f"{draft.file} does not say its path: add `metadata: {{path: …}}`, or give it with "
                "--path",
                code="catalog_path",
            )
        first = paths.setdefault(checked_path(path, draft.file), (draft, one))
        if first[1].net.fingerprint != one.net.fingerprint:
            raise InputError(
                f"the path {path!r} has two definitions, {first[0].file} and {draft.file}; nothing "
                "was registered: give one another `metadata.path`, or register one after the other",
                code="catalog_path",
            )
    return paths


def _as_text(text: str) -> str:
    """One line without an end would be taken for the name of a file."""
    return text if "\n" in text else f"{text}\n"


def _means_a_file(path: str) -> bool:
    """Whoever reads it says what is wrong with it."""
    return path.endswith(SUFFIXES) or path.startswith(("/", "./", "../")) or os.path.lexists(path)
