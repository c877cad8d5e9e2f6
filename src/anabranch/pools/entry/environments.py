"""The environments of a process of the cluster, by what jobs want of one.

Jobs of one pool want the same, so there is one as a rule. Another pool, another token or another
start of the engine makes another; those that no job has used for long are closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from anabranch.errors import InputError
from anabranch.pools.assignment import Assignment, Tools, ValuesPlace
from anabranch.pools.entry.job_services import (
    CarriedServices,
    CarriedValues,
    EntryServices,
    FolderValues,
)
from anabranch.pools.entry.settings import settings_of_work
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.pools.values.folder import ValuesFolder
from anabranch.work.kinds.callables import default_toolbox

KEPT = 4
NO_KIND = (
    "name the module that has it with --tools, or in the option `tools` of the pool, and install "
    "it on the cluster"
)


class _Wanted(NamedTuple):
    values: ValuesPlace
    worker: str  # as whom a server is asked
    tools: tuple[Tools, ...]
    settings: bytes


class Environment:
    """What a job is done with."""

    def __init__(self, tasks: TaskEnvironment, services: EntryServices) -> None:
        self.tasks = tasks
        self.services = services
        self.users = 0

    async def close(self) -> None:
        await self.tasks.close()
        await self.services.close()


class Environments:
    """Used in the loop of the process only."""

    def __init__(self) -> None:
        self._made: OrderedDict[_Wanted, Environment] = OrderedDict()

    @contextmanager
    def used(self, given: Assignment) -> Iterator[Environment]:
        """The one for this job. Its modules are imported: an environment has the callables that
        are known when it is made."""
        asks = given.values.mode == "server"
        wanted = _Wanted(
            given.values,
            given.worker if asks else "",
            tuple(given.tools),
            msgspec.json.encode(given.settings, order="sorted"),
        )
        found = self._made.pop(wanted, None) or _make(given)
        self._made[wanted] = found
        found.users += 1
        try:
            yield found
        finally:
            found.users -= 1

    async def close_unused(self, kept: int = KEPT) -> None:
        for wanted, one in list(self._made.items()):
            if len(self._made) <= kept:
                return
            if not one.users:
                del self._made[wanted]
                await one.close()


def _make(given: Assignment) -> Environment:
    services = _services(given)
    settings = settings_of_work(given.settings)
    return Environment(
        TaskEnvironment(services, settings, default_toolbox, no_kind=NO_KIND), services
    )


def _services(given: Assignment) -> EntryServices:
    place = given.values
    match place.mode:
        case "cluster":
            return CarriedServices(CarriedValues())
        case "folder":
            return CarriedServices(FolderValues(ValuesFolder(place.url)))
        case "server":
            from anabranch.pools.entry.asking_server import AskingServices

            return AskingServices(place, given.worker)
        case other:
            raise InputError(f"this worker knows no place for values called {other!r:.40}")
