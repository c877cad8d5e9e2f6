"""The page of the catalog: every offer once, with its source, its trust, and what can be done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from .fake_arca import FakeArca
from .support import OFFER, Browser, TwoNodes, links, words

CATALOG = "GET service-catalog"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, arca: FakeArca) -> Iterator[TwoNodes]:
    """Two offers of the buyer, of which one is withdrawn; one of the provider."""
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes")), arca=arca) as running:
        for name in ("own", "old"):
            draft = {**OFFER, "offer/id": f"offer:{name}", "service/type": "text/translate"}
            running.buyer.ask("POST", "/v1/service-offers", draft)
        running.buyer.ask("POST", "/v1/service-offers/offer:old/withdraw")
        running.provider.ask("POST", "/v1/service-offers", OFFER)
        fetch(running)
        yield running


def fetch(nodes: TwoNodes) -> None:
    nodes.buyer.ask("POST", "/v1/service-offers/fetch", {"node_id": nodes.provider.node_id})


def rows(text: str) -> list[str]:
    table = text.partition("<tbody>")[2].partition("</tbody>")[0]
    return [words(f"<tr{row}") for row in table.split("<tr")[1:]]


def test_own_and_observed_offers_are_one_list_with_source_and_trust(
    nodes: TwoNodes, operator: Browser
) -> None:
    text = operator.page("/catalog")
    own, other = rows(text)
    assert "text/translate" in own
    assert "offer:own" in own
    assert "local" in own
    assert "Trust" not in own
    assert "offer:summaries" in other
    assert "observed" in other
    assert "federation" in other
    assert nodes.provider.node_id in other
    assert {"/offers/offer:own#order", "/offers/offer:summaries#order"} <= set(links(text))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["own", "summaries"]),
        ("show=withdrawn", ["old"]),
        ("show=expired", []),
        ("show=all", ["old", "own", "summaries"]),
        ("show=odd", ["own", "summaries"]),
        ("service_type=text/translate", ["own"]),
        ("service_type=text", []),
        ("provider=PARTICIPANT", ["summaries"]),
        ("provider=NODE", ["summaries"]),
        ("provider=NODE&service_type=text/translate", []),
    ],
)
def test_offers_are_found_by_service_provider_and_state(
    nodes: TwoNodes, operator: Browser, query: str, names: list[str]
) -> None:
    node, participant = map(quote, (nodes.provider.node_id, nodes.provider.participant_id))
    asked = query.replace("NODE", node).replace("PARTICIPANT", participant)
    found = rows(operator.page(f"/catalog?{asked}"))
    assert [one for name in names for one in found if f"offer:{name}" in one] == found
    assert len(found) == len(names)


def test_a_withdrawn_offer_cannot_be_ordered(operator: Browser) -> None:
    text = operator.page("/catalog?show=withdrawn")
    assert "withdrawn" in rows(text)[0]
    assert not any("#order" in one for one in links(text))


def test_a_provider_is_trusted_and_not_any_more_and_the_list_stays(
    nodes: TwoNodes, operator: Browser
) -> None:
    name = nodes.provider.participant_id
    here = "service_type=text%2Fsummarise"
    fields = {"participant_id": name, "here": here}
    found, _ = operator.fill(f"/catalog?{here}", "/catalog/trust", **fields)
    assert (found.status, found.headers["Location"]) == (
        303,
        "/catalog?service_type=text/summarise&note=trusted",
    )
    fetch(nodes)
    assert "explicit" in rows(operator.page("/catalog"))[1]
    assert "Trust no more" in rows(operator.page("/catalog"))[1]
    found, _ = operator.fill("/catalog", "/catalog/distrust", **fields)
    assert found.status == 303
    assert nodes.buyer.ask("GET", "/v1/trusted-providers")["items"] == []
    found, text = operator.fill("/catalog", "/catalog/distrust", **fields)
    assert (found.status, "is not trusted" in text) == (404, True)


def test_a_form_leads_to_no_other_page_than_the_catalog(nodes: TwoNodes, operator: Browser) -> None:
    name = nodes.provider.participant_id
    for here in ("//evil.example", "show=all&next=//evil.example", "\r\nSet-Cookie: a=b", "%0d%0a"):
        fields = {"participant_id": name, "here": here}
        found, _ = operator.fill("/catalog", "/catalog/trust", **fields)
        assert found.status == 303
        assert found.headers["Location"] in (
            "/catalog?note=trusted",
            "/catalog?show=all&note=trusted",
        )
    nodes.buyer.ask("DELETE", f"/v1/trusted-providers/{quote(name, safe='')}")


def test_offers_of_strangers_are_shown_to_the_operator_and_can_be_trusted(tmp_path: Path) -> None:
    with TwoNodes(tmp_path, offers={"federation": "none"}) as nodes:
        nodes.provider.ask("POST", "/v1/service-offers", OFFER)
        fetch(nodes)
        wary = Browser(nodes, nodes.buyer)
        wary.sign_in()
        text = wary.page("/catalog?show=hidden")
        (row,) = rows(text)
        assert "offer:summaries" in row
        assert "untrusted" in row
        assert "offer:summaries" not in " ".join(links(text))  # it has no page, and no order
        assert rows(wary.page("/catalog?show=all")) == []
        fields = {"participant_id": nodes.provider.participant_id, "here": "show=hidden"}
        wary.fill("/catalog?show=hidden", "/catalog/trust", **fields)
        fetch(nodes)
        assert rows(wary.page("/catalog?show=hidden")) == []
        assert "explicit" in rows(wary.page("/catalog"))[0]
        wary.close()


def test_offers_that_only_arca_knows_are_in_the_list_and_ordered_by_runs_alone(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    known = nodes.buyer.ask("GET", "/v1/service-offers/offer:summaries")
    replayed = {**known, "offer": {**known["offer"], "offer/id": "offer:replayed"}}
    hostile: list[Any] = [None, 5, {"offer": {"offer/id": "offer:odd", "sequence/no": []}}]
    arca.answers[CATALOG] = {"observed_offers": [known, replayed, *hostile]}
    text = operator.page("/catalog")
    found = [one for one in rows(text) if "offer:replayed" in one]
    assert len(found) == 1
    assert "arca" in found[0]
    assert not any("offer:replayed" in one for one in links(text))
    assert len([one for one in rows(text) if "offer:summaries" in one]) == 1
    arca.answers[CATALOG] = "nonsense"
    assert operator.page("/catalog")
    del arca.answers[CATALOG]


def test_a_catalog_of_arca_that_cannot_be_asked_is_named(
    nodes: TwoNodes, operator: Browser
) -> None:
    nodes.buyer.ask("POST", "/v1/modules/arca/stop")
    try:
        text = words(operator.page("/catalog"))
        assert "offer:own" in text
        assert "The catalog of Arca is not in this list: the module arca" in text
        assert "is stopped" in words(operator.page("/catalog"))
    finally:
        nodes.buyer.ask("POST", "/v1/modules/arca/start")
