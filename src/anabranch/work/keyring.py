"""The secrets that a definition declares, where its work is done: resolved, or found missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.net.net import Net
from anabranch.work.isolation import is_ours
from anabranch.work.keychain import Keychain, absent_entries


async def keyring_of(
    keychain: Keychain, net: Net, workload: Mapping[str, Any], run: str = ""
) -> Mapping[str, Any]:
    """The secrets that a definition declares, resolved where the work is done."""
    return await keychain.resolve(net.keychain, _renderer(workload), run)


def _renderer(workload: Mapping[str, Any]) -> Callable[[Any, Mapping[str, Any]], Any]:
    def render(entry: Any, so_far: Mapping[str, Any]) -> Any:
        env = {name: value for name, value in os.environ.items() if not is_ours(name)}
        names = {"env": env, "keychain": so_far, "workload": workload}
        return _rendered(entry, names)

    return render


def absent_secrets(
    net: Net, workload: Mapping[str, Any], read_files: bool
) -> list[tuple[str, str]]:
    """(entry, why) of those that cannot be had here; see `keychain.absent_entries`."""
    return absent_entries(net.keychain, _renderer(workload), read_files=read_files)


def _rendered(entry: Any, names: Mapping[str, Any]) -> Any:
    """An entry with its templates evaluated."""
    if isinstance(entry, Mapping):
        return {key: _rendered(value, names) for key, value in entry.items()}
    if isinstance(entry, list | tuple):
        return [_rendered(value, names) for value in entry]
    return entry.evaluate(names) if hasattr(entry, "evaluate") else entry
