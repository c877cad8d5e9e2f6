"""The demo is right on a machine that has much else to do: its scenes follow what has been done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangs import HANG_SECONDS

from .short_of_time import short_of_time

TIMES = int(os.environ.get("ANABRANCH_DEMO_TIMES", "1"))  # `make soak` asks for 20


@pytest.mark.slow
@pytest.mark.parametrize("time", range(1, TIMES + 1))
def test_every_scene_of_the_demo_succeeds_where_every_process_gets_little_time(
    tmp_path: Path, time: int
) -> None:
    """The third scene is where time once counted: the voyage was over before it was killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch", "demo", "--json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            with short_of_time(demo.pid, seed=time) as stopped:
                out, err = demo.communicate(timeout=HANG_SECONDS)
        finally:
            demo.kill()
    assert demo.returncode == 0, f"demo {time}: {out}\n{err}"
    assert stopped.stops > 50
    told = json.loads(out)
    assert told["ok"] is True
    assert told["voyage"]["job.lost"] == 1
    assert told["voyage"]["token.finished"] == 41
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
