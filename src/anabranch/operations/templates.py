"""Workflow templates in the store: put, list, show, made into definitions.

A template is kept like a definition, by the hash of its text; its versions are its texts in the
order in which they came. Putting the same text again changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.dialects.arca.templates import Template, definition_text, read_template
from anabranch.errors import NotFound
from anabranch.net.fingerprint import fingerprint
from anabranch.net.problems import did_you_mean
from anabranch.operations.definitions import Prepared, prepare
from anabranch.store.ports import Definition, DefinitionCard, DefinitionFilter, Store

VERSIONS_MAX = 100_000
DIALECT = "workflow-template"  # under this word templates stand among the definitions


@dataclass(frozen=True, slots=True)
class Version:
    template_id: str
    version: int
    text: str
    created_at: int

    def fields(self) -> dict[str, Any]:
        return {
            "template_id": self.template_id,
            "version": self.version,
            "created_at": self.created_at,
        }


class Templates:
    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, text: str, file: str = "<template>") -> Version:
        """Keep it as the newest version. `DefinitionError` if it is not right; nothing is kept."""
        template = read_template(text, file=file)
        print_of_text = fingerprint(DIALECT, text)
        before = self._numbered(template.template_id)
        self._store.put_definition(
            Definition(
                fingerprint=print_of_text,
                dialect=DIALECT,
                name=template.template_id,
                source=text,
                origin=file,
                created_at=max(int(time.time() * 1000), before[-1].created_at + 1 if before else 0),
            )
        )
        cards = self._numbered(template.template_id)
        number = next(n for n, card in enumerate(cards, 1) if card.fingerprint == print_of_text)
        return self._kept(cards[number - 1], number)

    def newest(self, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """The newest version of each, by name: those behind `after`, at most so many."""
        names = sorted(name for name in self._names() if name > after)
        found = [self._numbered(name) for name in names[:limit]]
        return [self._described(self._kept(cards[-1], len(cards))) for cards in found]

    def versions(
        self, template_id: str, after: int = 0, limit: int | None = None
    ) -> list[dict[str, Any]]:
        """The versions of one above `after`, oldest first, at most so many."""
        numbered = list(enumerate(self._found(template_id), start=1))[max(0, after) :]
        return [self._described(self._kept(card, number)) for number, card in numbered[:limit]]

    def get(self, template_id: str, version: int | None = None) -> tuple[Template, Version]:
        cards = self._found(template_id)
        number = len(cards) if version is None else version
        if not 1 <= number <= len(cards):
            raise NotFound(f"template {template_id} has the versions 1 to {len(cards)}")
        found = self._kept(cards[number - 1], number)
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
        return prepare(text), text

    def _found(self, template_id: str) -> list[DefinitionCard]:
        cards = self._numbered(template_id)
        if not cards:
            hint = did_you_mean(template_id, self._names())
            message = f"there is no template {template_id!r:.200}"
            raise NotFound(f"{message}; {hint}" if hint else message)
        return cards

    def _numbered(self, template_id: str) -> list[DefinitionCard]:
        """The cards of its versions, oldest first."""
        wanted = DefinitionFilter(dialect=DIALECT, name=template_id, limit=VERSIONS_MAX)
        return self._store.definitions(wanted)[::-1]

    def _kept(self, card: DefinitionCard, number: int) -> Version:
        kept = self._store.definition(card.fingerprint)
        assert kept is not None  # definitions are never deleted
        return Version(kept.name, number, kept.source, kept.created_at)

    def _names(self) -> set[str]:
        wanted = DefinitionFilter(dialect=DIALECT, limit=VERSIONS_MAX)
        return {card.name for card in self._store.definitions(wanted)}

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
