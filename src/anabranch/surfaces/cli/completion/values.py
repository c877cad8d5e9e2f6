"""What a shell offers where a run, the name of a definition or a path of the catalog is wanted.

A person waits for it with a finger on the Tab key: only a file on this machine is asked, and what
cannot be read gives nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anabranch.errors import AnabranchError
from anabranch.operations.definitions.catalog import Catalog
from anabranch.settings import Settings
from anabranch.store.location import exists, has_file
from anabranch.store.ports import HeadFilter, Store
from anabranch.surfaces.cli.backend.local.store import LocalStore
from anabranch.surfaces.cli.completion.grammar import Kind

RUNS_MAX = 50
NAMES_MAX = 500  # runs whose names are looked at
PATHS_MAX = 1000
#: What needs no quotes in any shell, and cannot be taken for anything but a word.
_SAFE = re.compile(r"\w[\w.:/@+-]*", re.ASCII)


def values(kind: Kind, settings: Settings) -> Iterator[tuple[str, str]]:
    """Each value with a word about it."""
    if settings.server or not has_file(settings.store) or not exists(settings.store):
        return
    try:
        with LocalStore(settings).reading() as store:
            found = dict(_FROM[kind](store, settings))
    except AnabranchError:
        return
    for value, about in found.items():
        if _SAFE.fullmatch(value):
            yield value, "".join(sign if sign.isprintable() else " " for sign in about)


def _runs(store: Store, _settings: Settings) -> Iterator[tuple[str, str]]:
    heads = store.heads(HeadFilter(limit=RUNS_MAX))
    if heads:
        yield "last", f"{heads[0].name} {heads[0].status}"
    for head in heads:
        yield head.run, f"{head.name} {head.status}"


def _names(store: Store, _settings: Settings) -> Iterator[tuple[str, str]]:
    for head in store.heads(HeadFilter(limit=NAMES_MAX)):
        yield head.name, head.dialect


def _paths(store: Store, settings: Settings) -> Iterator[tuple[str, str]]:
    for entry in Catalog(store, settings.catalog).paths("", "", PATHS_MAX):
        yield entry.path, entry.name


_FROM = {"runs": _runs, "names": _names, "paths": _paths}
