"""A run with hosted Arca equals the same definition run with a book of participants.

Every case is a random definition. It is run twice: by Arca on a node, which asks other nodes and
orders from them, and by the engine of `anabranch run`, whose book has functions that answer as
those nodes do. Status, steps, outputs, attempts, dispatch records, decisions and the codes of
errors must be the same.

What differs by nature is named here and in `plain.py`, and nowhere else:

- The hosted side takes moments that the plain one does not: a search asks the host, a result has to
  be delivered, an order that has expired is noticed with the next look at it. Where it comes to
  something else, the plain side must come to that as well when everything takes a moment more.
- An order has an end of its own, and a peer that says nothing is given up. The functions of the
  book say that themselves; in dispatch records nobody has answered then.
- A provider that is away is `unreachable` in a fan-out. An order for it waits for its delivery
  until its time is over: it expires.
- The host of the buyer refuses an order that may not cost so much (`price-exceeded`), or for which
  no offer is known (`offer-not-found`, in a book `unknown_participant`): nothing is sent.
- Offers have no confirmation here, so a result ends its order; money is the matter of other tests.
- Words for people differ, as do some codes for one who cannot be reached.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from anabranch.testing.market import check_laws
from seeds import SHARE, part

from .cases import case_of
from .compared import compared, mirrored, to_mirror
from .market import Market, market_of
from .plain import Plain

PARTS = 3 if SHARE >= 1 else 1
CASES = 2_400 if SHARE >= 1 else 400  # of which a part: each is a market at work
CASES_OF_A_MARKET = 40  # passports of a node that is down expire at last
SHAKES = 60
#: Of the cases, those that depend on moments.
MOMENTS_MAX = 0.1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_hosted_run_equals_the_same_run_with_a_book_of_participants(number: int) -> None:
    seeds, moments = part(number, PARTS, CASES), 0
    for first in range(0, len(seeds), CASES_OF_A_MARKET):
        some = seeds[first : first + CASES_OF_A_MARKET]
        with market_of(some[0]) as market:
            moments += sum(played_alike(market, Plain(market), some))
            assert check_laws(market.world) == []
    assert moments <= max(2, len(seeds) * MOMENTS_MAX)


def played_alike(market: Market, plain: Plain, seeds: range) -> list[bool]:
    """For each case whether it depends on moments; raises where the two sides differ."""
    found = []
    for seed in seeds:
        case = case_of(seed, market.names)
        want, played = compared(plain.played(case)), market.played(case)
        got = compared(played)
        assert mirrored(played) == to_mirror(played), f"the host shows another case {seed}"
        shaken = got != want
        if shaken and all(compared(plain.shaken(case, k)) != got for k in range(SHAKES)):
            assert got == want, f"case {seed} in a market of {seeds[0]}: {case.definition}"
        found.append(shaken)
    return found


@pytest.mark.soak
def test_the_cases_reach_every_way_a_run_a_step_and_a_request_can_end() -> None:
    runs: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    requests: Counter[tuple[str, str]] = Counter()
    verbs: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    with market_of(0) as market:
        plain = Plain(market)
        for seed in range(250):
            case = case_of(seed, market.names)
            seen: dict[str, Any] = compared(plain.played(case))
            runs[seen["status"]] += 1
            steps.update(one["status"] for one in seen["steps"].values())
            codes.update(one["error"] for one in seen["steps"].values())
            requests.update((one[3], one[4]) for one in seen["dispatches"])
            verbs.update(verb for _, verb in seen["decided"])
    assert runs.keys() == {
        *("completed", "failed", "cancelled", "step_timeout", "deadline_exceeded")
    }
    assert steps.keys() >= {
        *("completed", "failed", "skipped", "cancelled", "step_timeout", "deadline_exceeded")
    }
    assert requests.keys() >= {
        *(("responded", "usable"), ("responded", "negative"), ("timeout", "")),
        *(("cancelled", "unreachable"), ("cancelled", "")),
    }
    assert verbs.keys() == {"fulfil", "reject", "resume", "cancel"}
    assert codes.keys() >= {
        *("no_paper", "expired", "price-exceeded", "unknown_participant", "quorum_unreachable"),
        *("unreachable", "unresolved_reference", "no_usable_response"),
    }
