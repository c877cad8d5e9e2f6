"""Wake-ups between runs: what a step asked of others when it ended well.

The run that is woken is stepped in the same turn and committed in the same batch as the answer that
asked for it, so a crash can lose or repeat neither without the other, and there is nothing to send
again. A refusal is recorded nowhere: it was a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anabranch.ids import can_name_run
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import token_of
from anabranch.kernel.state import State
from anabranch.net.net import OWNER


def wake_ups(
    state: State, fresh: Sequence[e.Event], event: e.JobReported
) -> Iterator[tuple[str, s.Wake]]:
    """(run, stimulus) for every wake-up of an answer, once its step run is `done`."""
    token = token_of(event.job)
    if not any(
        isinstance(each, e.TokenFinished) and each.token == token and each.ending == "done"
        for each in fresh
    ):
        return
    result = event.answer.result
    output = result if isinstance(result, Mapping) else {}
    for asked in event.answer.wakes:
        if not can_name_run(asked.run):  # a rule has worked it out: it may be any text
            continue
        wake = s.Wake(
            step=asked.step,
            payload={**output, **asked.payload},
            actor=f"{state.run}:{token}",
            way="internal",
            asker=asked.owner or state.labels.get(OWNER, ""),
            rule=asked.rule,
            runner=asked.runner,
        )
        yield asked.run, wake
