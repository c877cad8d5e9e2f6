"""`anabranch node serve`, in a process that is killed before or after one of its commits.

    python mortal_node.py FOLDER WHEN NUMBER

Commits count from the moment on when the file `armed` is in the folder of the node.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.cli.main import main

FOLDER, WHEN, NUMBER = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
commit = SqliteStore.commit
counted = 0


def mortal_commit(self: SqliteStore, *args: Any, **kwargs: Any) -> None:
    global counted
    counted += (FOLDER / "armed").exists()
    if counted == NUMBER and WHEN == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, *args, **kwargs)
    if counted == NUMBER and WHEN == "after":
        os.kill(os.getpid(), signal.SIGKILL)


SqliteStore.commit = mortal_commit  # type: ignore[method-assign,assignment]
main(["node", "serve", "--json", "--node", str(FOLDER)])
