"""A simulation leaves nothing behind: servers that were killed in it close nothing."""

from __future__ import annotations

import gc

from anabranch.runtime.engine import EngineLoop
from anabranch.testing.simulated.servers import ServerSimulation
from hangs import collect_until_no_thread_is_left
from seeds import seeds


def test_threads_engines_and_memory_do_not_grow_with_the_seeds() -> None:
    chosen = seeds(200)
    half = len(chosen) // 2
    objects_before = _objects_after(chosen[:half])
    objects = _objects_after(chosen[half:])
    assert objects < 1.02 * objects_before


def _objects_after(chosen: range) -> int:
    for seed in chosen:
        ServerSimulation(seed).run()
    collect_until_no_thread_is_left()
    objects = gc.get_objects()
    assert not [one for one in objects if type(one) is EngineLoop]
    return len(objects)
