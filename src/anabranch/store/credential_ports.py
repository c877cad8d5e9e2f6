"""What credentials by name need from a store: encrypted values, and who put them there.

A value is never here in plain text: `sealed` is what `operations.access.secret_key` made of it, and
`key_id` says with which key, so that a wrong one is named before anything is tried.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class StoredCredential(msgspec.Struct, frozen=True, kw_only=True):
    """One credential. Whoever shows it to people leaves out `sealed`."""

    name: str
    type: str  # what it is for: postgres, http, bearer …
    fields: tuple[str, ...]  # the names of its fields; no values
    sealed: str  # its fields as JSON, encrypted
    key_id: str  # of the key it is encrypted with
    version: int = 1  # every rotation counts it up
    description: str = ""
    created_at: int = 0
    created_by: str = ""
    updated_at: int = 0
    updated_by: str = ""


class CredentialStore(Protocol):
    def add_credential(self, credential: StoredCredential) -> None:
        """Raises `Conflict` when there is one of this name."""

    def credential(self, name: str) -> StoredCredential | None: ...

    def credentials(self) -> list[StoredCredential]:
        """All of them, in the order of their names; there are few."""

    def change_credential(self, credential: StoredCredential, seen: int) -> bool:
        """Write it in the place of the version `seen`; False when that is not there any more.

        What it replaces is wiped as far as the store can."""

    def drop_credential(self, name: str) -> bool:
        """False when there is none. It is wiped like one that is replaced."""
