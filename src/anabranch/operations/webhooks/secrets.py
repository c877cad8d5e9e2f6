"""The secrets of webhooks: what the store says about them, which is never the secret itself.

    env:NAME               a variable of the server holds it
    key:<id>:<number>      made from the key with this id (`operations.access.secret_key`), the hook
                           and the number, which every rotation counts up
    sealed:<text>          made before there was a key, encrypted with it
    text:<secret>          made before there was a key, and not encrypted yet

After a rotation `|<the one before>|<until when it signs, too>` follows.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

from anabranch.errors import AnabranchError
from anabranch.operations.access.secret_key import SecretKey, can_seal
from anabranch.store.hook_ports import Hook

OVERLAP_MS = 24 * 3_600_000  # for so long the secret before a rotation signs, too
_NAMED, _MADE, _SEALED, _PLAIN, _OLD = "env:", "key:", "sealed:", "text:", "|"


def named(name: str) -> str:
    return _NAMED + name


def variable_of(hook: Hook) -> str:
    """The variable that holds it; "" where none does."""
    return hook.secret[len(_NAMED) :] if hook.secret.startswith(_NAMED) else ""


def first(key: SecretKey) -> str:
    return f"{_MADE}{key.ensure()}:1"


def next_after(hook: Hook, key: SecretKey, now: int) -> str:
    """What the store says after a rotation."""
    current = _split(hook.secret)[0]
    number = int(current.rpartition(":")[2]) + 1 if current.startswith(_MADE) else 1
    made = f"{_MADE}{key.ensure()}:{number}"
    return _OLD.join((made, protected(hook.id, current, key), str(now + OVERLAP_MS)))


def secrets_of(hook: Hook, now: int, key: SecretKey | None = None) -> tuple[str, ...]:
    """What notifications are signed with: the secret, and for a while the one before it.

    Empty when the environment, or the key, has been lost.
    """
    current, old, until = _split(hook.secret)
    specs = [current, old] if old and now < until else [current]
    found = [_secret(hook.id, spec, key, os.environ) for spec in specs]
    return tuple(one for one in found if one) if found[0] else ()


def protected(hook_id: str, spec: str, key: SecretKey) -> str:
    """The same without a plain secret in it, where that can be encrypted here."""
    if not spec.startswith(_PLAIN) or not can_seal():
        return spec
    key.ensure()
    return _SEALED + key.seal(spec[len(_PLAIN) :], "webhook", hook_id)


def tidied(hook: Hook, key: SecretKey, now: int) -> str:
    """What the store should say: nothing in plain text, nothing that is over."""
    current, old, until = _split(hook.secret)
    kept = protected(hook.id, current, key)
    if old and now < until:
        return _OLD.join((kept, protected(hook.id, old, key), str(until)))
    return kept


def resealed(hook: Hook, old: SecretKey, new: SecretKey) -> str | None:
    """What the store says with another key: the same secrets, encrypted with that one. None where
    the old key does not give them; what needs no key, or has the new one already, stays."""
    if hook.secret.startswith(_NAMED):
        return hook.secret
    parts = hook.secret.split(_OLD)
    for at, spec in enumerate(parts[:2]):
        kind, _, rest = spec.partition(":")
        if kind not in ("key", "sealed") or (kind == "key" and rest.startswith(f"{new.id}:")):
            continue
        secret = _secret(hook.id, spec, old, {})
        if secret:
            parts[at] = _SEALED + new.seal(secret, "webhook", hook.id)
        elif not _secret(hook.id, spec, new, {}):
            return None
    return _OLD.join(parts)


def is_plain(spec: str) -> bool:
    return any(part.startswith(_PLAIN) for part in spec.split(_OLD))


def _split(spec: str) -> tuple[str, str, int]:
    """The secret, the one before it, and until when that one signs."""
    if spec.startswith(_NAMED):
        return spec, "", 0
    current, *rest = spec.split(_OLD)
    if len(rest) != 2:
        return current, "", 0
    old = rest[0] if ":" in rest[0] else _PLAIN + rest[0]  # so it was written once
    return current, old, int(rest[1])


def _secret(hook_id: str, spec: str, key: SecretKey | None, environment: Mapping[str, str]) -> str:
    kind, _, rest = spec.partition(":")
    if kind == "text":
        return rest
    if kind == "env":
        return environment.get(rest, "")
    if key is None:
        return ""
    try:
        if kind == "sealed":
            return key.unseal(rest, "webhook", hook_id)
        key_id, _, number = rest.partition(":")
        if key.id != key_id:
            return ""
        made = key.derive("webhook", hook_id, number)
    except AnabranchError:
        return ""
    return f"whs_{base64.urlsafe_b64encode(made).decode().rstrip('=')}"
