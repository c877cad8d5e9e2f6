"""Another key for a store: what the old one encrypted is encrypted with the new one.

The values stay as they are, in one transaction: whoever is interrupted has a store with the old key
or one with the new key, and never some of both. Secrets of webhooks that were made from the old key
are kept as they are, encrypted: their receivers notice nothing. Keys are not moved: whoever
runs the server says where its key is.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.operations.access.credentials import PURPOSE
from anabranch.operations.access.secret_key import SecretKey
from anabranch.operations.webhooks.secrets import resealed
from anabranch.store.access_ports import Access
from anabranch.store.credential_ports import CredentialStore, StoredCredential
from anabranch.store.hook_ports import Hook, Hooks


class RekeyStore(Access, CredentialStore, Hooks, Protocol):
    """Everything that is encrypted with the key of a store."""


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """How many were encrypted anew, and with which keys."""

    old_key: str
    new_key: str
    credentials: int
    webhooks: int


def rekey(store: RekeyStore, old: SecretKey, new: SecretKey) -> Rekeyed:
    """Raises, and changes nothing, where the old key does not open everything."""
    if old.id == new.id:
        raise InputError(
            f"the old key ({old.place}) and the new one ({new.place}) are the same; make another "
            "with `openssl rand -base64 48`",
            code="secret_key",
        )
    with store.together(wipe=True):
        credentials = [_anew(one, old, new) for one in store.credentials() if one.key_id != new.id]
        hooks = [changed for one in store.hooks() if (changed := _hook(one, old, new)) is not one]
        for credential in credentials:
            store.change_credential(credential, seen=credential.version)
        for hook in hooks:
            store.change_hook(hook)
    return Rekeyed(
        old_key=old.id, new_key=new.id, credentials=len(credentials), webhooks=len(hooks)
    )


def _anew(kept: StoredCredential, old: SecretKey, new: SecretKey) -> StoredCredential:
    purpose = (PURPOSE, kept.name, str(kept.version))
    if kept.key_id != old.id:
        raise _wrong(f"the credential {kept.name!r} was encrypted with the key {kept.key_id}", old)
    try:
        text = old.unseal(kept.sealed, *purpose)
    except AnabranchError:
        raise _wrong(f"the credential {kept.name!r} cannot be opened", old) from None
    sealed = new.seal(text, *purpose)
    return msgspec.structs.replace(kept, sealed=sealed, key_id=new.id)


def _hook(kept: Hook, old: SecretKey, new: SecretKey) -> Hook:
    secret = resealed(kept, old, new)
    if secret is None:
        hint = f"`anabranch webhook rotate {kept.id}` makes one with the key that is there"
        raise _wrong(f"the secret of the webhook {kept.id} is of another key; {hint}", old)
    return kept if secret == kept.secret else msgspec.structs.replace(kept, secret=secret)


def _wrong(why: str, old: SecretKey) -> InputError:
    said = f"{old.place} (key {old.id}) is not the key of this store: {why}. Nothing was changed"
    return InputError(said, code="secret_key")
