"""Templates in the module store of the host; which are public, and where others come from.

A record of the kind `workflow-template` is the template itself. Beside it may stand the signed copy
that other nodes get to see, and the note of an import. The copies outlive no template: what has no
template is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import NotFound
from anabranch.market.node.errors import NodeError
from anabranch.modules.arca.template_catalog.documents import Document
from anabranch.modules.kit.host import Host
from anabranch.net.problems import did_you_mean

KIND = "workflow-template"
PUBLICATION = "workflow-template-publication"
IMPORT = "workflow-template-import"
TEMPLATES_MAX = 200


class KeptTemplate(msgspec.Struct, frozen=True):
    template_id: str
    document: Document
    created_at: str
    updated_at: str


class Publication(msgspec.Struct, frozen=True):
    """The copy that the publisher has signed."""

    template: Document
    digest: str


class Origin(msgspec.Struct, frozen=True):
    """Where a template was taken from."""

    node_id: str
    publisher: str
    digest: str


class TemplateRecords:
    def __init__(self, host: Host) -> None:
        self._host = host

    # -- templates -----------------------------------------------------------------------------

    async def every(self) -> list[KeptTemplate]:
        """By their ids."""
        found = [_kept(row) for row in await self._host.records(KIND)]
        return sorted(found, key=lambda one: one.template_id)

    async def get(self, template_id: str) -> KeptTemplate | None:
        found = await self._host.record(KIND, template_id)
        return None if found is None else _kept(found)

    async def find(self, template_id: str) -> KeptTemplate:
        """Raises `NotFound`."""
        found = await self.get(template_id)
        if found is None:
            names = [one.template_id for one in await self.every()]
            hint = did_you_mean(template_id, names)
            message = f"there is no template {template_id[:200]!r}"
            raise NotFound(f"{message}; {hint}" if hint else message, code="template_not_found")
        return found

    async def put(self, document: Document) -> KeptTemplate:
        answer = await self._host.put_record(KIND, str(document["template_id"]), document)
        return _kept(answer["record"])

    async def delete(self, template_id: str) -> None:
        """A tombstone; what stands beside the template goes first."""
        await self._host.delete_record(PUBLICATION, template_id)
        await self._host.delete_record(IMPORT, template_id)
        await self._host.delete_record(KIND, template_id)

    async def require_room(self) -> None:
        if len(await self._host.records(KIND)) >= TEMPLATES_MAX:
            message = f"there are {TEMPLATES_MAX} templates, the most that are kept; delete one"
            raise NodeError(409, "too_many_templates", message)

    # -- what stands beside them ---------------------------------------------------------------

    async def publication(self, template_id: str) -> Publication | None:
        found = await self._host.record(PUBLICATION, template_id)
        return None if found is None else msgspec.convert(found["payload"], Publication)

    async def publications(self) -> dict[str, Publication]:
        rows = await self._host.records(PUBLICATION)
        return {row["record_id"]: msgspec.convert(row["payload"], Publication) for row in rows}

    async def publish(self, template_id: str, publication: Publication) -> None:
        payload = msgspec.to_builtins(publication)
        await self._host.put_record(PUBLICATION, template_id, payload)

    async def withdraw(self, template_id: str) -> None:
        await self._host.delete_record(PUBLICATION, template_id)

    async def origins(self) -> dict[str, Origin]:
        rows = await self._host.records(IMPORT)
        return {row["record_id"]: msgspec.convert(row["payload"], Origin) for row in rows}

    async def note_origin(self, template_id: str, origin: Origin) -> None:
        await self._host.put_record(IMPORT, template_id, msgspec.to_builtins(origin))

    async def forget_origin(self, template_id: str) -> None:
        await self._host.delete_record(IMPORT, template_id)


def _kept(row: Mapping[str, Any]) -> KeptTemplate:
    payload = row["payload"]
    document = payload if isinstance(payload, dict) else {"template_id": row["record_id"]}
    return KeptTemplate(row["record_id"], document, row["created_at"], row["updated_at"])
