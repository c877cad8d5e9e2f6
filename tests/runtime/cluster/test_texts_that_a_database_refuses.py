"""PostgreSQL takes no zero byte in a text, and no long text into an index.

All runs of a turn are one transaction: what one of them brings is refused before it is in the way
of the others.
"""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch import Engine
from anabranch.errors import InputError
from anabranch.kernel import stimuli as s
from anabranch.store.ports import HeadFilter
from runtime.support import playbook, run, step

from .support import loop_of, settings

PLAIN = playbook(step("a"), name="plain")
LIMITED = playbook(
    step("a"),
    name="limited",
    concurrency={"key": "{{ input.who }}", "limit": 1},
    workload={"who": ""},
)
#: Nothing makes it shorter, so that it fits into an index with a short id beside it and not with a
#: long one.
LONG = "".join(random.Random(1).choices(string.ascii_letters, k=2600))


def start(engine: Engine, *given: Any, **more: Any) -> Awaitable[str]:
    return engine._open.verbs.start(*given, **more)


async def wake(engine: Engine) -> None:
    """As the rule of an orchestration asks for it, in a turn."""
    core = loop_of(engine)._core
    core.family.wake("a\0b", s.Wake(step="a", way="internal"))
    core.offer("nobody", s.Tick())  # there is a turn


Attempt = Callable[[Engine], Awaitable[Any]]
ATTEMPTS: dict[str, Attempt] = {
    "the mark of a secret": lambda engine: start(engine, PLAIN, marks={"***\0***": "secret"}),
    "the key of a limit": lambda engine: start(engine, LIMITED, {"who": "a\0b"}),
    "a long key of a limit": lambda engine: start(engine, LIMITED, {"who": "\U00010000" * 500}),
    "a name": lambda engine: start(engine, playbook(step("a"), name=LONG), run="r" * 120),
    "whom a rule wakes": wake,
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_text_that_a_database_refuses_is_in_nobody_elses_way(what: str, postgres: str) -> None:
    async def work() -> None:
        async with Engine(settings=settings(postgres)) as engine:
            if what == "whom a rule wakes":
                await wake(engine)
            else:
                with pytest.raises(InputError) as refused:
                    await ATTEMPTS[what](engine)
                assert refused.value.code in ("not_storable", "limit_key")
            others = [await start(engine, PLAIN, labels={"team": "b"})]
            others += [await start(engine, LIMITED, {"who": who}) for who in ("ann", "ben", "ann")]
            ended = await asyncio.gather(*(engine.wait(one) for one in others))
            assert {one.status for one in ended} == {"completed"}
            listed = engine.read.runs(HeadFilter(labels={"team": "b"}))
            assert [one["run"] for one in listed] == others[:1]

    run(work())


def test_a_label_with_a_zero_byte_is_found_and_breaks_no_list(postgres: str) -> None:
    async def work() -> None:
        async with Engine(settings=settings(postgres)) as engine:
            odd = await start(engine, PLAIN, labels={"team": "b", 'q"': "a\0b\\"})
            await start(engine, PLAIN, labels={"team": '","team":"b'})

            def found(**labels: str) -> list[str]:
                return [one["run"] for one in engine.read.runs(HeadFilter(labels=labels))]

            assert found(team="b") == found(**{'q"': "a\0b\\", "team": "b"}) == [odd]
            assert found(team="b", other="x") == found(team="") == found(eam="b") == []

    run(work())
