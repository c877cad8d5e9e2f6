"""What strangers make a directory do: how much work a document is, and a question."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch.market.node.directory.artifacts import ADVERTISEMENT
from anabranch.market.passports import PASSPORT
from costs import calls
from market.checks import BESIDE, HERE, watch_checks
from market.node.peers.support import Host, KeySigner

from .support import (
    advertise,
    advertisement_of,
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
