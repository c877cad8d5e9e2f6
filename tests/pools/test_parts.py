"""Parts travel once per process, not once per job, and neither side grows with their number."""

from __future__ import annotations

import pytest

from anabranch.errors import InputError
from anabranch.pools import parts
from anabranch.pools.parts import SMALL_BYTES, PartsCache, PartsKnown
from anabranch.work.values.payloads import hash_of

LARGE = 10 * SMALL_BYTES


def kept(*contents: bytes) -> dict[str, bytes]:
    return {hash_of(content): content for content in contents}


# -- in a process of the cluster -------------------------------------------------------------


def test_a_process_keeps_the_parts_that_it_has_seen() -> None:
    cache = PartsCache()
    given = kept(b"one", b"two")
    cache.keep(given)
    assert [cache.get(sha256) for sha256 in given] == [b"one", b"two"]
    assert cache.has([*given, "other"]) == list(given)
    assert cache.get("other") is None


def test_a_process_keeps_no_more_than_it_may_and_the_last_used_longest() -> None:
    cache = PartsCache(bytes_max=100)
    first, second, third = (kept(bytes([n]) * 40) for n in range(3))
    cache.keep(first)
    cache.keep(second)
    (used,) = first
    cache.get(used)
    cache.keep(third)
    assert cache.has([*first, *second, *third]) == [*first, *third]
    cache.keep(kept(b"x" * 101))
    assert cache.has([*first, *third]) == [*first, *third], "too large to be kept at all"
    for n in range(1000):
        cache.keep(kept(f"{n:020}".encode()))
        assert cache.size <= 100


def test_a_part_that_is_not_what_its_hash_says_is_refused() -> None:
    cache = PartsCache()
    (sha256,) = kept(b"right")
    with pytest.raises(InputError, match="damaged"):
        cache.keep({sha256: b"wrong"})
    assert cache.get(sha256) is None


# -- in the dispatcher -----------------------------------------------------------------------


def test_a_small_part_goes_along_until_every_process_has_it() -> None:
    known = PartsKnown()
    assert known.choose("t1", {"a": 10}) == ["a"], "nothing is known of the cluster"
    known.heard("p1", had=["a"])
    assert known.choose("t2", {"a": 10}) == []
    known.heard("p2")
    assert known.choose("t3", {"a": 10, "b": 10}) == ["a", "b"]
    known.heard("p2", had=["a", "b"])
    assert known.choose("t4", {"a": 10, "b": 10}) == ["b"]


def test_what_a_process_asks_for_goes_along_whatever_is_known() -> None:
    known = PartsKnown()
    known.heard("p1", had=["a", "b"])
    assert known.choose("t1", {"a": 10, "b": LARGE}) == []
    known.heard("p1", lacks=["a", "b"])
    assert known.choose("t1", {"a": 10, "b": LARGE}, asked=["a", "b"]) == ["a", "b"]


def test_a_large_part_is_carried_by_one_job_while_nothing_is_known() -> None:
    known = PartsKnown()
    assert known.choose("t1", {"a": LARGE}) == ["a"]
    assert known.choose("t2", {"a": LARGE}) == []
    known.over("t1")
    assert known.choose("t3", {"a": LARGE}) == ["a"], "the first has not come to anything"


def test_as_many_jobs_carry_a_large_part_as_processes_lack_it_and_half_of_them_ask() -> None:
    known = PartsKnown()
    for n in range(4):
        known.heard(f"p{n}")
    sent = [known.choose(f"t{n}", {"a": LARGE}) for n in range(10)]
    assert sent == [["a"]] * 4 + [[]] * 6
    known.heard("p0", had=["a"])
    known.heard("p1", had=["a"])
    for n in range(4):
        known.over(f"t{n}")
    assert known.choose("t10", {"a": LARGE}) == [], "the other two ask"
    assert known.choose("t11", {"a": LARGE}, asked=["a"]) == ["a"]


def test_what_is_on_its_way_stays_within_its_limit_of_bytes() -> None:
    known = PartsKnown(carried_bytes=3 * LARGE)
    for n in range(100):
        known.heard(f"p{n}")
    sent = [known.choose(f"t{n}", {f"part{n}": LARGE}) for n in range(50)]
    assert sum(map(len, sent)) == 3
    known.over("t0")
    assert known.choose("t60", {"x": LARGE}) == ["x"]
    huge = PartsKnown(carried_bytes=LARGE)
    assert huge.choose("t", {"a": 5 * LARGE}) == ["a"], "one that is larger than that goes alone"


def test_packing_a_ticket_again_counts_what_it_carries_once() -> None:
    known = PartsKnown(carried_bytes=2 * LARGE)
    for _ in range(10):
        known.choose("t1", {"a": LARGE}, asked=["a"])
    assert known.choose("t2", {"b": LARGE}) == ["b"]


def test_a_process_that_is_gone_is_forgotten() -> None:
    known = PartsKnown()
    known.heard("gone")
    for _ in range(100):
        known.heard("p1", had=["a"])
    assert known.choose("t1", {"a": 10}) == [], "nobody is left that lacks it"
    known.heard("new")
    assert known.choose("t2", {"a": 10}) == ["a"], "the place of the other has no parts"


def test_another_cluster_is_sent_everything_again() -> None:
    known = PartsKnown()
    known.heard("p1", had=["a"])
    known.choose("t1", {"b": LARGE})
    known.forget()
    assert known.choose("t2", {"a": 10, "b": LARGE}) == ["a", "b"]


def test_the_dispatcher_forgets_parts_and_processes_beyond_its_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "PARTS_KNOWN", 50)
    monkeypatch.setattr(parts, "PROCESSES_KNOWN", 20)
    known = PartsKnown()
    for n in range(1000):
        known.heard(f"p{n}", had=[f"part{n}"])
        known.choose(f"t{n}", {f"part{n}": LARGE})
        known.over(f"t{n}")
    assert len(known._holders) <= 50
    assert len(known._bits) <= 20
    assert max(known._bits.values()) < 1 << 21, "places are used again"
    assert not known._carriers
    assert not known._tickets
