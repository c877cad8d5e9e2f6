"""An alias as the store keeps it: a name that stands for a definition of the catalog.

An alias leads to a path of the catalog, never to another alias, so no two of them can lead to each
other. A path that is registered comes first; `set` and `register` refuse what would be both.
"""

from __future__ import annotations

import msgspec

from anabranch.operations.record_families import RecordFamily
from anabranch.store.record_ports import NamedRecord, Records

FAMILY = "alias"
HISTORY_KEPT = 20  # targets that `rollback` can go back to


class AliasTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A path of the catalog, in this version or its newest; since when, and who said so."""

    path: str
    version: int | None = None
    at: int = 0
    by: str = ""

    def text(self) -> str:
        return self.path if self.version is None else f"{self.path}@{self.version}"


class Alias(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    target: AliasTarget
    history: tuple[AliasTarget, ...] = ()  # what it led to before, newest first


def record_of(alias: Alias, now: int) -> NamedRecord:
    return NamedRecord(
        family=FAMILY, name=alias.name, body=msgspec.json.encode(alias), updated_at=now
    )


ALIASES = RecordFamily(FAMILY, Alias, "an alias", reserved=("latest",))


def find_alias(store: Records, name: str) -> Alias | None:
    """The alias of this name; asks the store only for what could be one."""
    if not ALIASES.can_be_named(name):
        return None
    record = store.record(FAMILY, name)
    return None if record is None else ALIASES.document(record)
