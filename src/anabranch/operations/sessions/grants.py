"""The register of grants: whoever encrypted something says who may read it.

A resource id belongs to whoever registers it first; they have all rights, and only they and those
who may manage it, until that ends, give more. Keys come wrapped for their reader, and are handed
out as they came.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence, Set
from typing import Any

from anabranch.dialects.xrc729.bundle import ADDRESS
from anabranch.errors import InputError, Refused
from anabranch.store.grant_ports import LOGS, MANAGE, READ, RULES, WRITE, Grant, Grants

ENTRIES_MAX = 16
LIMIT_MAX = 500
GRANTS_MAX = 5000  # of one owner; those that have expired do not count
_RID = re.compile(r"0x[0-9a-fA-F]{64}")
_BYTES = re.compile(r"(0x([0-9a-fA-F]{2}){0,512})?")
ALL = READ | WRITE | MANAGE
#: Between the look at who has an id and the claim of it no other thread claims it.
_CLAIMING = threading.Lock()


def put_grants(store: Grants, given: Mapping[str, Any], signer: str, now: int) -> int:
    """How many were made or changed. Raises `Refused` for whoever may not, and where their owner
    has enough. What has expired of theirs is forgotten."""
    with _CLAIMING:
        return _put_grants(store, given, signer, now)


def _put_grants(store: Grants, given: Mapping[str, Any], signer: str, now: int) -> int:
    rid, scope = _rid(given.get("rid")), _scope(given.get("scope", RULES))
    known = store.grants_of(rid, scope)
    owner = known[0].owner if known else signer
    said = given.get("owner")
    if said is not None and _address(said, "`owner`") != owner:
        raise Refused(f"the owner of {rid} is {owner}", code="not_allowed")
    until = None if signer == owner else _manages_until(known, rid, signer, owner, now)
    entries = given.get("entries")
    if not isinstance(entries, list) or not 0 < len(entries) <= ENTRIES_MAX:
        raise InputError(f"`entries` is a list of 1 to {ENTRIES_MAX} grants", code="params")
    common: dict[str, Any] = {
        "rid": rid,
        "scope": scope,
        "owner": owner,
        "ref_addr": str(given.get("refAddr") or "")[:64],
        "session": str(given.get("sessionId") or "")[:32],
    }
    made = [_entry(one, common, owner) for one in entries]
    if until is not None:
        _require_no_longer(made, signer, until)
    if not known and all(one.grantee != owner for one in made):
        latest = max(one.expires_at for one in made)
        made.append(Grant(grantee=owner, rights=ALL, expires_at=latest, is_owner=True, **common))
    store.forget_grants(owner, now)
    _require_room(store, owner, {one.grantee for one in made} - {one.grantee for one in known})
    store.put_grants(made)
    return len(made)


def _manages_until(known: Sequence[Grant], rid: str, signer: str, owner: str, now: int) -> int:
    """The last second of the right of somebody else. Raises `Refused` where there is none."""
    ends = [one.expires_at for one in known if one.grantee == signer and one.rights & MANAGE]
    if not ends:
        raise Refused(f"{signer} may not give rights to {rid}, only {owner}", code="not_allowed")
    if ends[0] < now:
        said = f"the right of {signer} to manage {rid} has ended at {ends[0]}: {owner} can renew it"
        raise Refused(said, code="not_allowed")
    return ends[0]


def _require_no_longer(made: Sequence[Grant], signer: str, until: int) -> None:
    """Who manages hands that on until their own end at most: it would never end for somebody who
    renews it, or goes on under a second address."""
    for one in made:
        if one.rights & MANAGE and not one.is_owner and one.expires_at > until:
            said = f"{signer} manages until {until}, and no MANAGE of theirs ends later"
            raise Refused(f"{said} (`expireAt` {one.expires_at})", code="not_allowed")


def _require_room(store: Grants, owner: str, new: Set[str]) -> None:
    if new and store.count_grants(owner) + len(new) > GRANTS_MAX:
        said = f"{owner} has {GRANTS_MAX:,} grants, which is the most: let some expire"
        raise Refused(said, code="too_many_grants")


def _entry(given: Any, common: Mapping[str, Any], owner: str) -> Grant:
    if not isinstance(given, Mapping):
        raise InputError("a grant is an object", code="params")
    grantee = _address(given.get("grantee"), "`grantee`")
    wrapped = given.get("encDEK") or ""
    if not isinstance(wrapped, str) or not _BYTES.fullmatch(wrapped):
        raise InputError("`encDEK` is hexadecimal, at most 512 bytes", code="params")
    own = grantee == owner
    return Grant(
        grantee=grantee,
        rights=ALL if own else _whole(given.get("rights"), "`rights`", 0, ALL),
        enc_dek=wrapped,
        expires_at=_whole(given.get("expireAt"), "`expireAt`", 0, 1 << 53),
        is_owner=own,
        **common,
    )


def found_grants(store: Grants, given: Mapping[str, Any], signer: str) -> dict[str, Any]:
    """Those that the signer has or has given; others are nobody else's business."""
    limit = _whole(given.get("limit", 100), "`limit`", 1, LIMIT_MAX)
    after = _whole(given.get("cursor", 0), "`cursor`", 0, 1 << 53)
    items: list[dict[str, Any]] = []
    while len(items) < limit:
        page = store.grants_for(signer, after, LIMIT_MAX)
        for one in page:
            after = one.id
            if _wanted(one, given):
                items.append(_item(one))
            if len(items) == limit:
                break
        if len(page) < LIMIT_MAX:
            break
    more = len(items) == limit and bool(store.grants_for(signer, after, 1))
    return {"items": items, "nextCursor": after if more else 0}


def _wanted(one: Grant, given: Mapping[str, Any]) -> bool:
    fields = {"rid": one.rid, "scope": one.scope, "refAddr": one.ref_addr}
    for key, value in fields.items():
        asked = given.get(key)
        if asked not in (None, "") and str(asked).lower() != str(value).lower():
            return False
    at = given.get("validAt")
    if at is not None and one.expires_at < _whole(at, "`validAt`", 0, 1 << 53):
        return False
    first = _whole(given.get("expireFrom", 0), "`expireFrom`", 0, 1 << 53)
    last = _whole(given.get("expireTo", 1 << 53), "`expireTo`", 0, 1 << 53)
    return first <= one.expires_at <= last


def _item(one: Grant) -> dict[str, Any]:
    return {
        "id": one.id,
        "rid": one.rid,
        "scope": one.scope,
        "grantee": one.grantee,
        "owner": one.owner,
        "rights": one.rights,
        "encDEK": one.enc_dek,
        "expiresAt": one.expires_at,
        "isOwner": one.is_owner,
        "txHash": "",
        "refAddr": one.ref_addr,
        "sessionId": one.session,
    }


# -- parameters ------------------------------------------------------------------------------------


def _rid(value: Any) -> str:
    if isinstance(value, str) and _RID.fullmatch(value):
        return value.lower()
    raise InputError("`rid` is 0x and 64 hex digits", code="params")


def _scope(value: Any) -> int:
    if value in (RULES, LOGS) and not isinstance(value, bool):
        return int(value)
    raise InputError("`scope` is 1 (rules) or 2 (logs)", code="params")


def _address(value: Any, what: str) -> str:
    if isinstance(value, str) and ADDRESS.fullmatch(value):
        return value.lower()
    raise InputError(f"{what} is an address, 0x and 40 hex digits", code="params")


def _whole(value: Any, what: str, least: int, most: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise InputError(f"{what} is a whole number from {least} to {most}", code="params")
