"""Templates of other nodes: browsed, looked at, and kept once the operator has seen whose they are.

To import is two steps, and the other node is asked in both. What is kept is what was looked at: its
digest says so, and covers the signature of the publisher.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import definition_text
from anabranch.errors import DefinitionError, InputError, NotFound
from anabranch.market.node.door import Door
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.template_signing import TEMPLATE_BYTES
from anabranch.modules.arca.template_catalog.documents import (
    PUBLISHER,
    Document,
    Verdict,
    digest,
    size_of,
    verdict_of,
)
from anabranch.modules.arca.template_catalog.public import REQUEST, RESPONSE, ROWS_MAX
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.net.problems import Problem

TIMEOUT_MS = 10_000


class FetchedTemplate(msgspec.Struct, frozen=True):
    """A template as another node has given it, and what is to be known before it is kept."""

    node_id: str
    document: Document
    digest: str
    signature: Verdict
    publisher: str = ""
    #: Whether the directory knows that the publisher runs that node; None where nobody can say.
    publisher_runs_node: bool | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def template_id(self) -> str:
        return str(self.document["template_id"])

    def require_sound(self, digest: str, publisher: str) -> None:
        """Raises `NodeError` where it must not be kept, by the class of the reason."""
        if self.signature != "valid":
            message = f"the signature of the template is {self.signature}: it is not kept"
            raise NodeError(403, "bad_signature", message)
        if publisher and publisher != self.publisher:
            message = f"the template is published by {self.publisher}, not by {publisher[:200]}"
            raise NodeError(403, "other_publisher", message)
        if digest != self.digest:
            message = f"the template has changed since: its digest is {self.digest} now; look again"
            raise NodeError(409, "template_changed", message)
        if self.problems:
            raise DefinitionError(self.problems)


class RemoteTemplates:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._asked = 0
        self._door = Door()

    async def browse(self, node_id: str, after: str = "", limit: int = ROWS_MAX) -> Document:
        """`templates` as the node describes them, and `next` where there are more."""
        wanted = {"limit": limit, **({"after": after} if after else {})}
        answer = await self._ask(node_id, wanted)
        rows = answer.get("templates")
        if rows is None or len(rows) > limit:
            raise _bad_answer(node_id, f"it lists no more than {limit} templates")
        return {key: answer[key] for key in ("templates", "next") if key in answer}

    async def fetch(self, node_id: str, template_id: str) -> FetchedTemplate:
        """Raises `NotFound`, and `NodeError` for an answer that is none."""
        answer = await self._ask(node_id, {"template_id": template_id})
        document = answer.get("template")
        if document is None or document.get("template_id") != template_id:
            raise _bad_answer(node_id, f"it is not the template {template_id[:200]!r}")
        if size_of(document) > TEMPLATE_BYTES:
            raise _bad_answer(node_id, f"a template has at most {TEMPLATE_BYTES:,} bytes")
        try:
            mark = digest(document)
        except InputError as error:
            raise _bad_answer(node_id, error.message) from None
        publisher = str(document.get(PUBLISHER) or "")
        return FetchedTemplate(
            node_id=node_id,
            document=document,
            digest=mark,
            signature=verdict_of(document),
            publisher=publisher,
            publisher_runs_node=await self._runs(publisher, node_id),
            problems=_problems(document),
        )

    async def _ask(self, node_id: str, wanted: Document) -> Document:
        self._asked += 1
        query = f"template-query:{self._asked}"
        payload = {"schema_version": "v1", "query_id": query, **wanted}
        (outcome,) = await self._host.message(
            {"node_id": node_id}, REQUEST, payload, correlation_id=query, timeout_ms=TIMEOUT_MS
        )
        answer = _answer(outcome, node_id)
        if await self._door.problems(answer, RESPONSE):
            raise _bad_answer(node_id, f"it is no {RESPONSE}")
        if answer["query_id"] != query:
            raise _bad_answer(node_id, "it answers another question")
        if (error := answer.get("error")) is not None:
            if error["code"] == "template_not_found":
                raise NotFound(
                    f"{node_id} has no public template of this id", code="template_not_found"
                )
            raise NodeError(502, "peer_refused", f"{node_id} answered: {error['message']}")
        return answer

    async def _runs(self, publisher: str, node_id: str) -> bool | None:
        if not publisher.startswith("participant:"):
            return None
        try:
            return node_id in await self._host.nodes_of(publisher)
        except (HostRefused, HostUnavailable):
            return None


def _answer(outcome: Document, node_id: str) -> Document:
    """What the other node said; nothing that a module of this one said in its place."""
    error = outcome.get("error") or {}
    if outcome["status"] == "unreachable":
        message = f"{node_id} cannot be reached: {error.get('message', '')}"
        raise NodeError(504, "peer_unreachable", message)
    if outcome["status"] == "no_response":
        raise NodeError(502, "no_template_catalog", f"nothing at {node_id} answers for templates")
    if outcome["status"] != "responded" or outcome.get("answered_by", node_id) != node_id:
        message = f"{node_id} did not answer: {error.get('message', outcome['status'])}"
        raise NodeError(502, "peer_refused", message)
    payload: Any = outcome["payload"]
    if not isinstance(payload, dict):
        raise _bad_answer(node_id, "it is no object")
    return payload


def _problems(document: Document) -> tuple[Problem, ...]:
    try:
        return tuple(template_problems(definition_text(document)))
    except DefinitionError as error:
        return error.problems


def _bad_answer(node_id: str, why: str) -> NodeError:
    return NodeError(502, "bad_answer", f"what {node_id} answered cannot be used: {why}")
