"""Credentials by name: kept encrypted, found by the work that names them, never shown again.

The key is that of the store (`operations/access/secret_key.py`). All credentials of a store are
encrypted with one key: with another one nothing is added or rotated, because half of them could not
be read then, and nobody would notice before a run fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from anabranch.errors import AnabranchError, Conflict, InputError, NotFound
from anabranch.net.net import Net
from anabranch.net.problems import Problem, in_order
from anabranch.operations.access.secret_key import SecretKey
from anabranch.store.credential_ports import CredentialStore, StoredCredential
from anabranch.work.secrets.credential_fields import checked_fields, type_of
from anabranch.work.secrets.credential_sources import (
    BYTES_MAX,
    Credential,
    CredentialSource,
    is_name,
)
from anabranch.work.secrets.oauth2 import KeychainError

KeyState = Literal["ok", "other key", "no key"]
DESCRIPTION_MAX = 500
PURPOSE = "credential"


class CredentialDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A credential to store. `data` are fields by name, or one text."""

    name: str
    type: str
    data: dict[str, Any] | str
    description: str = ""


class CredentialChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another value for a stored credential."""

    data: dict[str, Any] | str


class CredentialCard(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as it is shown: the names of its fields, and no value."""

    name: str
    type: str
    fields: tuple[str, ...]
    version: int
    description: str
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    key: KeyState  # whether the key that is here opens it


class Credentials:
    """The credentials of one store."""

    def __init__(self, store: CredentialStore, now: Callable[[], int], key: SecretKey) -> None:
        self._store = store
        self._now = now
        self._key = key

    def add(self, draft: CredentialDraft, actor: str = "") -> CredentialCard:
        name = _checked_name(draft.name)
        if not draft.type:
            raise InputError("a credential needs a type, such as postgres", code="credential_type")
        kind = type_of(draft.type)
        fields = _checked(kind, draft.data)
        if len(draft.description) > DESCRIPTION_MAX:
            raise InputError(
                f"the description has {len(draft.description):,} letters, more than "
                f"{DESCRIPTION_MAX}",
                code="credential_value",
            )
        key_id, now = self._right_key(), self._now()
        kept = StoredCredential(
            name=name,
            type=kind,
            fields=tuple(sorted(fields)),
            sealed=self._sealed(name, 1, fields),
            key_id=key_id,
            description=draft.description,
            created_at=now,
            created_by=actor,
            updated_at=now,
            updated_by=actor,
        )
        self._store.add_credential(kept)
        return self._card(kept)

    def all(self) -> list[CredentialCard]:
        return [self._card(one) for one in self._store.credentials()]

    def show(self, name: str) -> CredentialCard:
        return self._card(self._found(name))

    def rotate(self, name: str, change: CredentialChange, actor: str = "") -> CredentialCard:
        """Give it another value; what runs from now on gets that one."""
        before = self._found(name)
        fields = _checked(before.type, change.data)
        key_id, version = self._right_key(), before.version + 1
        after = msgspec.structs.replace(
            before,
            fields=tuple(sorted(fields)),
            sealed=self._sealed(name, version, fields),
            key_id=key_id,
            version=version,
            updated_at=self._now(),
            updated_by=actor,
        )
        if not self._store.change_credential(after, seen=before.version):
            raise Conflict(
                f"another caller has just changed the credential {name!r}; read it again and retry"
            )
        return self._card(after)

    def remove(self, name: str) -> CredentialCard:
        """Needs no key: one that was lost leaves nothing else to do."""
        card = self.show(name)
        self._store.drop_credential(name)
        return card

    def reveal(self, name: str) -> Credential | None:
        """For work alone."""
        kept = self._store.credential(name)
        if kept is None:
            return None
        wrong = self._wrong_key([kept])
        if wrong:
            raise KeychainError(
                f"credential {name!r}: {wrong}; start with that key (secret_key_file, or "
                "ANABRANCH_SECRET_KEY)"
            )
        text = self._key.unseal(kept.sealed, PURPOSE, name, str(kept.version))
        return Credential(msgspec.json.decode(text), kept.type)

    def knows(self, name: str) -> bool:
        return self._store.credential(name) is not None

    # -- the key -----------------------------------------------------------------------------

    def _right_key(self) -> str:
        """The id of the key to encrypt with; refuses one that would not open what is there."""
        kept = self._store.credentials()
        if not kept:
            return self._key.ensure()
        wrong = self._wrong_key(kept)
        if wrong:
            raise InputError(
                f"{wrong}. Nothing was written. Use that key (secret_key_file, or "
                f"ANABRANCH_SECRET_KEY), or remove what it encrypted: anabranch credential remove "
                f"{kept[0].name}",
                code="secret_key",
            )
        return self._key.id

    def _wrong_key(self, kept: list[StoredCredential]) -> str:
        """Why the key that is here does not open these; "" where it does."""
        ids = sorted({one.key_id for one in kept})
        try:
            here = self._key.id
        except AnabranchError as error:
            return f"the key {ids[0]} that it is encrypted with is not here: {error.message}"
        others = [one for one in ids if one != here]
        if not others:
            return ""
        return (
            f"the key in {self._key.place} is {here}, and the stored credentials were encrypted "
            f"with the key {others[0]}"
        )

    def _sealed(self, name: str, version: int, fields: Mapping[str, Any]) -> str:
        text = msgspec.json.encode(fields).decode()
        return self._key.seal(text, PURPOSE, name, str(version))

    def _found(self, name: str) -> StoredCredential:
        found = self._store.credential(name)
        if found is None:
            raise NotFound(
                f"there is no credential {name[:100]!r}; `anabranch credential list` has them",
                code="no_credential",
            )
        return found

    def _card(self, kept: StoredCredential) -> CredentialCard:
        fields = msgspec.structs.asdict(kept)
        key_id = fields.pop("key_id")
        del fields["sealed"]
        try:
            state: KeyState = "ok" if self._key.id == key_id else "other key"
        except AnabranchError:
            state = "no key"
        return CredentialCard(**fields, key=state)


def looked_up(
    problems: Iterable[Problem], net: Net | None, sources: Sequence[CredentialSource]
) -> list[Problem]:
    """The problems of a definition where these sources are: a credential that none of them has is
    warned of; where one has it, or cannot tell, the note that it is looked for stays."""
    found = list(problems)
    for one in net.credentials if net is not None else ():
        if any(source.knows(one.name) is not False for source in sources):
            continue
        found = [p for p in found if (p.code, p.position) != ("credential-by-name", one.position)]
        places = " and ".join(source.label for source in sources)
        message = f"there is no credential {one.name!r} in {places}: its step will fail"
        hint = f"add one with `anabranch credential add {one.name}`"
        found.append(Problem(one.position, "unknown-credential", message, hint, "warning"))
    return list(in_order(found))


class StoreSource:
    """The credentials of a store, as a source for work."""

    label = "the store"

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def knows(self, name: str) -> bool:
        return self._credentials.knows(name)

    async def find(self, name: str) -> Credential | None:
        return self._credentials.reveal(name)


def _checked_name(name: str) -> str:
    if not is_name(name):
        raise InputError(
            f"{name[:60]!r} cannot be the name of a credential: use letters, digits, `_`, `-` and "
            "`.`, at most 100, not beginning with `-` or `.`",
            code="credential_name",
        )
    return name


def _checked(kind: str, data: dict[str, Any] | str) -> dict[str, Any]:
    fields = checked_fields(kind, data)
    try:
        size = len(msgspec.json.encode(fields))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"the credential is not JSON: {error}", code="credential_value") from None
    if size > BYTES_MAX:
        raise InputError(
            f"the credential has {size:,} bytes, more than {BYTES_MAX:,}", code="credential_value"
        )
    return fields
