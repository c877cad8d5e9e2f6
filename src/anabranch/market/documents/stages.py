"""Rules for the stages of a delivery plan: quorums that can be met, fallbacks that end."""

from __future__ import annotations

from typing import Any

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import forbids, needs
from anabranch.market.documents.shapes import Object, whole_of

#: Selectors that stand for one node; the others may stand for any number.
_SINGLE = ("node", "object-store-indirect")


def check_quorum(stage: Object, path: str, found: Found) -> None:
    """`quorum/min-success` belongs to quorum, and to no other policy."""
    key, policy = "quorum/min-success", stage.get("success/policy", "all")
    if policy != "quorum":
        if policy in ("all", "any"):
            forbids(stage, path, found, (key,), f"`success/policy` {policy}")
        return
    needs(stage, path, found, (key,), "`success/policy` quorum")
    wanted, targets = whole_of(stage, key), stage.get("targets")
    if wanted is None or not isinstance(targets, list):
        return
    if all(_is_single(target) for target in targets) and wanted > len(targets):
        message = f"{wanted} of {len(targets)} targets can never succeed; write at most that many"
        found.add(below(path, key), "bad-number", message)


def _is_single(target: Any) -> bool:
    return isinstance(target, dict) and target.get("selector/kind") in _SINGLE


def check_stages(plan: Object, path: str, found: Found) -> None:
    """Every stage has its own id; `on/failure` names one of them and leads back to none."""
    stages = plan.get("stages")
    if not isinstance(stages, list):
        return
    places: dict[str, int] = {}
    for position, stage in enumerate(stages):
        named = stage.get("stage/id") if isinstance(stage, dict) else None
        if not isinstance(named, str):
            return  # told already
        where = below(below(below(path, "stages"), position), "stage/id")
        if named in places:
            message = f"{shown(named)} is the id of an earlier stage; give each its own"
            found.add(where, "bad-list", message)
            return
        places[named] = position
    following = _following(stages, places, path, found)
    if following is not None and (at := _loop(following)) is not None:
        where = below(below(below(path, "stages"), at), "on/failure")
        message = "the stages after a failure lead back here; name a stage that ends the plan"
        found.add(where, "stage-loop", message)


def _following(
    stages: list[Any], places: dict[str, int], path: str, found: Found
) -> list[int] | None:
    """For each stage the position of the one after its failure: as it says, else the next."""
    following = []
    known = True
    for position, stage in enumerate(stages):
        named = stage.get("on/failure")
        if isinstance(named, str) and named not in places:
            where = below(below(below(path, "stages"), position), "on/failure")
            found.add(where, "unknown-reference", f"there is no stage {shown(named)} in this plan")
            known = False
        following.append(places.get(named, 0) if isinstance(named, str) else position + 1)
    return following if known else None


def _loop(following: list[int]) -> int | None:
    """The stage whose failure leads to one that was tried before, if there is one."""
    tried: set[int] = set()
    at = 0
    while at < len(following):
        tried.add(at)
        if following[at] in tried:
            return at
        at = following[at]
    return None
