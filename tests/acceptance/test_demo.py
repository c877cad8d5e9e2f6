"""The demo succeeds, also on a machine that has much else to do: its scenes follow what has been
done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quick_starts
from hangs import HANG_SECONDS

from .short_of_time import short_of_time

TIMES = int(os.environ.get("ANABRANCH_DEMO_TIMES", "1"))  # `make soak` asks for 20

pytestmark = pytest.mark.slow


def start(folder: Path) -> quick_starts.Popen[str]:
    return quick_starts.Popen(
        [sys.executable, "-m", "anabranch", "demo", "--json"],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def require_well(folder: Path, code: int, out: str, err: str) -> None:
    assert code == 0, f"{out}\n{err}"
    told = json.loads(out)
    assert told["ok"] is True
    assert told["voyage"]["job.lost"] == 1
    assert told["voyage"]["token.finished"] == 41
    assert list(folder.iterdir()) == [], "it leaves nothing behind"


def test_every_scene_of_the_demo_succeeds(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        out, err = demo.communicate(timeout=HANG_SECONDS)
    require_well(tmp_path, demo.returncode, out, err)


@pytest.mark.soak
@pytest.mark.parametrize("time", range(1, TIMES + 1))
def test_every_scene_of_the_demo_succeeds_where_every_process_gets_little_time(
    tmp_path: Path, time: int
) -> None:
    """The third scene is where time once counted: the voyage was over before it was killed."""
    with start(tmp_path) as demo:
        try:
            with short_of_time(demo.pid, seed=time) as stopped:
                out, err = demo.communicate(timeout=HANG_SECONDS)
        finally:
            demo.kill()
    require_well(tmp_path, demo.returncode, out, err)
    assert stopped.stops > 50
