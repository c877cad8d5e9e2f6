"""Expressions are evaluated in turns of the kernel, or where the event loop is shared."""

from __future__ import annotations

import re
from pathlib import Path

import anabranch

SOURCES = Path(anabranch.__file__).parent

#: Why an evaluation here holds no event loop. A new place needs a reason of its own.
PLACES = {
    "dialects/arca/requests.py": "part of the inputs of a task",
    "dialects/noetl/admission.py": "in a turn",
    "dialects/noetl/sources.py": "in a turn",
    "dialects/noetl/tasks/assertions.py": "a rule of a pipeline",
    "dialects/noetl/tasks/code_reads.py": "part of the inputs of a task",
    "dialects/noetl/tasks/retries.py": "a rule of a pipeline",
    "dialects/schedule.py": "by `evaluate` in the starter, and in a thread where one is added",
    "dialects/xrc137/gas.py": "constants, in a thread",
    "dialects/xrc137/read.py": "constants, in a thread",
    "operations/triggers/rendering.py": "by `evaluate` in the firer, and for the key of a hook",
    "operations/workers/child_requests.py": "by `evaluate_with`",
    "operations/workers/credential_requests.py": "by `evaluate_with`",
    "operations/workers/claims.py": "by the share of the loop",
    "runtime/jobs/tasks.py": "by the share of the loop, or in a thread",
    "surfaces/ui/views/dispatches.py": "in a thread, like all that a page reads",
    "work/evaluations.py": "the share of the loop itself",
    "work/loops/items.py": "by `evaluate_with`",
    "work/loops/shards.py": "by the share of the loop, or in a thread",
    "work/pipeline/controls.py": "by `evaluate_with`",
    "work/pipeline/fast_path.py": "by `evaluate`",
    "work/pipeline/inner_loops.py": "by `render_with`",
    "work/pipeline/run.py": "by `render_with`",
    "work/pipeline/scope.py": "by `evaluate_with`",
    "work/pipeline/state.py": "by `evaluate_with`",
    "work/rule/branch.py": "by `evaluate`",
    "work/rule/evaluate.py": "by `evaluate`",
    "work/secrets/keyring.py": "by `with_credentials`; who only looks has a small budget",
    "runtime/jobs/executor.py": "by the share of the loop",
}


def test_every_place_that_evaluates_says_why_it_holds_no_event_loop() -> None:
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"(?<!rule)\.evaluate(_checked)?\b", path.read_text())
    }
    outside = {path for path in found if not path.startswith(("kernel/", "expressions/"))}
    assert outside == PLACES.keys()
