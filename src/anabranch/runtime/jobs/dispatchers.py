"""The names of dispatchers: workers inside an engine that have a compute cluster to do their jobs.

What such a worker has out is known to the process it lives in, and to nobody else. So a lease with
the name of a dispatcher that an engine finds in the log is one whose holder is gone: that engine
has just been started, or has just taken the run over. The name of no other worker looks like this.
"""

from __future__ import annotations

import re

ENGINES = ("dask", "ray", "simulated")

_NAME = re.compile(rf".+@({'|'.join(ENGINES)}):[\w.-]+", re.DOTALL)


def dispatcher_name(pool: str, engine: str, server: str) -> str:
    """`heavy@dask:5f3c…`; `server` is another one after each start."""
    return f"{pool}@{engine}:{server}"


def is_dispatcher(worker: str) -> bool:
    return _NAME.fullmatch(worker) is not None
