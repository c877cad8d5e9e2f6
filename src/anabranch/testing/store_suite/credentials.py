"""The part of the store suite that is about credentials."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.errors import Conflict
from anabranch.store.credential_ports import StoredCredential
from anabranch.store.ports import Store
from anabranch.testing.store_suite.samples import NOW, refused

CREDENTIAL = StoredCredential(
    name="pg_main",
    type="postgres",
    fields=("host", "password"),
    sealed="c2VhbGVk",
    key_id="0123abcd",
    description="the ☃ main one's",
    created_at=NOW,
    created_by="ann",
    updated_at=NOW,
    updated_by="ann",
)


class CredentialsSuite:
    """A part of `StoreSuite`."""

    store: Store

    def test_every_field_of_a_credential_survives_and_they_are_listed_by_name(self) -> None:
        other = replace(CREDENTIAL, name="a_token", type="bearer", fields=("token",))
        self.store.add_credential(CREDENTIAL)
        self.store.add_credential(other)
        assert self.store.credential("pg_main") == CREDENTIAL
        assert self.store.credentials() == [other, CREDENTIAL]
        assert self.store.credential("pg") is None

    def test_a_second_credential_of_the_same_name_is_refused(self) -> None:
        self.store.add_credential(CREDENTIAL)
        with refused(Conflict, "pg_main"):
            self.store.add_credential(replace(CREDENTIAL, sealed="b3RoZXI="))
        assert self.store.credentials() == [CREDENTIAL]

    def test_a_credential_is_changed_in_the_version_that_was_seen_and_no_other(self) -> None:
        self.store.add_credential(CREDENTIAL)
        later = replace(CREDENTIAL, version=2, sealed="bmV3", updated_at=NOW + 1, updated_by="ben")
        assert self.store.change_credential(later, seen=1)
        assert not self.store.change_credential(replace(later, version=2), seen=1)
        assert not self.store.change_credential(replace(later, name="pg"), seen=1)
        assert self.store.credentials() == [later]

    def test_a_credential_that_was_dropped_is_gone(self) -> None:
        self.store.add_credential(CREDENTIAL)
        assert self.store.drop_credential("pg_main")
        assert not self.store.drop_credential("pg_main")
        assert self.store.credentials() == []
