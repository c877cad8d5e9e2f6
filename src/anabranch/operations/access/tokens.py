"""Who may ask for what: tokens, their scopes, and the limit on guessing.

A token is `anb_<id>_<secret>`. The store keeps the id and the SHA-256 of the secret; the secret has
260 bits of chance, so a plain hash is enough and no two of them are ever compared as text. The
name of a token is who acts: gates are answered and changes recorded under it. Two tokens may have
one name, which is how a person changes theirs without a gap.

    read      look at everything
    operate   read, and start, pause, resume, cancel, patch, redrive, tune loops, publish
    decide    read, and answer gates
    work      claim jobs of pools (all, or those it is limited to) and report on them, nothing else
    hook      call hooks that take tokens, nothing else
    admin     all of these, and tokens, credentials, webhooks and the audit trail

Who may operate may not decide: whoever starts a run should not be able to approve it as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from anabranch.errors import Denied, InputError, NotFound
from anabranch.store.access_ports import Access as AccessStore
from anabranch.store.access_ports import AccessToken, AuditEntry

SCOPES = ("read", "operate", "decide", "work", "hook", "admin")
IMPLIED: Mapping[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"operate", "read"}),
    "decide": frozenset({"decide", "read"}),
    "work": frozenset({"work"}),
    "hook": frozenset({"hook"}),
    "admin": frozenset(SCOPES),
}
LIFETIME_DAYS_MAX = 3650
NAME_MAX = 100
POOL_MAX = 200  # letters of the name of a pool
POOLS_MAX = 100  # to which one token is limited
TOKENS_NOTED = 10_000  # more are forgotten when their minute is over
USE_NOTED_MS = 60_000  # the last use of a token is written down once a minute

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TOKEN = re.compile(r"anb_([0-9a-z]{12})_([0-9a-z]{52})")
_NOBODY = hashlib.sha256(b"nobody has this secret").hexdigest()


class Caller(msgspec.Struct, frozen=True):
    """Who asks, and what they may."""

    actor: str
    scopes: frozenset[str]  # with those that are implied
    token: str = ""  # its id; "" for somebody at this machine without one
    pools: frozenset[str] = frozenset()  # for which it may work; empty: for all

    def may(self, scope: str) -> bool:
        return scope in ("any", "open") or scope in self.scopes

    def require(self, scope: str) -> None:
        if not self.may(scope):
            held = ", ".join(sorted(self.scopes)) or "nothing"
            raise Denied(
                f"this needs the scope {scope!r}; the token of {self.actor!r} has {held}",
                code="scope",
            )

    def require_pool(self, pool: str) -> None:
        if self.pools and pool not in self.pools:
            held = ", ".join(sorted(self.pools))
            raise Denied(
                f"the token of {self.actor!r} works for the pools {held}, not for {pool[:200]!r}",
                code="pool",
            )


def everything(actor: str) -> Caller:
    """Somebody at this machine, where no token is asked for."""
    return Caller(actor, frozenset(SCOPES))


class AccessControl:
    """The tokens of a store: made, listed, revoked and checked."""

    def __init__(self, store: AccessStore, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._noted: dict[str, int] = {}  # token → when its use was written down last

    def create(
        self,
        name: str,
        scopes: Iterable[str],
        lifetime_days: float | None = None,
        pools: Iterable[str] = (),
    ) -> tuple[AccessToken, str]:
        """A new token and its text, which is told once and kept nowhere."""
        now, wanted = self._now(), _checked_scopes(scopes)
        token_id, secret = _letters(12), _letters(52)
        token = AccessToken(
            id=token_id,
            digest=_digest(secret),
            name=_checked_name(name),
            scopes=wanted,
            pools=_checked_pools(pools, wanted),
            created_at=now,
            expires_at=_expiry(now, lifetime_days),
        )
        self._store.add_token(token)
        return token, f"anb_{token_id}_{secret}"

    def tokens(self) -> list[AccessToken]:
        return self._store.tokens()

    def revoke(self, token_id: str) -> AccessToken:
        """From now on it opens nothing. Revoking it again changes nothing."""
        if self._store.token(token_id) is None:
            raise NotFound(f"there is no token {token_id[:40]!r}; `anabranch token list` has them")
        self._store.revoke_token(token_id, self._now())
        revoked = self._store.token(token_id)
        assert revoked is not None
        return revoked

    def check(self, text: str) -> Caller:
        """Who this token stands for; raises `Denied`.

        It takes the same time for an unknown id, a wrong secret and a right one. Only whoever has
        the right secret learns that it has expired or was revoked.
        """
        found = _TOKEN.fullmatch(text)
        token = self._store.token(found[1]) if found else None
        digest = _digest(found[2] if found else "")
        right = hmac.compare_digest(digest, token.digest if token is not None else _NOBODY)
        if token is None or not right:
            raise Denied("this token is not known here", code="token_wrong")
        return self.caller(token)

    def caller_of(self, token_id: str) -> Caller:
        """The same for whoever has shown the secret before: a session of the web pages."""
        token = self._store.token(token_id)
        if token is None:
            raise Denied("this token is not known here", code="token_wrong")
        return self.caller(token)

    def caller(self, token: AccessToken) -> Caller:
        match self.state_of(token):
            case "revoked":
                raise Denied(f"the token {token.id} was revoked", code="token_revoked")
            case "expired":
                raise Denied(f"the token {token.id} has expired", code="token_expired")
        implied = frozenset[str]().union(*(IMPLIED.get(one, frozenset()) for one in token.scopes))
        return Caller(token.name, implied, token.id, frozenset(token.pools))

    def succeeds(self, token_id: str, former_id: str) -> bool:
        """Whether one token goes on with what another held: the same name, and the other is over.

        That is how a worker gets a new token without losing its jobs. As long as the other one
        opens anything, what it holds is its own."""
        token, former = self._store.token(token_id), self._store.token(former_id)
        if token is None or former is None or token.name != former.name:
            return False
        return not self.usable(former)

    def knows(self, token_id: str) -> bool:
        """Is there a token of this id? Ids are no secret: people read them in lists."""
        return bool(token_id) and self._store.token(token_id) is not None

    def to_note(self, token_id: str) -> int | None:
        """The instant to write down as its last use; None when that was done a moment ago."""
        now = self._now()
        if now - self._noted.get(token_id, 0) < USE_NOTED_MS:
            return None
        if len(self._noted) >= TOKENS_NOTED:
            recent = {one: at for one, at in self._noted.items() if now - at < USE_NOTED_MS}
            self._noted = recent
        self._noted[token_id] = now
        return now

    def has_admin(self) -> bool:
        """Is there a token that could make others?"""
        return any("admin" in token.scopes and self.usable(token) for token in self.tokens())

    def usable(self, token: AccessToken) -> bool:
        return self.state_of(token) == "active"

    def state_of(self, token: AccessToken) -> str:
        """Active, expired or revoked."""
        if token.revoked_at is not None:
            return "revoked"
        expired = token.expires_at is not None and token.expires_at <= self._now()
        return "expired" if expired else "active"


class Guesses:
    """How often an address showed something wrong lately. In memory, and no larger than `most`.

    After `limit` failures within `window_ms` an address waits until the oldest of them is that long
    ago. What waiting means is up to who asks. A forgotten address starts anew, which helps nobody
    to guess 260 bits.
    """

    def __init__(self, limit: int = 10, window_ms: int = 60_000, most: int = 10_000) -> None:
        self._limit, self._window_ms, self._most = limit, window_ms, most
        self._failures: OrderedDict[str, list[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def wait_ms(self, address: str, now: int) -> int:
        """How long this address has to wait; 0 when it is heard."""
        failures = self._recent(address, now)
        if len(failures) < self._limit:
            return 0
        return max(1, failures[-self._limit] + self._window_ms - now)

    def failed(self, address: str, now: int) -> None:
        failures = [*self._recent(address, now), now][-self._limit :]
        self._failures[address] = failures
        self._failures.move_to_end(address)
        while len(self._failures) > self._most:
            self._failures.popitem(last=False)

    def _recent(self, address: str, now: int) -> list[int]:
        failures = self._failures.get(address, [])
        recent = [at for at in failures if now - at < self._window_ms]
        if failures and not recent:
            del self._failures[address]
        return recent


def entry(
    caller: Caller,
    action: str,
    at: int,
    *,
    subject: str = "",
    outcome: str = "done",
    address: str = "",
) -> AuditEntry:
    """A line of the audit trail; the detail says by which token.

    What people typed comes in as one line, not too long, and without the secret of a token.
    """
    detail = f"token {caller.token}" if caller.token else ""
    return AuditEntry(
        at=at,
        actor=_one_line(caller.actor),
        action=_one_line(action),
        subject=_one_line(subject),
        outcome=outcome,
        address=address,
        detail=detail,
    )


def id_in(text: str) -> str:
    """The id of what is written like a token; empty when it is not."""
    found = _TOKEN.fullmatch(text)
    return found[1] if found else ""


def masked(text: str) -> str:
    """Without the secrets of tokens, wherever somebody put one by mistake."""
    return _TOKEN.sub(r"anb_\1_***", text) if "anb_" in text else text


def _one_line(text: str) -> str:
    shown = text[:400]
    if not shown.isprintable():
        shown = "".join(
            letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in shown
        )
    return masked(shown)[:200]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _letters(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))


def _checked_name(name: str) -> str:
    if not 0 < len(name) <= NAME_MAX or not name.isprintable() or name != name.strip():
        raise InputError(
            f"a token is named after who uses it, in 1 to {NAME_MAX} printable letters, "
            f"not {name[:40]!r}",
            code="token_name",
        )
    return name


def _checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    wanted = set(scopes)
    unknown = sorted(wanted - set(SCOPES))
    if unknown or not wanted:
        what = f"there is no scope {unknown[0][:40]!r}" if unknown else "a token needs a scope"
        raise InputError(f"{what}: give one or more of {', '.join(SCOPES)}", code="token_scope")
    return tuple(scope for scope in SCOPES if scope in wanted)


def _checked_pools(pools: Iterable[str], scopes: tuple[str, ...]) -> tuple[str, ...]:
    wanted = tuple(sorted(set(pools)))
    if not wanted:
        return ()
    if "work" not in scopes or "admin" in scopes:
        raise InputError(
            "only a token with the scope work, and without admin, can be limited to pools",
            code="token_pool",
        )
    for pool in wanted:
        if not 0 < len(pool) <= POOL_MAX or not pool.isprintable():
            raise InputError(
                f"a pool has a name of 1 to {POOL_MAX} printable letters, not {pool[:40]!r}",
                code="token_pool",
            )
    if len(wanted) > POOLS_MAX:
        raise InputError(
            f"a token can be limited to at most {POOLS_MAX} pools, not {len(wanted):,}",
            code="token_pool",
        )
    return wanted


def _expiry(now: int, days: float | None) -> int | None:
    if days is None:
        return None
    if not 0 < days <= LIFETIME_DAYS_MAX:
        raise InputError(
            f"a token lives more than 0 and at most {LIFETIME_DAYS_MAX} days, not {days:g}",
            code="token_lifetime",
        )
    return now + int(days * 86_400_000)
