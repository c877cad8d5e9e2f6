"""Webhooks: who is told of what, how their deliveries stand, and sending one again.

Sending itself is `dispatcher.py`. A secret is shown once, when it is made. The store has none: see
`secrets.py`.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from typing import Annotated, Literal

import msgspec
from msgspec.structs import asdict, replace

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError, NotFound, Refused
from anabranch.literals import DeliveryState
from anabranch.operations.access.secret_key import SecretKey, key_of
from anabranch.operations.webhooks.matcher import checked_kinds, delivery_id
from anabranch.operations.webhooks.secrets import (
    first,
    is_plain,
    named,
    next_after,
    secrets_of,
    tidied,
    variable_of,
)
from anabranch.operations.webhooks.sender import Addresses, checked_url
from anabranch.store.hook_ports import Backlog, DeliveryFilter, Hook, WebhookDelivery
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.webhooks")

HOOKS_MAX = 100
REDELIVERED_MAX = 1_000_000
KINDS_MAX = 200  # more than there are
Kinds = Annotated[list[str], msgspec.Meta(max_length=KINDS_MAX)]
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class HookDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new webhook is to be."""

    url: str
    kinds: Kinds
    labels: dict[str, str] = {}
    dialect: str | None = None
    name: str | None = None
    enabled: bool = True
    secret_env: str = ""  # a variable of the server that holds the secret; else one is made
    begin: Literal["now", "beginning"] = "now"  # or with the oldest event in the store


class HookChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    url: str | None = None
    kinds: Kinds | None = None
    labels: dict[str, str] | None = None
    dialect: str | msgspec.UnsetType | None = msgspec.UNSET
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    enabled: bool | None = None


class HookCard(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as people see it. `secret` is there once, in the answer that makes it."""

    id: str
    url: str
    kinds: list[str]
    labels: dict[str, str]
    dialect: str | None
    name: str | None
    enabled: bool
    secret_env: str
    created_at: int
    behind: int  # rows of the log that it has yet to look at, about
    pending: int
    dead: int
    oldest_pending_at: int | None
    secret: str | None = None


class DeliveryCard(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run: str
    seq: int
    kind: str
    state: DeliveryState
    found_at: int
    attempts: int
    due: int | None
    last_at: int | None
    last_status: int | None
    last_error: str
    body: msgspec.Raw | None = None


class Webhooks:
    """Blocking and short: every call is a few statements."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        addresses: Addresses = "public",
        key: SecretKey | None = None,
    ) -> None:
        self._store = store
        self._key = key or key_of(store)
        self._clock = clock
        self._addresses: Addresses = addresses

    def create(self, draft: HookDraft) -> HookCard:
        if len(self._hooks()) >= HOOKS_MAX:
            raise Refused(f"there are {HOOKS_MAX} webhooks already", code="webhooks_full")
        hook = Hook(
            id=f"wh{secrets.token_hex(6)}",
            url=checked_url(draft.url, self._addresses),
            secret=named(_env_name(draft.secret_env)) if draft.secret_env else first(self._key),
            kinds=checked_kinds(draft.kinds),
            labels=draft.labels,
            dialect=draft.dialect,
            name=draft.name,
            enabled=draft.enabled,
            created_at=self._clock.now(),
        )
        self._store.add_hook(hook, from_now=draft.begin == "now")
        return self._card(hook) if draft.secret_env else self._with_secret(hook)

    def all(self) -> list[HookCard]:
        backlog = self._store.backlog()
        return [_card(hook, backlog.get(hook.id), self._behind(hook)) for hook in self._hooks()]

    def show(self, hook_id: str) -> HookCard:
        return self._card(self._hook(hook_id))

    def change(self, hook_id: str, given: HookChange) -> HookCard:
        hook = self._hook(hook_id)
        if given.url is not None:
            hook = replace(hook, url=checked_url(given.url, self._addresses))
        if given.kinds is not None:
            hook = replace(hook, kinds=checked_kinds(given.kinds))
        if given.labels is not None:
            hook = replace(hook, labels=given.labels)
        if given.enabled is not None:
            hook = replace(hook, enabled=given.enabled)
        if given.dialect is not msgspec.UNSET:
            hook = replace(hook, dialect=given.dialect)
        if given.name is not msgspec.UNSET:
            hook = replace(hook, name=given.name)
        if not self._store.change_hook(hook):
            raise _unknown(hook_id)
        return self._card(hook)

    def rotate(self, hook_id: str) -> HookCard:
        """A new secret; whatever is sent from now on is signed with it.

        For a day it is signed with the old one as well, so that no receiver has to be told at the
        very same moment. One that knows only the new secret takes nothing else.
        """
        hook = self._hook(hook_id)
        if variable := variable_of(hook):
            raise Refused(
                f"the secret of {hook_id} is the variable {variable}: change it "
                "there and start the server again",
                code="webhook_secret",
            )
        rotated = replace(hook, secret=next_after(hook, self._key, self._clock.now()))
        self._store.change_hook(rotated)
        return self._with_secret(rotated)

    def protect(self) -> int:
        """Encrypt the secrets that were made before there was a key; says how many are left."""
        left = 0
        for hook in self._hooks():
            try:
                secret = tidied(hook, self._key, self._clock.now())
            except AnabranchError as error:  # no key can be made here: a server starts all the same
                log.warning("webhook %s: %s", hook.id, error)
                secret = hook.secret
            if secret != hook.secret:
                self._store.change_hook(replace(hook, secret=secret))
            left += is_plain(secret)
        return left

    def remove(self, hook_id: str) -> None:
        """With everything that was still to be delivered to it."""
        if not self._store.drop_hook(self._hook(hook_id).id):
            raise _unknown(hook_id)

    def deliveries(self, wanted: DeliveryFilter) -> list[DeliveryCard]:
        self._hook(wanted.hook)
        return [delivery_card(one) for one in self._store.deliveries(wanted)]

    def delivery(self, hook_id: str, name: str) -> DeliveryCard:
        """One of them, with its body."""
        self._hook(hook_id)
        one = self._store.delivery(hook_id, *_parsed(hook_id, name))
        if one is None:
            raise NotFound(f"there is no delivery {name!r:.200}")
        return replace(delivery_card(one), body=msgspec.Raw(one.body))

    def redeliver(self, hook_id: str, name: str) -> DeliveryCard:
        """Send it once more, whatever became of it; it keeps its id.

        One that waits for its next attempt is due at once.
        """
        self._hook(hook_id)
        run, seq = _parsed(hook_id, name)
        known = self._store.delivery(hook_id, run, seq)
        if known is None:
            raise NotFound(f"there is no delivery {name!r:.200}")
        if not self._store.redeliver(hook_id, run, seq, self._clock.now()):
            said = f"delivery {name} is on its way, or waits for another one of its run"
            raise Refused(said, code="webhook_pending")
        return self.delivery(hook_id, name)

    def redeliver_dead(self, hook_id: str, limit: int = REDELIVERED_MAX) -> int:
        """Send again what was given up, oldest first and the ones of a run in order; how many.

        What waits for its next attempt is due at once: whoever asks for this has mended something.
        """
        self._hook(hook_id)
        return self._store.redeliver_dead(hook_id, self._clock.now(), limit)

    def _hook(self, hook_id: str) -> Hook:
        hook = self._store.hook(hook_id)
        if hook is None or hook.internal:
            raise _unknown(hook_id)
        return hook

    def _hooks(self) -> list[Hook]:
        """Those that people have added; those of triggers are no webhooks to anybody."""
        return [hook for hook in self._store.hooks() if not hook.internal]

    def _with_secret(self, hook: Hook) -> HookCard:
        secret, *_ = secrets_of(hook, self._clock.now(), self._key)
        return replace(self._card(hook), secret=secret)

    def _card(self, hook: Hook) -> HookCard:
        return _card(hook, self._store.backlog().get(hook.id), self._behind(hook))

    def _behind(self, hook: Hook) -> int:
        """How many rows of the log the hook has not looked at."""
        seen, last = self._store.cursors(hook.id), self._store.positions()
        return sum(max(0, at - seen.get(partition, 0)) for partition, at in last.items())


def delivery_card(one: WebhookDelivery) -> DeliveryCard:
    fields = asdict(one)
    del fields["hook"], fields["body"]
    return DeliveryCard(id=delivery_id(one.hook, one.run, one.seq), **fields)


def _card(hook: Hook, backlog: Backlog | None, behind: int) -> HookCard:
    stands = backlog or Backlog()
    return HookCard(
        id=hook.id,
        url=hook.url,
        kinds=list(hook.kinds),
        labels=dict(hook.labels),
        dialect=hook.dialect,
        name=hook.name,
        enabled=hook.enabled,
        secret_env=variable_of(hook),
        created_at=hook.created_at,
        behind=behind,
        pending=stands.pending,
        dead=stands.dead,
        oldest_pending_at=stands.oldest,
    )


def _env_name(name: str) -> str:
    if not _ENV.fullmatch(name):
        raise InputError(f"{name!r:.80} cannot be the name of a variable", code="webhook_secret")
    if not os.environ.get(name):
        raise InputError(
            f"the server has no variable {name}: set it where the server is started",
            code="webhook_secret",
        )
    return name


def _parsed(hook_id: str, name: str) -> tuple[str, int]:
    hook, _, rest = name.partition(":")
    run, _, seq = rest.rpartition(":")
    if hook != hook_id or not run or not seq.isdecimal() or len(seq) > 15:
        raise NotFound(f"there is no delivery {name!r:.200}")
    return run, int(seq)


def _unknown(hook_id: str) -> NotFound:
    return NotFound(f"there is no webhook {hook_id!r:.80}")
