"""Definitions: in files, in the catalog of a store, and made of the templates that it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from anabranch.clock import SystemClock
from anabranch.dialects.port import Compiled, RegisteredTool
from anabranch.net.net import Net
from anabranch.net.problems import Problem, in_order
from anabranch.operations.access.credentials import Credentials, StoreSource, looked_up
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.catalog import SCHEME, Catalog, Draft, file_key
from anabranch.operations.definitions.prepare import Prepared, Source, canonical_text, prepare
from anabranch.operations.definitions.prepare import check as check_definition
from anabranch.operations.definitions.rate_check import unheeded_rates
from anabranch.operations.read.reader import draw
from anabranch.rates import read_rates
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.settings import Settings
from anabranch.store.ports import Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.store import LocalStore, LocalTopic
from anabranch.surfaces.cli.backend.port import Row
from anabranch.work.kinds.callables import default_toolbox
from anabranch.work.secrets.credential_sources import outside_sources

if TYPE_CHECKING:
    from anabranch.operations.definitions.templates import Templates

PATHS_MAX = 100_000


class LocalDefinitionBackend(LocalTopic):
    async def check(
        self, file: str, tools: Sequence[RegisteredTool], rules: str | None
    ) -> list[Problem]:
        compiled = self._checked(values.source(file), tools, rules)
        found = self._with_credentials(compiled)
        if compiled.net is None:
            return [*found]
        preflight = self._store.preflight()
        here = [*preflight.not_done_here(compiled.net), *preflight.missing_extras(compiled.net)]
        here += preflight.refused_files(compiled.net)
        return [*found, *here, *self._unheeded_rates(compiled.net)]

    def _unheeded_rates(self, net: Net) -> list[Problem]:
        settings = self._store.settings
        if not settings.rate_limits:
            return []
        outside = PoolQueues(settings.pools_here).outside
        return unheeded_rates(net, read_rates(settings.rate_limits), outside)

    def _checked(
        self, source: Source, tools: Sequence[RegisteredTool], rules: str | None
    ) -> Compiled:
        """With what the folder and the store of the settings have under paths."""
        with catalog_of(self._store.settings) as catalog:
            compiled = check_definition(source, tools, rules, knows=catalog.knows)
            if compiled.net is None or not isinstance(source, Path):
                return compiled
            key = f"{SCHEME}{compiled.net.path}" if compiled.net.path else file_key(source)
            cycles = catalog.cycles(compiled.net, key)
            return replace(compiled, problems=in_order((*compiled.problems, *cycles)))

    def _with_credentials(self, compiled: Compiled) -> Sequence[Problem]:
        """Without a store nobody can say which credentials there will be."""
        named = compiled.net is not None and compiled.net.credentials
        if not named or not self._store.is_there():
            return compiled.problems
        with self._store.reading() as store:
            kept = Credentials(store, SystemClock().now, key_of(store, self._store.settings))
            sources = [StoreSource(kept), *outside_sources(self._store.settings)]
            return looked_up(compiled.problems, compiled.net, sources)

    async def respell(self, file: str) -> tuple[str, str]:
        return canonical_text(Path(file))

    async def draw(
        self, file: str, form: str, tools: Sequence[RegisteredTool], rules: str | None
    ) -> str:
        return draw(prepare(values.source(file), tools, rules).net, form)


@contextmanager
def catalog_of(settings: Settings) -> Iterator[Catalog]:
    """What can be found by a path. A store that is not there is not made for it."""
    tools = default_toolbox.signatures
    kept = LocalStore(settings)
    if not kept.is_there():
        yield Catalog(None, settings.catalog, tools)
        return
    with kept.reading() as store:
        yield Catalog(store, settings.catalog, tools)


class LocalCatalogBackend(LocalTopic):
    async def register(self, drafts: Sequence[Draft]) -> list[Row]:
        subject = ", ".join(draft.file for draft in drafts)
        with self._store.writing(new=True) as store:
            catalog = Catalog(store, self._store.settings.catalog, default_toolbox.signatures)
            with self._store.audit_line(store, "catalog.create", subject).commit():
                kept = catalog.keep(drafts, SystemClock().now(), self._store.actor)
            return [msgspec.to_builtins(one) for one in catalog.report(kept)]

    async def paths(self, prefix: str) -> list[Row]:
        with self._store.reading() as store:
            return [msgspec.to_builtins(one) for one in Catalog(store).paths(prefix, "", PATHS_MAX)]

    async def versions(self, path: str) -> list[Row]:
        with self._store.reading() as store:
            return [msgspec.to_builtins(one) for one in Catalog(store).versions(path)]

    async def show(self, target: str) -> Row:
        with self._store.reading() as store:
            entry, definition = Catalog(store).show(target)
        return {**msgspec.to_builtins(entry), "definition": definition.source}


class LocalTemplateBackend(LocalTopic):
    async def put(self, text: str, file: str) -> Row:
        with self._store.change("templates.create", file, new=True) as store:
            return _templates(store).put(text, file).fields()

    async def delete(self, name: str) -> Row:
        with self._store.change("templates.delete", name) as store:
            return _templates(store).delete(name).fields()

    async def newest(self) -> list[Row]:
        with self._store.reading() as store:
            return _templates(store).newest()

    async def versions(self, name: str) -> list[Row]:
        with self._store.reading() as store:
            return _templates(store).versions(name)

    async def show(self, name: str, version: int | None) -> Row:
        with self._store.reading() as store:
            return _templates(store).show(name, version)

    async def materialise(
        self, name: str, given: Mapping[str, Any], version: int | None
    ) -> tuple[str, list[Problem]]:
        prepared, text = self.prepared(name, given, version)
        return text, list(prepared.problems)

    def prepared(
        self, name: str, given: Mapping[str, Any], version: int | None
    ) -> tuple[Prepared, str]:
        """Ready to be run here, and its text."""
        with self._store.reading() as store:
            return _templates(store).materialise(name, given, version)


def _templates(store: Store) -> Templates:
    from anabranch.operations.definitions.templates import Templates  # few definitions are of one

    return Templates(store)
