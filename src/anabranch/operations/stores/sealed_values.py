"""Does the key of a store open what is sealed in it? A part of `store check`.

What the key must open are the credentials and the secrets of webhooks. Without the key nothing can
be said about them, and that is noted.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import AnabranchError
from anabranch.operations.access.credentials import PURPOSE
from anabranch.operations.access.secret_key import SecretKey, can_seal
from anabranch.operations.webhooks.secrets import is_plain, secrets_of, variable_of
from anabranch.store.credential_ports import StoredCredential
from anabranch.store.hook_ports import Hook
from anabranch.store.inspection import Inspection

_NAMED = 3  # in a note


def unopened(store: Inspection, key: SecretKey) -> Iterator[tuple[str, str]]:
    """(part, what is wrong) of everything that the key does not open; "" is a note."""
    credentials = store.credentials()
    hooks = [
        hook
        for hook in store.hooks()
        if not (hook.internal or variable_of(hook) or is_plain(hook.secret))
    ]
    if not credentials and not hooks:
        return
    try:
        key_id = key.id
    except AnabranchError as error:
        kept = [f"the credential {one.name}" for one in credentials]
        kept += [f"the secret of webhook {hook.id}" for hook in hooks]
        more = f" and {len(kept) - _NAMED:,} more" if len(kept) > _NAMED else ""
        yield "", f"{', '.join(kept[:_NAMED])}{more} could not be opened: {error.message}"
        return
    for one in credentials:
        if wrong := _wrong_with(one, key, key_id):
            yield "credential", f"credential {one.name} {wrong}"
    for hook in hooks:
        if not _signs(hook, key):
            yield "webhook", f"the secret of webhook {hook.id} was not made with {key.place}"


def _wrong_with(one: StoredCredential, key: SecretKey, key_id: str) -> str:
    if one.key_id != key_id:
        return f"is encrypted with the key {one.key_id}, and {key.place} holds the key {key_id}"
    if not can_seal():
        return ""
    try:
        key.unseal(one.sealed, PURPOSE, one.name, str(one.version))
    except AnabranchError:
        return f"is not what was encrypted with {key.place}"
    return ""


def _signs(hook: Hook, key: SecretKey) -> bool:
    return bool(secrets_of(hook, 0, key))
