"""One template: checked as it comes in, described, compared, made into a definition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.dialects.arca.normal import normal_form
from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import SCHEMA, definition_text, read_template
from anabranch.errors import AnabranchError, DefinitionError, InputError
from anabranch.market.documents import digest_of
from anabranch.market.documents.limits import is_within_limits
from anabranch.market.documents.problems import Found
from anabranch.market.identities import canonical, is_signed_by
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.template_signing import TEMPLATE_BYTES
from anabranch.operations.definitions.prepare import prepare

Document = dict[str, Any]
Verdict = Literal["valid", "invalid", "missing"]
PUBLISHER = "participant_id"
LABEL_MAX, DESCRIPTION_MAX = 256, 1024  # characters, in lists

_encode = msgspec.json.Encoder(order="deterministic").encode
_VERSION = re.compile(r"(.+)\.v([0-9]{1,9})")
#: What says when a template was kept, and not what it is.
_TIMES = ("created_at", "updated_at")


def checked(given: Any) -> Document:
    """The template. Raises `NodeError`, and `DefinitionError` with everything that is wrong."""
    found = Found()
    if not isinstance(given, dict) or not is_within_limits(given, found):
        message = found.problems()[0].message if len(found) else "a template is an object"
        raise NodeError(400, "schema", message)
    if size_of(given) > TEMPLATE_BYTES:
        raise NodeError(413, "too_large", f"a template has at most {TEMPLATE_BYTES:,} bytes")
    problems = template_problems(definition_text(given))
    if problems:
        raise DefinitionError(problems)
    if verdict_of(given) == "invalid":
        message = "the signature of the template is not that of `participant_id` for this content"
        raise NodeError(400, "bad_signature", f"{message}; leave it out")
    return given


def materialised(document: Document, parameters: Mapping[str, Any]) -> Document:
    """The definition in its normal form. Raises `InputError` for parameters, `DefinitionError`."""
    template = read_template(definition_text(document))
    text = definition_text(template.materialise(parameters))
    prepare(text)  # what is wrong is told as it was written
    definition = normal_form(text)
    prepare(definition_text(definition))
    return definition


def described(document: Mapping[str, Any]) -> Document:
    """What lists say of it; `problem` where it cannot be used."""
    template_id = str(document.get("template_id"))
    name, version = version_of(template_id)
    row: Document = {"template_id": template_id, "name": name, "version": version}
    try:
        template = read_template(definition_text(document))
    except AnabranchError as error:
        return {**row, "problem": error.message[:DESCRIPTION_MAX]}
    parameters = {
        one.name: {
            "type": one.type,
            "required": one.required,
            **({} if one.required else {"default": one.default}),
            **({"description": one.description} if one.description else {}),
        }
        for one in template.parameters
    }
    texts = {"label": template.label, "description": template.description}
    return {**row, **texts, "parameters": parameters}


def version_of(template_id: str) -> tuple[str, int | None]:
    """`weekly.v2` is version 2 of weekly; an id without such an end has no version."""
    found = _VERSION.fullmatch(template_id)
    return (found[1], int(found[2])) if found else (template_id, None)


def publishable(document: Document) -> Document:
    """As its publisher signs it: every word of the schema is there, and no trace of this store."""
    left_out = ("signature", "deleted", *_TIMES)
    fields = {key: value for key, value in document.items() if key not in left_out}
    if isinstance(fields.get("parameters"), dict):
        fields["parameters"] = {
            name: {"type": one} if isinstance(one, str) else {"type": "any", **one}
            for name, one in fields["parameters"].items()
        }
    return {"schema": SCHEMA, "template_kind": "workflow", **fields}


def verdict_of(document: Document) -> Verdict:
    """On its signature, as that of the publisher whom it names."""
    if "signature" not in document:
        return "missing"
    publisher = document.get(PUBLISHER)
    if not isinstance(publisher, str) or not publisher.startswith("participant:"):
        return "invalid"
    return "valid" if is_signed_by(document, publisher) else "invalid"


def digest(document: Document) -> str:
    """Of the whole template with its signature. Raises `InputError` for what has no digest."""
    return digest_of(canonical(document))


def known_digest(document: Document) -> str:
    """The same; "" where there is none."""
    try:
        return digest(document)
    except InputError:
        return ""


def size_of(document: Document) -> int:
    return len(_encode(document))


def same(one: Document, other: Document) -> bool:
    return _encode(one) == _encode(other)
