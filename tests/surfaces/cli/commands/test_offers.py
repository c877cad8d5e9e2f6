"""`offers put|list|show|trust`: the catalog of a buyer, in its file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.clock import SystemClock
from anabranch.market import OfferCatalog
from anabranch.market.documents import sign
from anabranch.market.identities import SigningKey
from anabranch.work.participants.performers import rfc3339

from ..support import Here

KEY = SigningKey.from_seed(b"p" * 32)
NODE, PROVIDER = KEY.identity("node"), KEY.identity("participant")
NAME = "offer:summaries"
CATALOG = ("--catalog", "offers.db")


def offer(**changes: Any) -> dict[str, Any]:
    now = SystemClock().now()
    fields = {
        "schema/v": 1,
        "offer/id": NAME,
        "created-at": rfc3339(now - 60_000),
        "published-at": rfc3339(now - 60_000),
        "expires-at": rfc3339(now + 86_400_000),
        "sequence/no": 1,
        "provider/node-id": NODE,
        "provider/participant-id": PROVIDER,
        "service/type": "text/summarise",
        "service/description": "a summary",
        "pricing/amount": 250,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-item",
        "delivery/max-duration-sec": 60,
        "queue/auto-accept": True,
        "queue/max-depth": 4,
        "hybrid": False,
        **changes,
    }
    return sign("service-offer.v1", fields, KEY)


def relay(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "schema/v": 1,
        "relay/id": "offer-relay:1",
        "relay/origin-node-id": NODE,
        "relay/hops": 1,
        "relay/relayed-at": rfc3339(SystemClock().now()),
        "offer": document,
        **changes,
    }


def test_an_offer_is_put_trusted_listed_and_shown(here: Here) -> None:
    here.write("offer.json", json.dumps(offer()))
    done = here.run("offers", "put", "offer.json", *CATALOG)
    assert done.code == 0
    assert NAME in done.out
    assert "untrusted" in done.out
    done = here.run("offers", "list", *CATALOG)
    assert done.out == "no offers\n1 of providers that are not trusted: --hidden\n"
    assert NAME in here.run("offers", "list", "--hidden", *CATALOG).out
    assert here.run("offers", "show", NAME, *CATALOG).code == 2
    assert here.run("offers", "trust", PROVIDER, "--note", "a friend", *CATALOG).code == 0
    done = here.run("offers", "put", "offer.json", "--json", *CATALOG)
    assert done.json["counts"] == {"stored": 0, "stale": 1, "rejected": 0}
    done = here.run("offers", "list", "--json", *CATALOG)
    assert [row["trust_level"] for row in done.json["items"]] == ["explicit"]
    assert done.json["counts"] == {"local": 0, "observed": 1, "hidden": 0}
    shown = json.loads(here.run("offers", "show", NAME, *CATALOG).out)
    assert shown["offer"]["pricing/amount"] == 250
    assert shown["source_node_id"] == NODE


def test_trust_is_listed_and_removed(here: Here) -> None:
    done = here.run("offers", "trust", PROVIDER, "--json", *CATALOG)
    assert done.json == {"participant_id": PROVIDER, "trusted": True, "new": True}
    assert here.run("offers", "trust", PROVIDER, "--json", *CATALOG).json["new"] is False
    assert PROVIDER in here.run("offers", "trust", *CATALOG).out
    assert here.run("offers", "trust", PROVIDER, "--remove", *CATALOG).code == 0
    assert here.run("offers", "trust", *CATALOG).out.startswith("no provider is trusted")
    assert here.run("offers", "trust", PROVIDER, "--remove", *CATALOG).code == 2
    assert here.run("offers", "trust", "--remove", *CATALOG).code == 2
    assert here.run("offers", "trust", NODE, *CATALOG).code == 2


def test_lists_are_chosen_by_service_provider_and_end(here: Here) -> None:
    here.run("offers", "trust", PROVIDER, *CATALOG)
    translate = {"offer/id": "offer:t", "service/type": "text/translate", "pricing/amount": 1}
    gone = {"offer/id": "offer:gone", "offer/status": "withdrawn", "pricing/amount": 2}
    documents = [relay(offer()), offer(**translate), {"relay": relay(offer(**gone))}]
    here.write("all.json", json.dumps([{"offers": documents[:1]}, *documents[1:]]))
    assert here.run("offers", "put", "all.json", *CATALOG).code == 0

    def names(*words: str) -> list[str]:
        found = here.run("offers", "list", "--json", *words, *CATALOG).json["items"]
        return [row["offer"]["offer/id"] for row in found]

    assert names() == ["offer:t", NAME]
    assert names("--service-type", "text/translate") == ["offer:t"]
    assert names("--provider", PROVIDER, "--limit", "1") == ["offer:t"]
    assert names("--provider-node", "node:other") == []
    assert names("--all") == ["offer:t", "offer:gone", NAME]
    assert "(withdrawn)" in here.run("offers", "list", "--all", *CATALOG).out


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**offer(), "pricing/amount": 1}, "wrong-signature"),
        (relay({**offer(), "pricing/amount": 1}), "wrong-signature"),
        (relay(offer(), **{"relay/hops": 4}), "too-many-hops"),
        (relay(offer(), **{"relay/intended-node-id": NODE}), "not-intended"),
        ({"offer/id": 7}, "missing-field"),
        ("text", "not-an-object"),
    ],
)
def test_what_is_wrong_is_rejected_with_its_class(here: Here, document: Any, reason: str) -> None:
    here.write("wrong.json", json.dumps(document))
    done = here.run("offers", "put", "wrong.json", "--json", *CATALOG)
    assert done.code == 1
    assert [one["reason"] for one in done.json["results"]] == [reason]
    assert here.run("offers", "list", "--hidden", "--json", *CATALOG).json["items"] == []


def test_a_file_that_cannot_be_read_changes_nothing(here: Here) -> None:
    here.write("good.json", json.dumps(offer()))
    here.write("bad.json", "{")
    for wrong in ("bad.json", "missing.json"):
        assert here.run("offers", "put", "good.json", wrong, *CATALOG).code == 2
    assert not (here.folder / "offers.db").exists()
    assert here.run("offers", "list", *CATALOG).code == 2
    assert here.run("offers", "list", "--catalog", "good.json").code == 2
    assert here.run("offers", "list", "--catalog", "a", "--node", "b").code == 2


def test_the_catalog_of_a_node_is_that_of_its_arca(here: Here) -> None:
    assert here.run("offers", "list", "--node", "buyer").code == 2
    assert here.run("node", "init", "buyer").code == 0
    assert here.run("offers", "list", "--node", "buyer").code == 2
    me = here.run("node", "id", "--node", "buyer").out.strip()
    here.write("offer.json", json.dumps(relay(offer(), **{"relay/intended-node-id": me})))
    done = here.run("offers", "put", "offer.json", "--node", "buyer")
    assert done.code == 0
    assert (here.folder / "buyer" / "middleware" / "arca" / "offers.db").exists()
    assert NAME in here.run("offers", "list", "--hidden", "--node", "buyer").out


def test_a_catalog_that_a_module_has_open_is_used_at_once(here: Here) -> None:
    catalog = OfferCatalog(here.folder / "offers.db")
    here.run("offers", "trust", PROVIDER, *CATALOG)
    assert tuple(catalog.admit(relay(offer()), source_node=NODE)) == ("stored", "")
    assert NAME in here.run("offers", "list", *CATALOG).out
    catalog.close()
