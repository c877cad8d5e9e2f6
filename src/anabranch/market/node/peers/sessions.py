"""Sessions that other nodes opened with this one, and what keeps old messages out of them.

The id of a session is a hash of one nonce from each side, so both know that it is fresh. Every
message in it has the next number; a window remembers which ones came. Sessions live in memory: a
node that was started again knows none of them, and none of their messages can be sent to it again.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, OrderedDict

import msgspec

from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import PeerEnvelope

ESTABLISH = "peer.session.establish"
WINDOW = 1024  # numbers behind the highest that may still come
SESSIONS_MAX = 4096
SESSIONS_OF_A_PEER = 8
NONCES_MAX = 65_536
NONCES_OF_A_PEER = 1024
NONCE_BYTES = 16
LOOK_MS = 1000  # between two looks over all of them: anyone can open sessions
SESSION_UNKNOWN, REPLAY = "session_unknown", "peer_replay"


def session_id(opener: str, opened: str, nonce: str, answer: str) -> str:
    parts = ("peer-session.v1", opener, opened, nonce, answer)
    hashed = hashlib.sha256("\0".join(parts).encode()).digest()
    return f"session:{base64.urlsafe_b64encode(hashed).rstrip(b'=').decode()}"


class ReplayWindow:
    """Which numbers came: each is taken once, in any order that stays within the window."""

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._highest = 0
        self._seen = 0  # bit n: highest - n came

    def take(self, number: int) -> bool:
        if number < 1:
            return False
        ahead = number - self._highest
        if ahead > 0:
            # A shift by more than the window leaves nothing of it, however far the number leaps.
            self._seen = (self._seen << ahead if ahead < self._size else 0) | 1
            self._seen &= (1 << self._size) - 1
            self._highest = number
            return True
        if -ahead >= self._size or self._seen & (bit := 1 << -ahead):
            return False
        self._seen |= bit
        return True


class InboundSession(msgspec.Struct):
    session: str
    peer: str
    expires_at: int
    window: ReplayWindow


class Sessions:
    def __init__(self, me: str, session_ms: int, skew_ms: int) -> None:
        self._me = me
        self._session_ms = session_ms
        self._nonce_ms = 2 * skew_ms  # after that an envelope with it is too old to be taken
        self._sessions: OrderedDict[str, InboundSession] = OrderedDict()  # used last: last
        self._of_peer: dict[str, dict[str, None]] = {}  # the same, by peer
        self._looked_at = -LOOK_MS  # for those that have expired
        self._nonces: OrderedDict[tuple[str, str], int] = OrderedDict()  # by when they are kept
        self._nonces_of: Counter[str] = Counter()  # by peer

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def remembered_nonces(self) -> int:
        return len(self._nonces)

    def of(self, peer: str) -> list[InboundSession]:
        return [self._sessions[name] for name in self._of_peer.get(peer, ())]

    def counts(self) -> Counter[str]:
        """How many sessions each peer has."""
        return Counter({peer: len(names) for peer, names in self._of_peer.items()})

    def open(self, envelope: PeerEnvelope, nonce: str, now: int) -> InboundSession:
        """A new session for who signed the envelope, which opens one and no more."""
        if len(envelope.nonce) < NONCE_BYTES:
            raise NodeError(400, "peer_envelope", f"`nonce` has at least {NONCE_BYTES} characters")
        self._forget_old(now)
        key = envelope.source, envelope.nonce
        if key in self._nonces:
            raise NodeError(409, REPLAY, "a session was opened with this envelope before")
        if self._nonces_of[envelope.source] >= NONCES_OF_A_PEER:
            raise NodeError(429, "peer_busy", "this peer opened too many sessions in a short time")
        if len(self._nonces) >= NONCES_MAX:
            self._forget_nonce()  # else any number of keys would keep all others out
        self._nonces[key] = now + self._nonce_ms
        self._nonces_of[envelope.source] += 1
        named = session_id(envelope.source, self._me, envelope.nonce, nonce)
        made = InboundSession(named, envelope.source, now + self._session_ms, ReplayWindow())
        others = self._of_peer.get(envelope.source, {})
        if len(others) >= SESSIONS_OF_A_PEER:
            self._end(self._sessions[next(iter(others))])
        self._sessions[named] = made
        self._of_peer.setdefault(envelope.source, {})[named] = None
        if len(self._sessions) > SESSIONS_MAX:
            self._end(next(iter(self._sessions.values())))
        return made

    def _end(self, session: InboundSession) -> None:
        del self._sessions[session.session]
        others = self._of_peer[session.peer]
        del others[session.session]
        if not others:
            del self._of_peer[session.peer]

    def take(self, envelope: PeerEnvelope, now: int) -> None:
        """The message is one of a session of who signed it, and came for the first time."""
        session = self._sessions.get(envelope.session)
        if session is None or session.peer != envelope.source or session.expires_at <= now:
            raise NodeError(409, SESSION_UNKNOWN, "open a session first; this one is not known")
        if not session.window.take(envelope.sequence):
            raise NodeError(409, REPLAY, "a message with this number came before")
        self._sessions.move_to_end(envelope.session)
        others = self._of_peer[session.peer]
        others[envelope.session] = others.pop(envelope.session)

    def _forget_nonce(self) -> None:
        (peer, _), _ = self._nonces.popitem(last=False)
        self._nonces_of[peer] -= 1
        if not self._nonces_of[peer]:
            del self._nonces_of[peer]

    def _forget_old(self, now: int) -> None:
        while self._nonces and next(iter(self._nonces.values())) <= now:
            self._forget_nonce()
        if not self._looked_at <= now < self._looked_at + LOOK_MS:
            self._looked_at = now
            for session in [one for one in self._sessions.values() if one.expires_at <= now]:
                self._end(session)
