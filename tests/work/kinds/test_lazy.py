"""Work that is done with secrets of the engine itself is given them: its answers are cleaned."""

from __future__ import annotations

from anabranch.kernel.values import Answer, failed
from anabranch.runtime.jobs.executor import carry_out
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.port import Task

from ..support import run, task

KEY = "0123456789abcdef" * 4


class Leaking:
    async def perform(self, _: Task) -> Answer:
        return failed("rpc", f"the node refused the key 0x{KEY.upper()}")


def test_a_rule_that_fails_with_the_key_of_the_chain_does_not_show_it() -> None:
    answer = run(carry_out(LazyPerformer(Leaking, (KEY,)), task("rule")))
    assert isinstance(answer, Answer)
    assert answer.fault is not None
    assert answer.fault.message == "the node refused the key 0x***"
    assert answer.redacted == 1
