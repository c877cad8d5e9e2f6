"""The deeds in a process of a cluster that plants programs in what it says.

Whoever unpickles a `Bomb` leaves the id of their process in a folder.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pools import deeds
from pools.deeds import stop

__all__ = ["Bomb", "perform", "probe", "stop", "victims"]

_LEAVE_ID = "import os; os.makedirs(os.path.join({folder!r}, str(os.getpid())), exist_ok=True)"


class Bomb(Exception):
    """An error, too, so that it can be raised."""

    def __init__(self, folder: str, more: str = "") -> None:
        super().__init__("a bomb")
        self.code = f"{_LEAVE_ID.format(folder=folder)}\n{more}"

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (self.code,)


def victims(folder: Path) -> set[int]:
    """The processes that have unpickled one."""
    return {int(each.name) for each in folder.iterdir()}


def probe() -> dict[str, Any]:
    said: dict[str, Any] = dict(deeds.probe())
    folder = os.environ.get("HOSTILE_PROBE")
    return {**said, "more": Bomb(folder)} if folder else said


def perform(given: bytes, tell: Any) -> Any:
    return deeds.perform(given, tell)


def _instead_once(module: Any, name: str, hostile: Callable[..., Any]) -> None:
    """The next call of this function of our own comes to something else."""
    ours = getattr(module, name)

    def call(*given: Any, **more: Any) -> Any:
        setattr(module, name, ours)
        return hostile(*given, **more)

    setattr(module, name, call)


def _raise(bomb: Bomb) -> Any:
    raise bomb


# -- on Dask -----------------------------------------------------------------------------------


def _dask_answer(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """A small one is sent ahead, too; a large one is fetched."""
    from anabranch.pools.dask import worker

    tell("started", b"")
    _instead_once(worker, "encode_answer", lambda _answer: Bomb(said["folder"]))
    return bytes(said.get("size", 0))


def _dask_error(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    from anabranch.pools.dask import worker

    tell("started", b"")
    _instead_once(worker, "encode_answer", lambda _answer: _raise(Bomb(said["folder"])))
    return b""


def _dask_warning(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """Dask's clients listen to warnings of workers, which are pickles in a message."""
    from distributed import get_worker

    tell("started", b"")
    bomb = pickle.dumps(Bomb(said["folder"]))
    get_worker().log_event("warn", {"message": bomb, "category": bomb})
    return b"warned"


def _dask_progress(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """What a worker has told is fetched."""
    from distributed import get_worker

    from anabranch.pools.dask.worker import TAKE

    worker = get_worker()
    ours = worker.handlers[TAKE]

    def take(tickets: Any) -> Any:
        worker.handlers[TAKE] = ours
        return {said["ticket"]: [Bomb(said["folder"])]}

    worker.handlers[TAKE] = take
    tell("started", b"")
    tell("progress", b"1")
    stop.wait(0.5)
    return b"told"


# -- on Ray ------------------------------------------------------------------------------------

#: For the relay: what it says next is a bomb for the driver.
_RELAY = "from pools.deeds_hostile import take_over_relay; take_over_relay({folder!r})"


def take_over_relay(folder: str) -> None:
    from anabranch.pools.ray import worker

    _instead_once(worker, "encode_said", lambda _said: Bomb(folder))


def _ray_answer(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    """The relay unpickles what a job says, and from then on says what it is told to."""
    from anabranch.pools.ray import worker

    folder, hostile = said["folder"], worker.__dict__
    tell("started", b"")

    class Outcome(type):
        """What stands in the place of the type `bytes` where the outcome is packed."""

        def __instancecheck__(cls, _outcome: object) -> bool:
            return True

        def __call__(cls, _outcome: object) -> Any:
            del hostile["bytes"]
            return Bomb(folder, _RELAY.format(folder=folder))

    hostile["bytes"] = Outcome("bytes", (), {})
    return b""


deeds._DEEDS |= {
    "dask_answer": _dask_answer,
    "dask_error": _dask_error,
    "dask_warning": _dask_warning,
    "dask_progress": _dask_progress,
    "ray_answer": _ray_answer,
}
