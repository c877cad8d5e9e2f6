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
from anabranch.store.ports import Definition, DefinitionFilter, Store

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
        self._store.put_definition(
            Definition(
                fingerprint=print_of_text,
                dialect=DIALECT,
                name=template.template_id,
                source=text,
                origin=file,
                created_at=int(time.time() * 1000),
            )
        )
        versions = self._versions(template.template_id)
        return next(each for each in versions if fingerprint(DIALECT, each.text) == print_of_text)

    def newest(self) -> list[dict[str, Any]]:
        """The newest version of each, by name."""
        newest: dict[str, Version] = {}
        for name in sorted(self._names()):
            newest[name] = self._versions(name)[-1]
        return [self._described(version) for version in newest.values()]

    def get(self, template_id: str, version: int | None = None) -> tuple[Template, Version]:
        versions = self._versions(template_id)
        if not versions:
            hint = did_you_mean(template_id, self._names())
            message = f"there is no template {template_id!r}"
            raise NotFound(f"{message}; {hint}" if hint else message)
        if version is None:
            found = versions[-1]
        elif 1 <= version <= len(versions):
            found = versions[version - 1]
        else:
            raise NotFound(f"template {template_id} has the versions 1 to {len(versions)}")
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

    def _versions(self, template_id: str) -> list[Version]:
        """Oldest first."""
        wanted = DefinitionFilter(dialect=DIALECT, name=template_id, limit=VERSIONS_MAX)
        cards = reversed(self._store.definitions(wanted))
        kept = [self._store.definition(card.fingerprint) for card in cards]
        return [
            Version(each.name, number, each.source, each.created_at)
            for number, each in enumerate(kept, start=1)
            if each is not None
        ]

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
