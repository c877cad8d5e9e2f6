"""From what a schedule names to the definition that it runs."""

from __future__ import annotations

from anabranch.errors import NotFound
from anabranch.operations.definitions.catalog import SCHEME, Catalog
from anabranch.operations.definitions.prepare import Prepared
from anabranch.operations.schedules.schedule import Target
from anabranch.runtime.nets import Nets
from anabranch.store.ports import Store


def definition_of(store: Store, nets: Nets, catalog: Catalog, target: Target) -> Prepared:
    """What a target leads to now. Never a file: who may add schedules may not read files so."""
    if target.path:
        numbered = f"@{target.version}" if target.version is not None else ""
        found = catalog.prepared(f"{SCHEME}{target.path}{numbered}")
        assert found is not None, "it is in the catalog, or an error"
        return found
    kept = store.definition(target.fingerprint)
    if kept is None:
        raise NotFound(f"there is no definition {target.fingerprint[:100]!r}", code="no_definition")
    return Prepared(kept, nets.get(target.fingerprint), ())
