"""What work asks for while it is done away from the engine, as a port.

A worker asks a server. A process of a compute cluster has what came along with the job, a shared
folder, or a server. Everything is asked for in the name of the job that needs it: `job_at_work`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from anabranch.errors import AnabranchError
from anabranch.store.ports import Definition
from anabranch.work.loops.results import Loops
from anabranch.work.secrets.credential_sources import CredentialSource
from anabranch.work.values.payloads import PayloadPort

Key = tuple[str, str, int]  # run, job, attempt

#: The job that the current task works for.
job_at_work: ContextVar[Key] = ContextVar("anabranch_job")


class JobRefused(AnabranchError):
    """Nothing is given or taken in the name of this job any more: it is no longer out."""

    too_large = False  # only what was sent was refused: there is a limit to its size


class JobServices(Protocol):
    """One per environment; all jobs of a process use the same one."""

    @property
    def payloads(self) -> PayloadPort: ...

    @property
    def loops(self) -> Loops: ...

    @property
    def credentials(self) -> CredentialSource: ...

    async def definition(self, fingerprint: str) -> Definition:
        """The source of what the job is part of."""

    async def start_child(
        self,
        path: str,
        given: Mapping[str, Any],
        run: str,
        parent: str | None,
        returns: str,
        marks: Mapping[str, Any],
    ) -> str:
        """Begin a child run: it belongs to the engine, whoever asks for it. `marks` stand for the
        secrets in what it is given."""
