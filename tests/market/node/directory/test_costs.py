"""What strangers make a directory do: how much work a document is, and a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from anabranch.market.node.directory import passport_cache
from anabranch.market.node.directory.artifacts import ADVERTISEMENT
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.passports import PASSPORT
from costs import calls
from market.checks import BESIDE, HERE, watch_checks
from market.node.peers.support import Host, KeySigner
from market.support import NOW
from seeds import seeds
from virtual import run_virtually

from .support import (
    CAPABILITY,
    DAY,
    HOUR,
    advertise,
    advertisement_of,
    host,
    part_of,
    passport_of,
    read,
    register,
    revocation_of,
    revoke,
)
from .test_seed_directory import N2, N3, N4, at_a_directory


def test_documents_that_are_much_to_look_at_are_checked_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand bytes may be five thousand values; fifty of them held the loop for a second."""
    checks = watch_checks(monkeypatch)

    async def work(one: Host) -> None:
        few, many = passport_of(N2), passport_of(N3, extra=[1] * 900)
        for given, node, expected in ((few, N2, HERE), (many, N3, BESIDE)):
            checks.clear()
            advertised = advertisement_of(node, given)
            assert (await advertise(one, advertised)).status == 201
            assert (await register(one, given, node, 2)).status == 201
            assert {where for _, where in checks} == {expected}
            assert sorted(kind for kind, _ in checks) == [ADVERTISEMENT, PASSPORT]
        checks.clear()
        wrong = {**advertisement_of(N4, *[passport_of(N4, extra=[1] * 900)]), "signature": {}}
        assert (await advertise(one, wrong)).status == 403
        assert [where for _, where in checks] == [BESIDE], "what is refused, too"

    at_a_directory(work)


def test_no_question_goes_through_what_others_have_published() -> None:
    """Who asks for a participant, or for what is new, makes no more work where there is more."""

    async def work(one: Host) -> None:
        part, costs = part_of(one), []
        await register(one, passport_of(N2), N2)
        questions: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: read(one, f"/participant/{N2.participant_id}"),
            lambda: read(one, "/revocations?since=100000"),
            lambda: read(one, "/revocations?since=2126-06-20T08:00:00Z"),
        ]
        for first in (100, 130):
            for number in range(first, first + 20):
                other = KeySigner(number)
                await register(one, passport_of(other), other)
                await revoke(one, revocation_of(passport_of(other, capability="x"), other))
            with calls() as counted:
                for ask in questions:
                    await ask()
                part.cache.changed()
                assert one.context.directory.nodes_of(N2.participant_id) == [N2.node_id]
            costs.append(sum(counted.values()))
        assert costs[1] <= costs[0] * 1.2

    at_a_directory(work)


@pytest.mark.parametrize("seed", seeds(12))
def test_an_answer_that_follows_the_changes_is_the_one_worked_out_anew(seed: int) -> None:
    dice = Random(seed)
    signers = [KeySigner(number) for number in range(2, 8)]
    issuer = signers[0]

    async def work(one: Host) -> None:
        cache = part_of(one).cache
        for number in range(1, 41):
            node = dice.choice(signers)
            life = dice.choice([HOUR, DAY])
            passport = passport_of(
                node, dice.choice([node, issuer]), life=life, issued=one.clock.now() - number
            )
            match dice.randrange(5):
                case 0:
                    await advertise(one, advertisement_of(node, at=one.clock.now()), number)
                case 1:
                    await revoke(one, revocation_of(passport_of(node), node))
                case 2:
                    await asyncio.sleep(dice.choice([1, 1800, 7200]))
                case _:
                    at = one.clock.now()
                    advertised = advertisement_of(node, passport, at=at)
                    await register(one, passport, node, number, advertisement=advertised)
            patched = cache.ranked(CAPABILITY), cache.holders(CAPABILITY)
            nodes = [cache.nodes_of(each.participant_id) for each in signers]
            cache.changed()
            assert patched == (cache.ranked(CAPABILITY), cache.holders(CAPABILITY))
            assert nodes == [cache.nodes_of(each.participant_id) for each in signers]
            everybody = cache.holders(CAPABILITY)
            for each, found in zip(signers, nodes, strict=True):
                named = [
                    row.node_id for row in everybody if row.participant_id == each.participant_id
                ]
                assert found == named

    at_a_directory(work, directory={"issuers": [issuer.participant_id]})


def test_one_publication_makes_no_answer_worked_out_anew() -> None:
    """One of a stranger, once a second, had a full directory gone through each time."""

    async def work(one: Host) -> None:
        directory, costs = one.context.directory, []
        for first, count in ((60, 4), (70, 40)):
            for number in range(first, first + count):
                other = KeySigner(number)
                await register(one, passport_of(other), other)
            directory.holders(CAPABILITY)
            with calls() as counted:
                await advertise(one, advertisement_of(N2, at=NOW + first), first)
                directory.holders(CAPABILITY)
            costs.append(sum(n for name, n in counted.items() if "passport_cache" in name))
        assert costs[1] < costs[0] * 3

    at_a_directory(work)


@pytest.mark.parametrize("seed", seeds(12))
def test_what_a_seed_says_anew_comes_to_the_same_as_all_of_it_worked_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Random(seed)
    signers = [KeySigner(number) for number in range(2, 8)]
    monkeypatch.setattr(passport_cache, "REBUILT_FROM", dice.choice([0, 2, 200]))

    async def scenario() -> None:
        network = MemoryNetwork()
        one = await host(network, 1).open()
        slowly = {"sync_ms": HOUR, "stale_ms": 2 * HOUR}
        reader = await host(network, 9, seeds=[one.url], directory=slowly).open()
        cache = part_of(reader).cache
        names = [each.participant_id for each in signers]

        def known() -> Any:
            urls = [cache.url(each.node_id) for each in signers]
            return cache.ranked(CAPABILITY), [cache.nodes_of(name) for name in names], urls

        for number in range(1, 13):
            for _ in range(dice.randrange(4)):
                node, at = dice.choice(signers), dice.choice([one, one, reader])
                issued = at.clock.now() - number
                passport = passport_of(node, life=dice.choice([HOUR, DAY]), issued=issued)
                advertised = advertisement_of(node, passport, at=at.clock.now(), url="http://x")
                if dice.randrange(4):
                    await register(at, passport, node, number, advertisement=advertised)
                elif dice.randrange(2):
                    await revoke(at, revocation_of(passport_of(node), node))
                else:
                    part_of(at).registry.drop([node.node_id])
            await asyncio.sleep(dice.choice([1, 61, 4000, 8000]))
            await part_of(reader).sync.sync()
            followed = known()
            cache._rebuild()
            assert followed == known()
        await reader.close()
        await one.close()

    run_virtually(scenario())
