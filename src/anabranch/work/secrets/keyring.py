"""The secrets that a definition declares, where its work is done: resolved, or found missing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anabranch import files
from anabranch.errors import AnabranchError
from anabranch.expressions.budget import (
    BREATHE_WORK,
    TurnBudget,
    share_budget,
    unshare_budget,
)
from anabranch.net.net import Net
from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kinds.commands.isolation import SETTINGS, KeptNames
from anabranch.work.secrets.keychain import FileLook, Keychain, absent_entries
from anabranch.work.secrets.keychain_kinds import FileEntry, is_in_file
from anabranch.work.secrets.redaction import revealed
from anabranch.work.values.payloads import hash_of

#: A file that has not answered by then is one of which nothing is known.
LOOK_SECONDS = 2.0
FILES_KEPT = 1000


async def keyring_of(
    keychain: Keychain, net: Net, workload: Mapping[str, Any], run: str = ""
) -> Mapping[str, Any]:
    """The secrets that a definition declares, resolved where the work is done."""
    return await keychain.resolve(net.keychain, _renderer(workload, keychain.own), run)


class Secrets:
    """Which entries of keychains can be had here.

    Variables are looked at whenever somebody asks. A file may hang in the kernel, so files are
    looked at beside the event loop and not for long: when an engine opens and when a run begins.
    In between counts what was seen then.
    """

    def __init__(self, allowed: FilePolicy = EVERYWHERE, own: KeptNames = SETTINGS) -> None:
        self._allowed = allowed
        self._own = own
        #: By file entry: why it cannot be had, "" where it can.
        self._seen: OrderedDict[str, str] = OrderedDict()

    def absent(self, net: Net, workload: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(entry, why) of those that are known not to be here."""
        return self._absent(net, workload, None)

    def not_seen(self, net: Net, workload: Mapping[str, Any]) -> list[str]:
        """The same, and those of which nothing is known."""
        return [name for name, _ in self._absent(net, workload, "it gave no answer")]

    def _absent(
        self, net: Net, workload: Mapping[str, Any], unknown: str | None
    ) -> list[tuple[str, str]]:
        if not net.keychain:
            return []
        return self._looked_at(net, workload, lambda file: self._seen.get(_key(file), unknown))

    def _looked_at(
        self, net: Net, workload: Mapping[str, Any], look: FileLook
    ) -> list[tuple[str, str]]:
        render = _renderer(workload, self._own)
        budget = TurnBudget(BREATHE_WORK)
        before = share_budget(budget)
        try:
            found = absent_entries(net.keychain, render, look, own=self._own)
        finally:
            unshare_budget(before)
        return [] if budget.is_spent else found  # what takes long to work out is not known

    async def look(self, net: Net, workload: Mapping[str, Any]) -> None:
        """Look at the files of this keychain now."""
        found: list[FileEntry] = []
        if has_files(net):
            self._looked_at(net, workload, found.append)
        await asyncio.gather(*map(self._look, found))

    async def _look(self, file: FileEntry) -> None:
        key = _key(file)
        self._seen.pop(key, None)
        try:
            await files.in_thread(partial(file.read, self._allowed), file.path, LOOK_SECONDS)
            self._seen[key] = ""
        except files.FileTimeout:
            return  # the step that uses it tries again, and says so
        except AnabranchError as error:
            self._seen[key] = error.message
        if len(self._seen) > FILES_KEPT:
            self._seen.popitem(last=False)


def has_files(net: Net) -> bool:
    return any(is_in_file(entry) for entry in net.keychain)


def has_the_same_files(net: Net) -> bool:
    """For every run: no input of a run says which files they are."""
    return not any(is_in_file(entry) and _has_template(entry) for entry in net.keychain)


def _key(file: FileEntry) -> str:
    return hash_of(repr(revealed(file.entry)).encode())


def _renderer(
    workload: Mapping[str, Any], own: KeptNames
) -> Callable[[Any, Mapping[str, Any]], Any]:
    def render(entry: Any, so_far: Mapping[str, Any]) -> Any:
        names = {"env": own.without(), "keychain": so_far, "workload": workload}
        return _rendered(entry, names)

    return render


def _rendered(entry: Any, names: Mapping[str, Any]) -> Any:
    """An entry with its templates evaluated."""
    if isinstance(entry, Mapping):
        return {key: _rendered(value, names) for key, value in entry.items()}
    if isinstance(entry, list | tuple):
        return [_rendered(value, names) for value in entry]
    return entry.evaluate(names) if hasattr(entry, "evaluate") else entry


def _has_template(entry: Any) -> bool:
    if isinstance(entry, Mapping):
        return any(map(_has_template, entry.values()))
    if isinstance(entry, list | tuple):
        return any(map(_has_template, entry))
    return hasattr(entry, "evaluate")
