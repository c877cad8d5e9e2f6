"""The cache of passports: what counts at an instant, whoever issued it, wherever it came from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.clock import ManualClock
from anabranch.errors import InputError
from anabranch.market.node.directory.artifacts import kept_passport
from anabranch.market.node.directory.passport_cache import (
    CachedPassport,
    PassportCache,
    SourceContent,
)
from anabranch.market.node.directory.policy import IssuerPolicy
from anabranch.market.node.directory.revocations import Revocations
from anabranch.market.node.directory.settings import DirectorySettings, directory_settings
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.passports import passport_draft
from anabranch.work.participants.performers import rfc3339
from anabranch.work.participants.port import NotKnown, ParticipantQuery
from market.node.peers.support import Host, KeySigner
from market.support import NOW
from virtual import run_virtually

from .support import (
    CAPABILITY,
    DAY,
    HOUR,
    advertise,
    advertisement_of,
    holders,
    host,
    part_of,
    passport_of,
    register,
    revocation_of,
    revoke,
)

N2, N3, N4 = KeySigner(2), KeySigner(3), KeySigner(4)
LEDGER: dict[str, Any] = {"capability": "network-ledger", "scope": {"account_namespaces": ["a"]}}


async def counts(one: Host, passport: dict[str, Any], **more: Any) -> bool:
    answer = await register(one, passport, N2, **more)
    assert answer.status == 201, answer.body
    return holders(one, passport["capability_id"]) == [N2.node_id]


# -- who may issue ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("its operator", True),
        ("withdrawn", False),
        ("of another node", False),
        ("on the list", True),
        ("on the list of the capability", True),
        ("on the list of another capability", False),
        ("bound by the operator here", True),
        ("bound to another participant", False),
        ("operators may not", False),
        ("ledger of its operator", False),
        ("ledger by one on the list", True),
    ],
)
def test_a_passport_counts_if_its_issuer_may_issue_it_here(case: str, expected: bool) -> None:
    section: dict[str, Any] = {
        "on the list": {"issuers": [N3.participant_id]},
        "on the list of the capability": {
            "policies": {CAPABILITY: {"issuers": [N3.participant_id]}}
        },
        "on the list of another capability": {
            "policies": {"other": {"issuers": [N3.participant_id]}}
        },
        "bound by the operator here": {"bindings": {N2.node_id: N3.participant_id}},
        "bound to another participant": {"bindings": {N2.node_id: N4.participant_id}},
        "operators may not": {"policies": {CAPABILITY: {"operator": False}}},
        "ledger by one on the list": {"issuers": [N3.participant_id]},
    }
    own = case in ("its operator", "withdrawn", "operators may not", "ledger of its operator")
    own = own or case == "bound to another participant"
    more = LEDGER if "ledger" in case else {}

    async def scenario() -> None:
        one = await host(MemoryNetwork(), directory=section.get(case, {})).open()
        passport = passport_of(N2, N2 if own else N3, **more)
        assert (await register(one, passport, N2)).status == 201
        if case == "withdrawn":
            await advertise(one, advertisement_of(N2, at=NOW + 1), 2)
        assert (holders(one, passport["capability_id"]) == [N2.node_id]) is expected
        await one.close()

    run_virtually(scenario())


def test_a_revocation_beats_every_list() -> None:
    async def scenario() -> None:
        lists = {"issuers": [N3.participant_id], "bindings": {N2.node_id: N3.participant_id}}
        one = await host(MemoryNetwork(), directory=lists).open()
        passport = passport_of(N2, N3, life=None)
        assert await counts(one, passport)
        await revoke(one, revocation_of(passport, N2, by_issuer=False))
        assert holders(one) == []
        await one.close()
        again = await host(MemoryNetwork(), directory=lists, store=one.store).open()
        assert holders(again) == []
        cache, seen = part_of(again).cache, kept_passport(passport)
        cache.replace("a seed", SourceContent(
            {N2.node_id: {CAPABILITY: CachedPassport(seen, 1, NOW)}}, {}, again.clock.now()
        ))  # fmt: skip
        assert holders(again) == []
        await again.close()

    run_virtually(scenario())


def test_a_node_that_presents_a_passport_no_more_does_not_count_any_more() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork()).open()
        assert await counts(one, passport_of(N2))
        await advertise(one, advertisement_of(N2, at=NOW + 1), 2)
        assert holders(one) == []
        await one.close()

    run_virtually(scenario())


# -- time ------------------------------------------------------------------------------------


def test_expiry_is_looked_at_with_every_question() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork()).open()
        await register(one, passport_of(N2, life=HOUR), N2)
        await register(one, passport_of(N3, issued=NOW + 1000), N3)
        assert holders(one) == [N2.node_id]
        await asyncio.sleep(1)
        assert holders(one) == sorted([N2.node_id, N3.node_id])
        await asyncio.sleep(3598.999)
        assert N2.node_id in holders(one)
        await asyncio.sleep(0.001)
        assert holders(one) == [N3.node_id]
        await one.close()

    run_virtually(scenario())


#: What a passport is to the independent model: issued, ends, revoked, whether it may be issued.
facts = st.tuples(st.integers(0, 20), st.none() | st.integers(1, 20), st.booleans(), st.booleans())


@settings(max_examples=60)
@given(
    st.dictionaries(st.tuples(st.integers(2, 4), st.sampled_from(["a", "b", "seed"])), facts),
    st.lists(st.integers(-1, 45), min_size=1, max_size=12),
    st.integers(1, 30),
)
def test_the_answer_at_any_instant_is_what_a_plain_look_at_everything_gives(
    found: dict[tuple[int, str], tuple[int, int | None, bool, bool]],
    instants: list[int],
    stale: int,
) -> None:
    clock, revoked = ManualClock(NOW), Revocations()
    lists = DirectorySettings(issuers=(N3.participant_id,))
    cache = PassportCache(clock, IssuerPolicy(lists), revoked, stale)
    sources: dict[str, SourceContent] = {}
    for (number, source), (issued, life, is_revoked, allowed) in found.items():
        node, issuer = KeySigner(number), N3 if allowed else N4
        ends = None if life is None else rfc3339(NOW + issued + life)
        document = passport_draft(
            issuer.participant_id, issuer.node_id, node.node_id, CAPABILITY,
            issued_at=rfc3339(NOW + issued), expires_at=ends,
            passport_id=f"passport:capability:{source}",
        )  # fmt: skip
        if is_revoked:
            revoked.add(revocation_of({**document, "signature": {}}, issuer))
        content = sources.setdefault(source, SourceContent({}, {}, NOW))
        content.rows[node.node_id] = {CAPABILITY: CachedPassport(kept_passport(document), 1, NOW)}
    for source, content in sources.items():
        cache.replace(source, content)
    for at in sorted(instants):
        clock.advance_to(NOW + at)
        now = clock.now() - NOW
        expected = {
            KeySigner(number).node_id
            for (number, _), (issued, life, is_revoked, allowed) in found.items()
            if allowed and not is_revoked and now < stale
            and issued <= now and (life is None or now < issued + life)
        }  # fmt: skip
        assert [one.node_id for one in cache.holders(CAPABILITY)] == sorted(expected)
        assert cache.nodes_of(N3.participant_id) == sorted(expected)


def test_questions_for_capabilities_that_nothing_has_leave_nothing_behind() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), directory={"passports": [CAPABILITY]}).open()
        for name in (CAPABILITY, "x1", "x2"):
            holders(one, name)
        assert set(part_of(one).cache._answers) == {CAPABILITY}

    run_virtually(scenario())


def test_a_passport_that_was_issued_anew_does_not_count_as_it_was_before() -> None:
    clock = ManualClock(NOW + HOUR)
    lists = DirectorySettings(issuers=(N3.participant_id,))
    cache = PassportCache(clock, IssuerPolicy(lists), Revocations(), DAY)
    endless = kept_passport(passport_of(N2, N3, life=None))
    shortened = kept_passport(passport_of(N2, N3, issued=NOW + 1, life=1000))
    for source, one in (("a", endless), ("b", shortened)):
        rows = {N2.node_id: {CAPABILITY: CachedPassport(one, 1, NOW)}}
        cache.replace(source, SourceContent(rows, {}, clock.now()))
    assert cache.rows(CAPABILITY) == []


# -- where, and whose ------------------------------------------------------------------------


def test_where_a_node_is_comes_from_the_operator_or_from_its_newest_advertisement() -> None:
    async def scenario() -> None:
        given = {"endpoints": {N3.node_id: "http://given.test"}}
        one = await host(MemoryNetwork(), peers=given).open()
        directory = one.context.directory
        assert directory.endpoint(one.id) == one.url
        assert directory.endpoint(N2.node_id) == ""
        await advertise(one, advertisement_of(N2, url="http://old.test"))
        await advertise(one, advertisement_of(N3, url="http://other.test"))
        assert directory.endpoint(N2.node_id) == "http://old.test"
        assert directory.endpoint(N3.node_id) == "http://given.test"
        await advertise(one, advertisement_of(N2, at=NOW + 1, url="http://new.test"), 2)
        assert directory.endpoint(N2.node_id) == "http://new.test"
        await advertise(one, advertisement_of(N2, at=NOW + 2, url="wss://new.test"), 3)
        assert directory.endpoint(N2.node_id) == ""
        await one.close()

    run_virtually(scenario())


@pytest.mark.parametrize(
    "endpoints",
    [
        None, "text", [None], [{"endpoint/url": 5}], [{"endpoint/url": "no url"}],
        *([{"endpoint/url": url, "endpoint/transport": "http", "endpoint/role": "peer",
            "endpoint/priority": 0}]
          for url in ("http://a b", "http://127.0.0.1:9000/stop?x=", "http://127.0.0.1:9000/stop#",
                      "http://name:word@127.0.0.1:9000", "http://a\\b")),
    ],
)  # fmt: skip
def test_an_endpoint_of_another_shape_is_no_place(endpoints: Any) -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork()).open()
        answer = await advertise(one, advertisement_of(N2, endpoints=endpoints))
        assert answer.status == 201
        assert one.context.directory.endpoint(N2.node_id) == ""
        await one.close()

    run_virtually(scenario())


def test_nodes_of_a_participant_are_those_it_runs_or_was_bound_to() -> None:
    async def scenario() -> None:
        bindings = {N4.node_id: N2.participant_id}
        one = await host(MemoryNetwork(), directory={"bindings": bindings}).open()
        directory = one.context.directory
        await register(one, passport_of(N2), N2)
        assert directory.nodes_of(N2.participant_id) == sorted([N2.node_id, N4.node_id])
        assert directory.nodes_of(N3.participant_id) == []
        assert directory.nodes_of(one.participant) == [one.id]
        await one.close()

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"issuers": ["nonsense"]}, "nonsense"),
        ({"issuers": [N2.node_id]}, "no participant"),
        ({"bindings": {N2.participant_id: N2.participant_id}}, "no node"),
        ({"policies": {"a": {"issuers": ["participant:did:key:zX"]}}}, "participant:did:key:zX"),
        ({"sync_ms": 0}, "sync_ms"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_wrong_setting_is_named(section: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=rf"`directory` of the node.*{named}"):
        directory_settings({"directory": section})


# -- as the directory of workflows -----------------------------------------------------------


def asked(**more: Any) -> ParticipantQuery:
    return ParticipantQuery(**{"resolve": "capability", "capability_id": CAPABILITY, **more})


def offer_of(signer: KeySigner, service: str, price: int) -> dict[str, Any]:
    return {
        "provider/participant-id": signer.participant_id, "service/type": service,
        "pricing/amount": price,
    }  # fmt: skip


def test_steps_find_participants_in_the_cache() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork()).open()
        offers = [offer_of(N2, "text/a", 5), offer_of(N3, "text/b", 3), offer_of(N4, "text/a", 4)]
        found = part_of(one).participants(lambda: offers)
        assert found.find(asked()) == []
        assert "no passport" in found.why_nobody(asked())
        for signer in (N2, N3):
            await register(one, passport_of(signer), signer)
        both = found.find(asked())
        assert sorted(both) == sorted([N2.participant_id, N3.participant_id])
        assert found.find(asked(limit=1)) == both[:1]
        assert found.find(asked(one=True)) == [N3.participant_id]
        assert found.find(asked(filter={"service_type": "text/a"})) == [N2.participant_id]
        assert found.find(asked(filter={"node_id": N3.node_id})) == [N3.participant_id]
        assert found.find(asked(filter={"node_id": "other"})) == []
        assert "filter" in found.why_nobody(asked(filter={"node_id": "other"}))
        by_type = ParticipantQuery(resolve="task_type", task_type="text/a")
        assert found.find(by_type) == [N4.participant_id, N2.participant_id]
        offers.clear()
        assert found.find(asked(filter={"service_type": "text/a"})) == both
        await revoke(one, revocation_of(passport_of(N2), N2))
        await revoke(one, revocation_of(passport_of(N3), N3))
        assert found.find(asked()) == []
        await one.close()

    run_virtually(scenario())


def test_steps_find_participants_of_trusted_nodes_before_all_others() -> None:
    first, last = sorted((N2, N3), key=lambda signer: signer.participant_id)

    async def scenario() -> None:
        lists = {"bindings": {last.node_id: last.participant_id}}
        one = await host(MemoryNetwork(), directory=lists).open()
        for signer in (first, last):
            await register(one, passport_of(signer), signer)
        found = part_of(one).participants(list)
        assert found.find(asked()) == [last.participant_id, first.participant_id]
        await one.close()

    run_virtually(scenario())


def test_a_step_is_told_that_a_seed_is_unread_where_nobody_is_found() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), seeds=["http://nowhere.test"]).open()
        found = part_of(one).participants(list)
        with pytest.raises(NotKnown, match=r"nowhere\.test"):
            found.find(asked())
        await register(one, passport_of(N2), N2)
        assert found.find(asked()) == [N2.participant_id]
        await one.close()

    run_virtually(scenario())


def test_strangers_do_not_choose_their_place_in_a_list_and_take_none_of_a_trusted_node() -> None:
    strangers = [KeySigner(number) for number in range(20, 40)]
    vouched, named = KeySigner(40), KeySigner(41)

    async def order(number: int) -> list[str]:
        lists = {"issuers": [N2.participant_id]}
        peers = {"endpoints": {named.node_id: "http://named.test"}}
        one = await host(MemoryNetwork(), number, directory=lists, peers=peers).open()
        for signer in (*strangers, named):
            await register(one, passport_of(signer), signer)
        await register(one, passport_of(vouched, N2), vouched)
        rows = one.context.directory.holders(CAPABILITY)
        steps = part_of(one).participants(list).find(asked())
        assert steps[2:] not in (sorted(steps[2:]), sorted(steps[2:], reverse=True))
        await one.close()
        again = await host(
            MemoryNetwork(), number, directory=lists, peers=peers, store=one.store
        ).open()
        assert again.context.directory.holders(CAPABILITY) == rows, "it is the same when started"
        await again.close()
        nodes = [row["node_id"] for row in rows]
        trusted = sorted([vouched.node_id, named.node_id])
        assert (nodes[:2], [row["trusted"] for row in rows[:3]]) == (trusted, [True, True, False])
        assert sorted(nodes[2:]) == sorted(one.node_id for one in strangers)
        return nodes[2:]

    async def scenario() -> None:
        first, second = await order(1), await order(5)
        assert first not in (second, sorted(first))

    run_virtually(scenario())
