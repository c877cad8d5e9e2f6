"""`workflow.template.sign`: the participant of this node signs a template as its publisher.

A module that may ask for this can have nothing else signed. What is signed has the fields of a
template alone and the schema of one, so nobody can take it for an offer or an order, which need
fields that are refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import SCHEMA, definition_text
from anabranch.errors import DefinitionError, InputError
from anabranch.market.documents import check, digest_of
from anabranch.market.identities import canonical
from anabranch.market.node.api import Answer, Caller
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.words import encoded
from anabranch.market.node.ports import Signer
from anabranch.net.problems import Problem

SIGN_TEMPLATE = "workflow.template.sign"
TEMPLATE_BYTES = 64 * 1024


class SignTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    template: dict[str, Any]


class TemplateSigning:
    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    async def sign(self, body: Any, _caller: Caller, _query: Mapping[str, str]) -> Answer:
        """The host capability."""
        try:
            template = msgspec.convert(body, SignTemplate).template
        except msgspec.ValidationError as error:
            raise NodeError(400, "schema", str(error)) from None
        if len(encoded(template)) > TEMPLATE_BYTES:
            raise NodeError(413, "too_large", f"a template has at most {TEMPLATE_BYTES:,} bytes")
        publisher = self._signer.participant_id
        _require_unpublished(template, publisher)
        document = {**template, "participant_id": publisher}
        _require_template(document)
        try:
            signed = self._signer.sign_as_participant(document)
        except InputError as error:
            raise NodeError(400, "not_signable", error.message) from None
        digest = digest_of(canonical(signed))
        return Answer(body={"status": "signed", "template": signed, "digest": digest})


def _require_unpublished(template: Mapping[str, Any], publisher: str) -> None:
    if "signature" in template:
        raise NodeError(409, "already_signed", "a signature is never replaced; leave it out")
    if template.get("participant_id") not in (None, publisher):
        message = "`participant_id` is another publisher, who alone can sign this template"
        raise NodeError(403, "other_publisher", message)


def _require_template(document: dict[str, Any]) -> None:
    """It is a template, and nothing but one."""
    if document.get("schema") != SCHEMA:
        raise NodeError(400, "not_a_template", f"only a {SCHEMA} is signed: write it as `schema`")
    if document.get("deleted"):
        raise NodeError(400, "not_a_template", "a template that is deleted is not published")
    if problems := check(document, kind=SCHEMA):
        first = problems[0]
        raise NodeError(400, "not_a_template", f"{first.path or '/'}: {first.message}")
    try:
        found: list[Problem] = template_problems(definition_text(document))
    except DefinitionError as error:
        found = list(error.problems)
    if found:
        said = [{"code": one.code, "message": one.message} for one in found]
        raise NodeError(400, "not_a_template", found[0].message, more={"problems": said})
