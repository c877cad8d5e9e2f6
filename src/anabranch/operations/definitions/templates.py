"""Workflow templates in the store: put, list, show, delete, made into definitions.

A template is kept like a definition, by the hash of its text; its versions are its texts in the
order in which they came. Putting the same text again changes nothing. Deleting one adds a version
that says so, because what was kept is never taken away: runs were made of it. Versions before that
one are no longer found, and a text put after it is the next version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.dialects.arca.normal import normal_form
from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import Template, definition_text, read_template
from anabranch.dialects.nodes import plain
from anabranch.dialects.source import read_source
from anabranch.errors import AnabranchError, DefinitionError, NotFound
from anabranch.net.fingerprint import fingerprint
from anabranch.net.problems import did_you_mean
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.store.ports import Definition, DefinitionCard, DefinitionFilter, Store

VERSIONS_MAX = 100_000
DIALECT = "workflow-template"  # under this word templates stand among the definitions
DELETIONS_MAX = 1000  # of one template, up to which a check knows the fingerprints of its versions
DELETED = "<deleted>"  # the origin of a version that says so

#: A version of a template: its number, and its card.
Numbered = tuple[int, DefinitionCard]


class Version(msgspec.Struct, frozen=True):
    template_id: str
    version: int
    text: str
    created_at: int
    fingerprint: str = ""
    is_new: bool = False  # it was not kept before

    def fields(self) -> dict[str, Any]:
        return {
            "template_id": self.template_id,
            "version": self.version,
            "created_at": self.created_at,
        }


def _mark(text: str, deletions: int) -> str:
    """The fingerprint of a version. A text that was there before it was deleted is another one."""
    return fingerprint(f"{DIALECT}:{deletions}" if deletions else DIALECT, text)


def wrong_with(kept: Definition) -> str:
    """How a stored template differs from the one that was put; "" where it does not."""
    try:
        read_template(kept.source, file=kept.name)
    except AnabranchError as error:
        return f"is not a template: {error.message:.200}"
    if not any(_mark(kept.source, count) == kept.fingerprint for count in range(DELETIONS_MAX)):
        return "has another fingerprint: its source was changed"
    return ""


class Templates:
    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, text: str, file: str = "<template>") -> Version:
        """Keep it as the newest version. `DefinitionError` if it is not right; nothing is kept."""
        template = read_template(text, file=file)
        problems = template_problems(text, file=file)
        if problems:
            raise DefinitionError(problems)
        return self._put(template.template_id, text, DELETED if template.deleted else file)

    def delete(self, template_id: str) -> Version:
        """Let nobody find it any more; the version that says so."""
        number, card = self._found(template_id)[-1]
        document = read_source(self._kept(card, number).text, file=template_id)
        assert document.root is not None, "it was read when it was put"
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        marked = {**plain(document.root), "deleted": True, "updated_at": now}
        return self._put(template_id, definition_text(marked), DELETED)

    def _put(self, template_id: str, text: str, origin: str) -> Version:
        before = self._every(template_id)
        deletions = sum(card.origin == DELETED for _, card in before)
        mark = _mark(text, deletions)
        is_new = all(card.fingerprint != mark for _, card in before)
        last = before[-1][1].created_at if before else 0
        self._store.put_definition(
            Definition(
                fingerprint=mark,
                dialect=DIALECT,
                name=template_id,
                source=text,
                origin=origin,
                created_at=max(int(time.time() * 1000), last + 1),
            )
        )
        number, card = next(
            (number, card) for number, card in self._every(template_id) if card.fingerprint == mark
        )
        return replace(self._kept(card, number), is_new=is_new)

    def newest(self, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """The newest version of each, by name: those behind `after`, at most so many."""
        names = sorted(name for name in self._names() if name > after)
        found = [self._numbered(name)[-1] for name in names[:limit]]
        return [self._described(self._kept(card, number)) for number, card in found]

    def versions(
        self, template_id: str, after: int = 0, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The versions of one above `after`, oldest first, at most so many."""
        numbered = [each for each in self._found(template_id) if each[0] > after]
        return [self._described(self._kept(card, number)) for number, card in numbered[:limit]]

    def get(self, template_id: str, version: int | None = None) -> tuple[Template, Version]:
        cards = dict(self._found(template_id))
        number = max(cards) if version is None else version
        if number not in cards:
            raise NotFound(f"template {template_id} has the versions {min(cards)} to {max(cards)}")
        found = self._kept(cards[number], number)
        return read_template(found.text, file=template_id), found

    def show(self, template_id: str, version: int | None = None) -> dict[str, Any]:
        template, found = self.get(template_id, version)
        return {**self._described(found), "template": template.body, "text": found.text}

    def materialise(
        self, template_id: str, given: Mapping[str, Any], version: int | None = None
    ) -> tuple[Prepared, str]:
        """The definition for these parameters, compiled, and its text."""
        template, _ = self.get(template_id, version)
        text = definition_text(template.materialise(given))
        prepare(text)  # what is wrong is told as it was written
        normal = definition_text(normal_form(text))
        return prepare(normal), normal

    def _found(self, template_id: str) -> list[Numbered]:
        cards = self._numbered(template_id)
        if not cards and self._every(template_id):
            raise NotFound(f"template {template_id} is deleted; put it again to use it")
        if not cards:
            hint = did_you_mean(template_id, self._names())
            message = f"there is no template {template_id!r:.200}"
            raise NotFound(f"{message}; {hint}" if hint else message)
        return cards

    def _numbered(self, template_id: str) -> list[Numbered]:
        """Its versions since it was last deleted, oldest first."""
        every = self._every(template_id)
        deleted = [number for number, card in every if card.origin == DELETED]
        return every[deleted[-1] :] if deleted else every

    def _every(self, template_id: str) -> list[Numbered]:
        wanted = DefinitionFilter(dialect=DIALECT, name=template_id, limit=VERSIONS_MAX)
        return list(enumerate(self._store.definitions(wanted)[::-1], start=1))

    def _kept(self, card: DefinitionCard, number: int) -> Version:
        kept = self._store.definition(card.fingerprint)
        assert kept is not None  # definitions are never deleted
        return Version(kept.name, number, kept.source, kept.created_at, card.fingerprint)

    def _names(self) -> set[str]:
        """Of those that are not deleted: the newest version decides."""
        newest: dict[str, str] = {}
        for card in self._store.definitions(DefinitionFilter(dialect=DIALECT, limit=VERSIONS_MAX)):
            newest.setdefault(card.name, card.origin)
        return {name for name, origin in newest.items() if origin != DELETED}

    @staticmethod
    def _described(version: Version) -> dict[str, Any]:
        template = read_template(version.text, file=version.template_id)
        return {
            **version.fields(),
            "label": template.label,
            "description": template.description,
            "parameters": {
                parameter.name: {
                    "type": parameter.type,
                    "required": parameter.required,
                    **({"default": parameter.default} if not parameter.required else {}),
                    **({"description": parameter.description} if parameter.description else {}),
                }
                for parameter in template.parameters
            },
        }
