"""The section `dator`: what is wrong is refused with the name of the setting."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.modules.dator.config import dator_config, require_roles
from anabranch.modules.dator.drafts import content_of, offer_id_of
from modules.dator.support import OFFER, ROLE

NODE = "node:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"


def read(section: Any) -> Any:
    return dator_config({"dator": section})


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"colour": 1}, "colour"),
        ({"offers": [{**OFFER, "colour": 1}]}, "colour"),
        ({"offers": [{**OFFER, "dispatch": {"capability_id": "r", "colour": 1}}]}, "colour"),
        ({"roles": {ROLE: {"colour": 1}}}, "colour"),
        ({"push": {"colour": 1}}, "colour"),
        ({"offers": [{**OFFER, "pricing_amount": -1}]}, "pricing_amount"),
        ({"offers": [{**OFFER, "pricing_amount": 1.5}]}, "pricing_amount"),
        ({"offers": [{**OFFER, "pricing_unit_kind": "per-day"}]}, "pricing_unit_kind"),
        ({"offers": [{**OFFER, "confirmation_mode": "never"}]}, "confirmation_mode"),
        ({"offers": [{**OFFER, "queue_max_depth": -1}]}, "queue_max_depth"),
        ({"offers": [{**OFFER, "delivery_max_duration_sec": 0}]}, "delivery_max_duration_sec"),
        ({"offers": [{**OFFER, "dispatch": {"kind": "shell", "capability_id": "r"}}]}, "kind"),
        ({"offers": [{**OFFER, "model_first": True}]}, r"offers\[0\].model_first"),
        ({"offers": [{**OFFER, "offer_id": "mine"}]}, r"offers\[0\].offer_id"),
        ({"offers": [OFFER, OFFER]}, "text/summarise"),
        ({"roles": {ROLE: {"endpoint": "http://example.org:80"}}}, f"roles.{ROLE}.endpoint"),
        ({"roles": {ROLE: {"endpoint": "http://127.0.0.1:1/x"}}}, f"roles.{ROLE}.endpoint"),
        ({"roles": {ROLE: {"invoke_path": "../x"}}}, f"roles.{ROLE}.invoke_path"),
        ({"roles": {ROLE: {"auth_header": "X-Role"}}}, f"roles.{ROLE}.auth_header"),
        ({"roles": {ROLE: {"timeout_sec": 0}}}, "timeout_sec"),
        ({"push": {"node_ids": ["me"]}}, "push.node_ids"),
        ({"max_open": 1000}, "max_open"),
        ({"offers": [{**OFFER, "offer_id": f"offer:{n}"} for n in range(257)]}, "offers"),
        ([], "dator"),
    ],
)
def test_what_is_wrong_is_refused_by_name(section: Any, named: str) -> None:
    with pytest.raises(InputError, match=named) as raised:
        read(section)
    assert raised.value.code == "module_config"


def test_a_section_that_is_not_there_is_a_module_without_offers() -> None:
    assert dator_config({}).offers == ()


def test_every_offer_needs_a_role_where_roles_are_processes() -> None:
    with pytest.raises(InputError, match=rf"offers\[0\].*{ROLE}"):
        require_roles(read({"offers": [OFFER]}))
    with pytest.raises(InputError, match=f"roles.{ROLE}.endpoint"):
        require_roles(read({"offers": [OFFER], "roles": {ROLE: {}}}))
    role = {"endpoint": "http://127.0.0.1:48001"}
    require_roles(read({"offers": [OFFER], "roles": {ROLE: role}}))


def test_the_id_of_an_offer_follows_from_the_node_and_the_service() -> None:
    (one,) = read({"offers": [OFFER]}).offers
    (other,) = read({"offers": [{**OFFER, "pricing_amount": 5}]}).offers
    assert offer_id_of(one, NODE) == offer_id_of(other, NODE)
    assert offer_id_of(one, NODE) != offer_id_of(one, "node:did:key:zOther")
    (named,) = read({"offers": [{**OFFER, "offer_id": "offer:mine"}]}).offers
    assert offer_id_of(named, NODE) == "offer:mine"


def test_two_offers_for_one_service_have_names_of_their_own() -> None:
    offers = [{**OFFER, "offer_id": f"offer:{name}"} for name in ("quick", "good")]
    assert len(read({"offers": offers}).offers) == 2


@pytest.mark.parametrize("mode", [None, "automatic"])
def test_a_mode_that_is_only_for_this_profile_is_not_published(mode: str | None) -> None:
    (offer,) = read({"offers": [{**OFFER, "confirmation_mode": mode}]}).offers
    assert "confirmation/mode" not in content_of(offer, NODE)
