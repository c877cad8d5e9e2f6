"""How long a test waits for what must happen before it takes it for a hang.

A busy machine makes everything late, so this is no measure of anything: what must be quick is a
benchmark.
"""

from __future__ import annotations

import gc
import threading
import time

HANG_SECONDS = 120.0

# Time limits for work that must end within one, tried in this order: the first is enough on a quiet
# machine, and what fails with all of them does not fail for want of time. A test says
# `assert any(trial(limit) for limit in PATIENCE)`.
PATIENCE = (0.5, 2.0, 8.0, 32.0, 128.0)


def engine_threads() -> list[threading.Thread]:
    """Those of files serve the whole process, for as long as it lives."""
    ours = [one for one in threading.enumerate() if one.name.startswith("anabranch")]
    return [one for one in ours if not one.name.startswith("anabranch-files")]


def collect_until_no_thread_is_left() -> None:
    """Of engines that nobody has any more. A thread that is at work just now still has one."""
    deadline = time.monotonic() + HANG_SECONDS
    while engine_threads():
        assert time.monotonic() < deadline, engine_threads()
        gc.collect()
        time.sleep(0.02)
    gc.collect()
