"""The demo is right on a machine that has much else to do: its scenes follow what has been done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .busy import busy_neighbours

TIMES = int(os.environ.get("ANABRANCH_DEMO_TIMES", "1"))  # `make soak` asks for 20


@pytest.mark.slow
@pytest.mark.parametrize("time", range(1, TIMES + 1))
def test_every_scene_of_the_demo_succeeds_beside_busy_processes(tmp_path: Path, time: int) -> None:
    """The third scene is where time once counted: the voyage was over before it was killed."""
    with busy_neighbours() as neighbours:
        done = subprocess.run(
            [sys.executable, "-m", "anabranch", "demo", "--json"],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert all(neighbour.poll() is None for neighbour in neighbours), (
            "they were busy throughout"
        )
    assert done.returncode == 0, f"demo {time}: {done.stdout}\n{done.stderr}"
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert told["voyage"]["job.lost"] == 1
    assert told["voyage"]["token.finished"] == 41
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
