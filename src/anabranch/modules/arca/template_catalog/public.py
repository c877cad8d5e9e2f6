"""What other nodes get to see: the templates that the operator has published, as they were signed.

workflow-template.fetch.request   {schema_version, query_id, template_id? | after?, limit?}
workflow-template.fetch.response  {schema_version, query_id, templates, next? | template | error}
"""

from __future__ import annotations

from typing import Any

from anabranch.market.node.door import Door
from anabranch.modules.arca.template_catalog.documents import (
    DESCRIPTION_MAX,
    LABEL_MAX,
    PUBLISHER,
    Document,
    size_of,
)
from anabranch.modules.arca.template_catalog.records import Publication, TemplateRecords
from anabranch.modules.kit.host import HostRefused, HostUnavailable
from anabranch.modules.kit.module import PeerMessage, reply

REQUEST, RESPONSE = "workflow-template.fetch.request", "workflow-template.fetch.response"
ROWS_MAX = 100  # of one answer


class PublicTemplates:
    def __init__(self, records: TemplateRecords) -> None:
        self._records = records
        self._rows: dict[str, Document] | None = None  # by id; read when they are asked for
        self._changes = 0
        self._door = Door()

    def changed(self) -> None:
        self._rows = None
        self._changes += 1

    async def answer(self, message: PeerMessage) -> dict[str, Any]:
        """The decision about a request of a peer; a reply whatever it asks."""
        wanted = message.payload
        problems = await self._door.problems(wanted, REQUEST)
        if problems:
            text = f"{problems[0].path or '/'}: {problems[0].message}"[:DESCRIPTION_MAX]
            return _reply(message, error={"code": "schema", "message": text})
        try:
            return _reply(message, **await self._found(wanted))
        except (HostUnavailable, HostRefused):
            later = {"code": "unavailable", "message": "the templates cannot be read now"}
            return _reply(message, error=later)

    async def _found(self, wanted: Document) -> Document:
        if (template_id := wanted.get("template_id")) is not None:
            public = (await self._public()).get(template_id)
            found = await self._records.publication(template_id) if public is not None else None
            if found is None:
                message = "there is no public template of this id"
                return {"error": {"code": "template_not_found", "message": message}}
            return {"template": found.template}
        rows = [
            row for name, row in (await self._public()).items() if name > wanted.get("after", "")
        ]
        limit = min(wanted.get("limit", ROWS_MAX), ROWS_MAX)
        more = {"next": rows[limit - 1]["template_id"]} if len(rows) > limit else {}
        return {"templates": rows[:limit], **more}

    async def _public(self) -> dict[str, Document]:
        """In the order of their ids; a peer may ask as often as it likes."""
        if self._rows is not None:
            return self._rows
        before, found = self._changes, await self._records.publications()
        rows = {name: _row(name, found[name]) for name in sorted(found)}
        if self._changes == before:  # else it may be read from before the change
            self._rows = rows
        return rows


def _row(template_id: str, publication: Publication) -> Document:
    template = publication.template
    return {
        "template_id": template_id,
        "publisher": template[PUBLISHER],
        "digest": publication.digest,
        "size_bytes": size_of(template),
        "label": str(template.get("label") or "")[:LABEL_MAX],
        "description": str(template.get("description") or "")[:DESCRIPTION_MAX],
    }


def _reply(message: PeerMessage, **answer: Any) -> dict[str, Any]:
    asked = message.payload if isinstance(message.payload, dict) else {}
    query = asked.get("query_id")
    named = query if isinstance(query, str) and 0 < len(query) <= 256 else message.correlation_id
    return reply({"schema_version": "v1", "query_id": named, **answer})
