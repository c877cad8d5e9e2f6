"""One-shot tokens of calls to acceptors: what a module hands back to close an admission out.

They are in memory alone: after a restart the artifact is offered again, with another token.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from anabranch.market.node.delivery.arrivals import Arrival, CloseOut
from anabranch.market.node.delivery.envelope import RESULT

TOKENS_KEPT = 10_000
_TOKEN_BYTES = 32


class _Token(NamedTuple):
    token: str
    acceptor_id: str
    arrival: Arrival


class InvocationTokens:
    """One for each admission: that of the last call. `keep_bytes` names the acceptors whose
    artifacts are needed when the token comes back."""

    def __init__(self, random_bytes: Callable[[int], bytes], keep_bytes: frozenset[str]) -> None:
        self._random_bytes = random_bytes
        self._keep_bytes = keep_bytes
        self._tokens: OrderedDict[str, _Token] = OrderedDict()  # by admission

    def issue(self, admission_id: str, acceptor_id: str, arrival: Arrival) -> str:
        token = urlsafe_b64encode(self._random_bytes(_TOKEN_BYTES)).rstrip(b"=").decode()
        self._tokens[admission_id] = _Token(token, acceptor_id, self._kept(acceptor_id, arrival))
        if len(self._tokens) > TOKENS_KEPT:
            self._tokens.popitem(last=False)
        return token

    def arrival_for(self, body: CloseOut) -> Arrival | None:
        """What was offered with this token; None where it is not that of the last call."""
        known = self._tokens.get(body.admission_id)
        if known is None:
            return None
        artifact = known.arrival.artifact
        bound = (known.token, known.acceptor_id, artifact.schema, artifact.digest)
        given = (body.token, body.acceptor_id, body.schema_name, body.digest)
        same = [
            hmac.compare_digest(a.encode(), b.encode()) for a, b in zip(bound, given, strict=True)
        ]
        return known.arrival if all(same) else None

    def forget(self, admission_id: str) -> None:
        self._tokens.pop(admission_id, None)

    def bytes_kept(self) -> int:
        """How much of artifacts is in memory for tokens."""
        return sum(len(one.arrival.artifact.inline) for one in self._tokens.values())

    def _kept(self, acceptor_id: str, arrival: Arrival) -> Arrival:
        """With the bytes of results, for which orders wait. Of others a peer can send as many as it
        likes, and the module has them."""
        if arrival.artifact.schema == RESULT or acceptor_id in self._keep_bytes:
            return arrival
        return arrival._replace(artifact=msgspec.structs.replace(arrival.artifact, inline=""))
