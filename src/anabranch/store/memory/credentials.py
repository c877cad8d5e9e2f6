"""The part of the reference store that is about credentials."""

from __future__ import annotations

from anabranch.store.checks import credential_exists
from anabranch.store.credential_ports import StoredCredential
from anabranch.store.memory.part import MemoryPart


class MemoryCredentials(MemoryPart):
    """A part of `MemoryStore`."""

    def __init__(self) -> None:
        super().__init__()
        self._credentials: dict[str, StoredCredential] = {}

    def add_credential(self, credential: StoredCredential) -> None:
        with self._open():
            if credential.name in self._credentials:
                raise credential_exists(credential.name)
            self._credentials[credential.name] = credential

    def credential(self, name: str) -> StoredCredential | None:
        with self._open():
            return self._credentials.get(name)

    def credentials(self) -> list[StoredCredential]:
        with self._open():
            return [self._credentials[name] for name in sorted(self._credentials)]

    def change_credential(self, credential: StoredCredential, seen: int) -> bool:
        with self._open():
            known = self._credentials.get(credential.name)
            if known is None or known.version != seen:
                return False
            self._credentials[credential.name] = credential
            return True

    def drop_credential(self, name: str) -> bool:
        with self._open():
            return self._credentials.pop(name, None) is not None
