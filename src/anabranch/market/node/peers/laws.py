"""What must hold of the messages of a node at any instant, for simulations and worlds."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.market.node.peers.messenger import REMEMBERED_MAX, Messenger
from anabranch.market.node.peers.sessions import NONCES_MAX, SESSIONS_MAX, SESSIONS_OF_A_PEER


def broken(messenger: Messenger) -> Iterator[str]:
    """Every law that does not hold, in words: memory is bounded, whatever peers do."""
    sessions = messenger.receiver.sessions
    if len(sessions) > SESSIONS_MAX:
        yield f"{len(sessions)} sessions are open"
    if sessions.remembered_nonces > NONCES_MAX:
        yield f"{sessions.remembered_nonces} nonces are remembered"
    if len(messenger.remotes) > REMEMBERED_MAX:
        yield f"{len(messenger.remotes)} peers are remembered"
    for peer, count in sessions.counts().items():
        if count > SESSIONS_OF_A_PEER:
            yield f"{peer} has {count} sessions"
    for peer, remote in messenger.remotes.items():
        if remote.failures and remote.session is not None:
            yield f"{peer} could not be reached and has a session"
