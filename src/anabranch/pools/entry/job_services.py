"""What the jobs of a process of the cluster may ask for, where no server is asked.

Large values came along with the job, or are in a folder that both sides see. Those of the result
go back the same way. Everything else needs the engine: results of loops, its credentials and child
runs are refused with a word on how to have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from anabranch.errors import InputError
from anabranch.pools.services import JobServices, Key, job_at_work
from anabranch.pools.values.folder import ValuesFolder
from anabranch.store.ports import Definition
from anabranch.work.secrets.credential_sources import Credential
from anabranch.work.secrets.oauth2 import KeychainError
from anabranch.work.values.payloads import hash_of

ADVICE = "give the pool the option values=server"


class JobParts(msgspec.Struct):
    """What came along with a job, and the values that its work has made."""

    definition: bytes  # encoded; most jobs find theirs compiled
    values: Mapping[str, bytes] = {}
    made: dict[str, bytes] = {}  # by hash: to travel with the outcome
    put: list[str] = []  # in the folder


class EntryServices(JobServices, Protocol):
    """The services of a process, which are told of every job."""

    def begin(self, key: Key, parts: JobParts) -> None: ...

    def end(self, key: Key) -> None: ...

    async def find(self, sha256: str) -> bytes | None:
        """A value that a job needs, and that did not come along."""

    async def close(self) -> None: ...


def read_definition(content: bytes) -> Definition:
    return msgspec.json.decode(content, type=Definition)


class _PartsOfJobs:
    """The jobs of this process, each with what came along with it."""

    def __init__(self) -> None:
        self._jobs: dict[Key, JobParts] = {}

    def begin(self, key: Key, parts: JobParts) -> None:
        self._jobs[key] = parts

    def end(self, key: Key) -> None:
        self._jobs.pop(key, None)

    @property
    def current(self) -> JobParts:
        return self._jobs[job_at_work.get()]


class CarriedValues(_PartsOfJobs):
    """Values that travel with the job and with its outcome."""

    async def get(self, sha256: str) -> bytes | None:
        job = self.current
        found = job.values.get(sha256)
        found = job.made.get(sha256) if found is None else found
        if found is None:
            raise InputError(
                f"the payload {sha256} did not travel with the job, which names it nowhere: "
                f"{ADVICE}, or that of a shared folder",
                code="payload_elsewhere",
            )
        return found

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:  # noqa: ARG002
        sha256 = hash_of(content)
        self.current.made[sha256] = content
        return sha256

    async def find(self, sha256: str) -> bytes | None:  # noqa: ARG002 - there is no other place
        return None


class FolderValues(_PartsOfJobs):
    """Values in a folder that engine and cluster share."""

    def __init__(self, folder: ValuesFolder) -> None:
        super().__init__()
        self._folder = folder

    async def get(self, sha256: str) -> bytes | None:
        found = self.current.values.get(sha256)
        return found if found is not None else await self._folder.get(sha256)

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:  # noqa: ARG002
        sha256 = await self._folder.put(content)
        self.current.put.append(sha256)
        return sha256

    async def find(self, sha256: str) -> bytes | None:
        return await self._folder.get(sha256)


class NoLoops:
    """Results of loops are in the log of the engine, and here is no way to it."""

    async def size(self, ref: str) -> int:
        raise self._elsewhere(ref)

    async def results(
        self,
        ref: str,
        first: int,  # noqa: ARG002 - the port's signature
        stop: int,  # noqa: ARG002
        bytes_max: int | None,  # noqa: ARG002
    ) -> list[Any]:
        raise self._elsewhere(ref)

    @staticmethod
    def _elsewhere(ref: str) -> InputError:
        said = f"the results of {ref:.200} are at the engine, which this worker cannot ask"
        return InputError(f"{said}: {ADVICE}", code="results_elsewhere")


class NoCredentials:
    """Credentials of the engine do not travel."""

    label = f"the engine, which this worker cannot ask ({ADVICE})"

    def knows(self, name: str) -> bool | None:  # noqa: ARG002 - the port's signature
        return False

    async def find(self, name: str) -> Credential | None:
        raise KeychainError(
            f"there is no credential {name!r} on this worker, and it cannot ask the engine: keep "
            f"it there (credential_folder, credential_env_prefix), or {ADVICE}"
        )


class CarriedServices:
    """For the modes "cluster" and "folder"."""

    def __init__(self, values: CarriedValues | FolderValues) -> None:
        self.payloads = values
        self.loops = NoLoops()
        self.credentials = NoCredentials()
        self.begin, self.end, self.find = values.begin, values.end, values.find

    async def definition(self, fingerprint: str) -> Definition:  # noqa: ARG002 - the job says it
        return read_definition(self.payloads.current.definition)

    async def start_child(
        self,
        path: str,
        given: Mapping[str, Any],  # noqa: ARG002 - the port's signature
        run: str,  # noqa: ARG002
        parent: str | None,  # noqa: ARG002
        returns: str,  # noqa: ARG002
        marks: Mapping[str, Any],  # noqa: ARG002
    ) -> str:
        raise InputError(
            f"this worker cannot ask the engine to begin {path[:200]!r}: {ADVICE}, or run the step "
            "in the engine's own pool",
            code="no_children",
        )

    async def close(self) -> None:
        pass
