"""The files in the keychains of recorded runs: looked at before an engine opens the runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from anabranch.errors import AnabranchError
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.store.damage import damage_of
from anabranch.store.ports import Head, Store
from anabranch.work.secrets.keyring import Secrets, has_files, has_the_same_files


class RunReader(Protocol):
    """What is asked of a `Reader`, which asks for the files in turn."""

    @property
    def store(self) -> Store: ...
    def net_of(self, definition: str) -> Net: ...
    def state_of(self, head: Head) -> State: ...


async def look_at_files(secrets: Secrets, read: RunReader, heads: Iterable[Head]) -> None:
    """All at once and not for long: a mount that gives no answer holds up nobody."""
    nets: dict[str, Net | None] = {}
    runs: dict[str, list[Head]] = {}  # by definition, those that are looked at one by one
    for head in heads:
        if head.finished or damage_of(head):
            continue
        if head.definition not in nets:
            nets[head.definition] = _net_with_files(read, head.definition)
        net = nets[head.definition]
        if net is not None and not (has_the_same_files(net) and head.definition in runs):
            runs.setdefault(head.definition, []).append(head)
    looks = [
        secrets.look(net, workload)
        for definition, of_it in runs.items()
        if (net := nets[definition]) is not None
        for workload in _workloads(read, net, of_it)
    ]
    await asyncio.gather(*looks)


def _net_with_files(read: RunReader, definition: str) -> Net | None:
    """Compiled only where a look at its text does not say that it has no keychain."""
    try:
        found = read.store.definition(definition)
        if found is None or "keychain" not in found.source:
            return None
        net = read.net_of(definition)
    except AnabranchError:
        return None  # whoever opens a run of it says what is wrong
    return net if has_files(net) else None


def _workloads(read: RunReader, net: Net, heads: Iterable[Head]) -> Iterator[Mapping[str, Any]]:
    if has_the_same_files(net):
        yield net.workload
        return
    for head in heads:
        try:
            yield read.state_of(head).workload
        except AnabranchError:
            continue  # the same
