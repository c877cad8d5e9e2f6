"""The first state of a process may be asked for by many threads at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.expressions.port import Constant
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import encode_state
from anabranch.net.net import Loop
from hangs import HANG_SECONDS

from .test_loops import Worker, looping

#: Each fork is a process that has read no state yet.
PROGRAM = """
import os, sys, threading
from anabranch.kernel.state import decode_state

data = open(sys.argv[1], "rb").read()

def read():
    together.wait()
    for _ in range(20):
        decode_state(data)

for _ in range(60):
    if not (pid := os.fork()):
        sys.setswitchinterval(1e-7)
        together = threading.Barrier(8)
        threads = [threading.Thread(target=read) for _ in range(8)]
        for one in threads: one.start()
        for one in threads: one.join()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.slow
def test_threads_that_read_the_first_states_at_once_all_get_theirs(tmp_path: Path) -> None:
    worker = Worker(looping(Loop(Constant(list(range(50))), window=Constant(4))), 1)
    worker.tell(s.Start(run="r"))
    for _ in range(9):
        worker._move(next(iter(worker.state.jobs.values())))
    (tmp_path / "state").write_bytes(encode_state(worker.state))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "state")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
