"""What a compute cluster runs: one job at a time per call, with the performers of a worker.

It is imported by the processes of the cluster, so it must be installed there, in the version of the
engine. The first call of a process builds the environment; later calls find it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from anabranch.errors import InputError
from anabranch.pools.assignment import decode_assignment, version_of
from anabranch.pools.entry.process import EntryProcess
from anabranch.pools.entry.process import Tell as Tell
from anabranch.version import __version__

_processes: dict[int, EntryProcess] = {}  # by the id of the process: a fork needs its own
_lock = threading.Lock()


def perform(blob: bytes, tell: Tell) -> bytes:
    """Do the job of an encoded `Assignment`; returns an encoded `Outcome` or `Missing`. Blocks the
    calling thread. Never raises for what the work does; a first KeyboardInterrupt stops the work in
    order, a second one is passed on."""
    process = _process()
    try:
        given = decode_assignment(blob)
        version, wrong = given.version, ""
    except InputError as error:
        version, wrong = version_of(blob), str(error)
    if version != __version__:
        return process.refuse(
            f"worker {process.name} has anabranch {__version__}, and the engine "
            f"{version or 'another one'}: install the same version on both sides"
        )
    return (
        process.refuse(f"worker {process.name}: {wrong}") if wrong else process.perform(given, tell)
    )


def stop(tickets: Sequence[str]) -> None:
    """Tell the jobs that run in this process to stop; returns at once."""
    _process().stop(tickets)


def probe() -> dict[str, str]:
    """What this process is: python, anabranch, platform, name, process."""
    return _process().probe()


def close() -> None:
    """End what this process keeps for its jobs; it happens by itself when the process ends."""
    with _lock:
        found = _processes.pop(os.getpid(), None)
    if found is not None:
        found.close()


def _process() -> EntryProcess:
    with _lock:
        found = _processes.get(os.getpid())
        if found is None:
            found = _processes[os.getpid()] = EntryProcess()
        return found
