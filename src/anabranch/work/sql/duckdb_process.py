"""The process that runs DuckDB statements: `python -P duckdb_process.py CHANNEL OPTIONS`.

DuckDB opens whatever file a statement names, and a statement may put the name together. POSIX takes
all locks on a file from a process that closes any descriptor of it: in the process of the engine
such a statement would take SQLite's locks on the store, and the next writer beside it would damage
the file. Here there are no locks to lose. One process serves an engine, because DuckDB lets only
one process write to a file; it ends when the engine closes the channel.

The file is started by its path and loads little of `anabranch`, so that it is ready soon.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
from contextlib import suppress


def _find_the_package() -> None:
    """The one that this file belongs to, however the engine itself came by it."""
    here = os.path.abspath(__file__)
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here)))))


async def _serve(channel: int, options: str) -> None:
    from anabranch.work.sql import duckdb_session

    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=channel))
    await duckdb_session.serve(reader, writer, options.encode())


def main() -> None:
    channel, options = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(channel, False)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")  # when memory runs out the kernel should take this one first
    _find_the_package()
    asyncio.run(_serve(channel, options))


if __name__ == "__main__":
    main()
