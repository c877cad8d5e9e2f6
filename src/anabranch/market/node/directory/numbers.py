"""What stands beside a document in a publication: its number, and an endorsement.

The number of a publication is signed with the advertisement, or else it is anybody's: those who
copy what a node has published can write any number beside it. Such a one says which of two
publications of one instant is newer, and nothing about those that the node has published later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.directory.artifacts import published_at, require_small, size_of
from anabranch.market.node.errors import NodeError

SEQUENCE_MAX = 2**53 - 1


def advertisement_in(body: Any) -> tuple[dict[str, Any], int]:
    """With its number. Raises `NodeError`."""
    if not isinstance(body, dict) or not isinstance(body.get("advertisement"), dict):
        raise NodeError(400, "schema", "/advertisement: write the advertisement of the node")
    _require_number(body.get("sequence/no"))
    return body["advertisement"], body["sequence/no"]


def endorsement_in(body: Mapping[str, Any]) -> int:
    """Its bytes. Raises `NodeError`."""
    found = body.get("endorsement")
    if not isinstance(found, dict | None):
        raise NodeError(400, "schema", "/endorsement: write an object, or leave it out")
    if found is None:
        return 0
    require_small(found, "endorsement", "/endorsement")
    return size_of(found, "/endorsement")


def number_in(advertisement: Mapping[str, Any]) -> Any:
    """Of one that stands alone: that which it was signed with, or the instant of publication."""
    return advertisement.get("sequence/no", published_at(advertisement))


def is_signed_in(advertisement: Mapping[str, Any]) -> bool:
    return "sequence/no" in advertisement


def number_to_beat(known: int, before: int, now: int, signed: bool) -> int:
    """What the number of a publication has to be above that was published `now`, where one with
    the number `known` was published `before`."""
    return known if signed or now <= before else 0


def require_newer(submitted: int, current: int) -> None:
    if submitted <= current:
        numbers = {"current/sequence-no": current, "submitted/sequence-no": submitted}
        message = f"the number of the last one is {current}"
        raise NodeError(409, "stale-sequence", message, more=numbers)


def _require_number(sequence: Any) -> None:
    whole = isinstance(sequence, int) and not isinstance(sequence, bool)
    if not whole or not 1 <= sequence <= SEQUENCE_MAX:
        raise NodeError(400, "schema", "/sequence~1no: write a whole number from 1 on")
