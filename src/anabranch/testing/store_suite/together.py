"""The part of the store suite that is about writes of several features that are one."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.errors import Conflict
from anabranch.store.access_ports import AuditFilter
from anabranch.store.ports import Definition, Store
from anabranch.testing.store_suite.access import TOKEN, an_entry, give_up
from anabranch.testing.store_suite.catalog import ENTRY
from anabranch.testing.store_suite.credentials import CREDENTIAL
from anabranch.testing.store_suite.hooks import a_hook
from anabranch.testing.store_suite.records import RECORD
from anabranch.testing.store_suite.samples import NOW, refused


class TogetherSuite:
    """A part of `StoreSuite`."""

    store: Store

    def test_what_features_write_together_is_read_back_and_goes_as_one(self) -> None:
        """A verb reads what it has changed; what it does not finish has not happened."""
        self.store.put_record(RECORD)
        before = self._of_features()
        with refused(Conflict), self.store.together():
            self._write_features()
            with self.store.together(wipe=True):  # a part of the block around it
                self.store.add_audit([an_entry("start")])
            found = self._of_features()
            assert all(found)
            assert all(one != other for one, other in zip(found, before, strict=True))
            give_up()
        assert self._of_features() == before
        with self.store.together():
            self._write_features()
        assert all(self._of_features()[:-1])

    def test_one_write_of_several_that_is_refused_says_why_and_leaves_none(self) -> None:
        self.store.add_token(TOKEN)
        with refused(Conflict, "t1"), self.store.together():
            self.store.add_audit([an_entry("start")])
            self.store.add_token(replace(TOKEN, name="another"))
        assert self.store.audit(AuditFilter()) == []
        assert self.store.tokens() == [TOKEN]

    def _write_features(self) -> None:
        made = Definition(fingerprint="f1", dialect="noetl", name="load", source="x")
        self.store.put_definition(made)
        self.store.add_catalog([ENTRY])
        self.store.put_record(replace(RECORD, body=b"[2]"), seen=1)
        self.store.add_hook(a_hook())
        self.store.add_credential(CREDENTIAL)
        self.store.add_token(TOKEN)
        self.store.post("r1", b"{}", NOW)

    def _of_features(self) -> list[object]:
        """What reads find of what is written there; the audit trail comes last."""
        return [
            self.store.record(RECORD.family, RECORD.name),
            self.store.definition("f1"),
            self.store.catalog_versions(ENTRY.path),
            self.store.hooks(),
            self.store.credentials(),
            self.store.tokens(),
            self.store.unanswered(),
            self.store.audit(AuditFilter()),
        ]
