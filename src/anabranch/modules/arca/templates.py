"""Templates at the surface of Arca: put, listed, made into definitions, started, shared.

The node serves them as `/v1/enact/arca/templates…`. A template is private until the operator
publishes it; then the host signs it, and other nodes may read that copy. The content of a public
template does not change: another version is another id (`weekly.v2`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from anabranch.dialects.arca.templates import is_template_id
from anabranch.errors import DefinitionError, NotFound
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.template_signing import SIGN_TEMPLATE
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.runs import refused_definition
from anabranch.modules.arca.template_catalog.documents import (
    Document,
    checked,
    described,
    known_digest,
    materialised,
    publishable,
    same,
    size_of,
)
from anabranch.modules.arca.template_catalog.public import REQUEST, ROWS_MAX, PublicTemplates
from anabranch.modules.arca.template_catalog.records import (
    KeptTemplate,
    Origin,
    Publication,
    TemplateRecords,
)
from anabranch.modules.arca.template_catalog.remote import FetchedTemplate, RemoteTemplates
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.module import MessageHandler

#: Starts a run: (definition, input) → the id of the run.
StartRun = Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[str]]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Materialise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    template_id: str
    parameters: dict[str, Any] = {}


class StartTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parameters: dict[str, Any] = {}
    input: dict[str, Any] = {}


class Publish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    publish: bool


class Browse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose public templates to list."""

    node_id: Name
    after: Annotated[str, msgspec.Meta(max_length=256)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = ROWS_MAX


class Preview(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node_id: Name
    template_id: Name


class Import(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`digest` is that of the preview, `publisher` the one whose template is wanted."""

    node_id: Name
    template_id: Name
    digest: Name
    publisher: str = ""


class TemplatesPart:
    """A part of the module Arca."""

    def __init__(self, *, host: Host, start_run: StartRun, config: ArcaConfig) -> None:
        self._host = host
        self._start_run = start_run
        self._config = config
        self._records = TemplateRecords(host)
        self._public = PublicTemplates(self._records)
        self._remote = RemoteTemplates(host)
        self._changing = asyncio.Lock()  # what is looked up and then written

    def endpoints(self) -> Sequence[Endpoint]:
        every, one = "/v1/arca/templates", "/v1/arca/templates/{template}"
        rows: list[tuple[str, str, Any, str, Any]] = [
            ("POST", every, self._put, "Keep a template", None),
            ("GET", every, self._list, "Templates, by their ids", None),
            ("POST", f"{every}/materialize", self._materialise,
             "The definition that a template comes to", Materialise),
            ("POST", f"{every}/browse", self._browse,
             "The public templates of another node", Browse),
            ("POST", f"{every}/import/preview", self._preview,
             "A template of another node, whose it is, and whether its signature holds", Preview),
            ("POST", f"{every}/import", self._import,
             "Keep the template that was looked at", Import),
            ("GET", one, self._show, "One template", None),
            ("DELETE", one, self._delete, "Delete a template", None),
            ("POST", f"{one}/start", self._start, "Start a run of a template",
             StartTemplate | None),
            ("POST", f"{one}/publish", self._publish,
             "Let other nodes read a template, or no longer", Publish),
        ]  # fmt: skip
        return [
            Endpoint(
                method=method, path=path, scopes=("operator",), handler=_told(handler),
                summary=summary, body=body, body_bytes=1024 * 1024,
            )
            for method, path, handler, summary, body in rows
        ]  # fmt: skip

    def local_routes(self) -> Sequence[str]:
        return [f"{row.method} {row.path.removeprefix('/v1/')}" for row in self.endpoints()]

    def messages(self) -> Mapping[str, MessageHandler]:
        return {REQUEST: self._public.answer}

    async def start(self) -> None:
        """Everything is read when it is asked for."""

    async def close(self) -> None:
        """There is nothing to end."""

    # -- what others of this module ask --------------------------------------------------------

    async def materialise(self, template_id: str, parameters: Mapping[str, Any]) -> Document:
        """The definition in its normal form. Raises `NotFound`, `InputError` with the class of
        what is wrong with the parameters, and `DefinitionError`."""
        return materialised((await self._find(template_id)).document, parameters)

    # -- keeping -------------------------------------------------------------------------------

    async def _put(self, call: Call) -> Answer:
        _require_operator(call)
        document = checked(call.body)
        template_id = document["template_id"]
        async with self._changing:
            if document.get("deleted"):
                await self._deleted(template_id)
                return Answer(body={"status": "deleted", "template_id": template_id})
            known = await self._records.get(template_id)
            if known is not None and same(known.document, document):
                return Answer(body={"status": "unchanged", **_head(known)})
            await self._require_private(template_id)
            if known is None:
                await self._records.require_room()
            await self._records.forget_origin(template_id)  # it is another one from now on
            kept = await self._records.put(document)
        status = "stored" if known is None else "replaced"
        return Answer(status=201 if known is None else 200, body={"status": status, **_head(kept)})

    async def _require_private(self, template_id: str) -> None:
        if await self._records.publication(template_id) is not None:
            message = (
                f"other nodes can read {template_id}, and what is public does not change: put it "
                "under the id of another version, or withdraw it first (publish: false)"
            )
            raise NodeError(409, "template_is_public", message)

    async def _delete(self, call: Call) -> Answer:
        _require_operator(call)
        template_id = call.params["template"]
        async with self._changing:
            await self._deleted(template_id)
        return Answer(body={"status": "deleted", "template_id": template_id})

    async def _deleted(self, template_id: str) -> None:
        await self._find(template_id)
        self._public.changed()
        await self._records.delete(template_id)
        self._public.changed()

    # -- looking -------------------------------------------------------------------------------

    async def _list(self, _call: Call) -> Answer:
        kept = await self._records.every()
        public, origins = await self._records.publications(), await self._records.origins()
        items = [
            {**_head(one), **_beside(public.get(one.template_id), origins.get(one.template_id))}
            for one in kept
        ]
        return Answer(body={"items": items})

    async def _show(self, call: Call) -> Answer:
        kept = await self._find(call.params["template"])
        public = await self._records.publication(kept.template_id)
        origin = (await self._records.origins()).get(kept.template_id)
        body = {**_head(kept), **_beside(public, origin), "template": kept.document}
        return Answer(body=body)

    async def _find(self, template_id: str) -> KeptTemplate:
        if not is_template_id(template_id):
            raise NotFound(f"there is no template {template_id[:200]!r}", code="template_not_found")
        return await self._records.find(template_id)

    # -- using ---------------------------------------------------------------------------------

    async def _materialise(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, Materialise)
        definition = await self.materialise(wanted.template_id, wanted.parameters)
        return Answer(body={"template_id": wanted.template_id, "definition": definition})

    async def _start(self, call: Call) -> Answer:
        given = StartTemplate() if call.body is None else msgspec.convert(call.body, StartTemplate)
        definition = await self.materialise(call.params["template"], given.parameters)
        run = await self._start_run(definition, given.input)
        return Answer(status=201, body={"run_id": run, "template_id": call.params["template"]})

    # -- sharing -------------------------------------------------------------------------------

    async def _publish(self, call: Call) -> Answer:
        _require_operator(call)
        wanted = msgspec.convert(call.body, Publish).publish
        async with self._changing:
            kept = await self._find(call.params["template"])
            public = await (self._published(kept) if wanted else self._withdrawn(kept))
        return Answer(body={**_head(kept), **_beside(public, None)})

    async def _published(self, kept: KeptTemplate) -> Publication:
        """Signed by the host as its publisher; the same content has the same signature."""
        asked = {"template": publishable(kept.document)}
        signed = (await self._host.capability(SIGN_TEMPLATE, asked)).body
        public = Publication(signed["template"], signed["digest"])
        await self._records.publish(kept.template_id, public)
        self._public.changed()
        return public

    async def _withdrawn(self, kept: KeptTemplate) -> None:
        self._public.changed()
        await self._records.withdraw(kept.template_id)
        self._public.changed()

    async def _browse(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, Browse)
        found = await self._remote.browse(wanted.node_id, wanted.after, wanted.limit)
        return Answer(body={"node_id": wanted.node_id, **found})

    async def _preview(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, Preview)
        fetched = await self._fetched(wanted.node_id, wanted.template_id)
        known = await self._records.get(wanted.template_id)
        return Answer(body=_preview(fetched, known))

    async def _import(self, call: Call) -> Answer:
        _require_operator(call)
        wanted = msgspec.convert(call.body, Import)
        fetched = await self._fetched(wanted.node_id, wanted.template_id)
        fetched.require_sound(wanted.digest, wanted.publisher)
        head = {
            "template_id": fetched.template_id,
            "publisher": fetched.publisher,
            "digest": fetched.digest,
        }
        async with self._changing:
            known = await self._records.get(fetched.template_id)
            if known is not None and same(known.document, fetched.document):
                return Answer(body={"status": "unchanged", **head})
            if known is not None:
                message = f"there is another template {fetched.template_id}; delete it first"
                raise NodeError(409, "template_exists", message)
            await self._records.require_room()
            origin = Origin(fetched.node_id, fetched.publisher, fetched.digest)
            await self._records.note_origin(fetched.template_id, origin)
            await self._records.put(fetched.document)
        return Answer(status=201, body={"status": "imported", **head})

    async def _fetched(self, node_id: str, template_id: str) -> FetchedTemplate:
        if not is_template_id(template_id):
            raise NotFound(f"there is no template {template_id[:200]!r}", code="template_not_found")
        return await self._remote.fetch(node_id, template_id)


def _told(handler: Callable[[Call], Awaitable[Answer]]) -> Callable[[Call], Awaitable[Answer]]:
    """What is wrong with a definition is told in full."""

    async def handle(call: Call) -> Answer:
        try:
            return await handler(call)
        except DefinitionError as error:
            raise refused_definition(error.problems) from None

    return handle


def _require_operator(call: Call) -> None:
    if call.caller.module:
        raise NodeError(403, "forbidden", "a module changes no templates; operators do")


def _head(kept: KeptTemplate) -> Document:
    return {
        **described({**kept.document, "template_id": kept.template_id}),
        "created_at": kept.created_at,
        "updated_at": kept.updated_at,
    }


def _beside(public: Publication | None, origin: Origin | None) -> Document:
    shared = {"public": public is not None, "digest": public.digest if public else None}
    return {**shared, "imported": msgspec.to_builtins(origin) if origin else None}


def _preview(fetched: FetchedTemplate, known: KeptTemplate | None) -> Document:
    here = "absent"
    if known is not None:
        here = "same" if same(known.document, fetched.document) else "other"
    return {
        "node_id": fetched.node_id,
        "template_id": fetched.template_id,
        "publisher": fetched.publisher,
        "publisher_runs_node": fetched.publisher_runs_node,
        "signature": fetched.signature,
        "digest": fetched.digest,
        "size_bytes": size_of(fetched.document),
        "here": here,
        "digest_here": known_digest(known.document) if known is not None else None,
        "problems": [{"code": one.code, "message": one.message} for one in fetched.problems],
        "importable": fetched.signature == "valid" and not fetched.problems and here != "other",
        "template": fetched.document,
    }
