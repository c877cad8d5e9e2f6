"""Signed documents of a directory, read and checked: passports, revocations, advertisements.

Shape and signature are those of `market/documents`; time is looked at here, because a document of a
node whose clock is a little ahead is none from the future.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents import DocumentProblem, check, digest_of
from anabranch.market.identities import canonical
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import SKEW_MS
from anabranch.market.passports import PASSPORT, REVOCATION, Passport, instant, read_passport

ADVERTISEMENT = "capability-advertisement.v1"
#: Problems of a document that has the right shape: its author may not say this.
_NOT_ALLOWED = frozenset(
    {"wrong-signature", "bad-signature", "not-signable", "signature-unchecked", "wrong-role"}
)
#: Bytes of a document. Those that are made here have 700, an advertisement as many more for each of
#: its passports; anyone may send one with more fields, and a directory keeps and tells them all.
DOCUMENT_BYTES = 16 * 1024
BYTES_OF = {REVOCATION: 2 * 1024, ADVERTISEMENT: 256 * 1024}
ENDPOINTS_MAX = 8
ENDPOINTS_BYTES = 4 * 1024  # of all: they stand in every row of their node
_ENDPOINT = ("endpoint/url", "endpoint/transport", "endpoint/role", "endpoint/priority")
_URL_MAX = 2048
#: A question or a fragment would swallow the path that this node adds, and a node could choose what
#: others post to on their own machine; what stands before an at sign would be sent as a password.
_NOT_IN_A_URL = frozenset(" ?#@\\")


class CheckedPassport(msgspec.Struct, frozen=True):
    """A passport whose signature holds, with what its revocation may name."""

    passport: Passport
    document: Mapping[str, Any]

    @property
    def delegation(self) -> str:
        found = self.document.get("issuer_delegation")
        return str(found.get("delegation_id", "")) if isinstance(found, Mapping) else ""

    @property
    def revocation_ref(self) -> str:
        return str(self.document.get("revocation_ref") or "")

    @property
    def issued_on_its_node(self) -> bool:
        """Whether the issuer says that the node is its own."""
        return self.document.get("issuer/node_id") == self.passport.node_id


def require_document(document: Any, kind: str, at: str = "") -> None:
    """Raises `NodeError`: 413 for one that is too large, 400 for the wrong shape, 403 for a
    signature that does not hold."""
    require_small(document, kind, at)
    problems = check(document, kind=kind)
    if not problems:
        return
    shape = [one for one in problems if one.code not in _NOT_ALLOWED]
    if shape:
        raise NodeError(400, "schema", _told(shape, at))
    raise NodeError(403, problems[0].code, _told(problems, at))


def require_small(document: Any, kind: str, at: str = "") -> None:
    """Before anything is looked at: what is kept for each other node has an end."""
    most = BYTES_OF.get(kind, DOCUMENT_BYTES)
    if (size := size_of(document, at)) > most:
        message = f"{at}: {size:,} bytes; a directory takes up to {most:,}"
        raise NodeError(413, "too-large", message.removeprefix(": "))


def size_of(document: Any, at: str = "") -> int:
    """Bytes of a document on the wire. Raises `NodeError`."""
    return len(_encoded(document, at))


def _encoded(document: Any, at: str) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (UnicodeEncodeError, RecursionError):
        raise NodeError(400, "schema", f"{at}: this is not JSON") from None


def _told(problems: list[DocumentProblem], at: str) -> str:
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{at}{first.path}: {first.message}{more}"[:1000]


def checked_passport(document: Any, at: str = "") -> CheckedPassport:
    require_document(document, PASSPORT, at)
    try:
        return CheckedPassport(read_passport(document), document)
    except InputError as error:
        raise NodeError(403, "wrong-signature", error.message) from None


def kept_passport(document: Mapping[str, Any]) -> CheckedPassport:
    """One that was checked before it was kept here."""
    expires = document.get("expires_at")
    passport = Passport(
        document["passport_id"],
        document["node_id"],
        document["capability_id"],
        document["issuer/participant_id"],
        instant(document["issued_at"], "issued_at"),
        None if expires is None else instant(expires, "expires_at"),
        document["scope"],
    )
    return CheckedPassport(passport, document)


def require_current(passport: Passport, now: int) -> None:
    """Its time has come and has not passed."""
    if passport.issued_at > now + SKEW_MS:
        raise NodeError(403, "not-yet-valid", "the passport was issued in the future")
    if passport.expires_at is not None and passport.expires_at <= now:
        raise NodeError(403, "expired", "the passport has expired")


def require_published(document: Mapping[str, Any], now: int) -> None:
    """The time of the advertisement has come and has not passed."""
    if instant(document["published-at"], "published-at") > now + SKEW_MS:
        raise NodeError(403, "not-yet-valid", "the advertisement was published in the future")
    expires = document.get("expires-at")
    if expires is not None and instant(expires, "expires-at") <= now:
        raise NodeError(403, "expired", "the advertisement has expired")


class CheckedBefore:
    """Shape and signature of documents that come again and again, looked at once; from any
    thread."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._known: OrderedDict[bytes, None] = OrderedDict()  # used last: last
        self._lock = Lock()

    def require(self, document: Any, kind: str, at: str = "") -> None:
        key = hashlib.sha256(kind.encode() + _encoded(document, at)).digest()
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return
        require_document(document, kind, at)
        with self._lock:
            self._known[key] = None
            if len(self._known) > self._limit:
                self._known.popitem(last=False)


def published_at(advertisement: Mapping[str, Any]) -> int:
    return instant(advertisement["published-at"], "published-at")


_IDENTIFYING = ("passport_id", "issuer/participant_id", "node_id")


def identity_of(passport: Mapping[str, Any]) -> tuple[str, ...]:
    """Of a passport, as it was issued now or at another time."""
    return tuple(passport[key] for key in _IDENTIFYING)


def presented_by(advertisement: Mapping[str, Any]) -> frozenset[tuple[str, ...]]:
    """The passports that the node says with its own key that it holds."""
    presented = advertisement["capabilities/presented"]
    return frozenset(identity_of(one["passport"]) for one in presented)


def says(advertisement: Mapping[str, Any], passport: Mapping[str, Any]) -> bool:
    """Whether the node says with its own key that it holds this very document."""
    return any(one["passport"] == passport for one in advertisement["capabilities/presented"])


def endpoints_of(advertisement: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the node says that it is reached, the lowest priority number first."""
    rows = advertisement.get("endpoints")
    good = [row for row in rows if _is_endpoint(row)] if isinstance(rows, list) else []
    good.sort(key=lambda row: row["endpoint/priority"])
    first = [{name: row[name] for name in _ENDPOINT} for row in good[:ENDPOINTS_MAX]]
    while first and size_of(first) > ENDPOINTS_BYTES:
        first.pop()
    return first


def _is_endpoint(row: Any) -> bool:
    if not isinstance(row, Mapping):
        return False
    url, priority = row.get("endpoint/url"), row.get("endpoint/priority")
    return (
        isinstance(url, str)
        and "://" in url
        and len(url) <= _URL_MAX
        and url.isprintable()
        and not _NOT_IN_A_URL & set(url)
        and isinstance(priority, int)
        and not isinstance(priority, bool)
        and all(isinstance(row.get(f"endpoint/{name}"), str) for name in ("transport", "role"))
    )


def url_of(advertisement: Mapping[str, Any]) -> str:
    """The first URL that this node can call; "" if there is none."""
    for row in endpoints_of(advertisement):
        if not row["endpoint/url"].startswith(("ws://", "wss://")):
            return str(row["endpoint/url"])
    return ""


def digest_of_document(document: Any) -> str:
    return digest_of(canonical(document))
