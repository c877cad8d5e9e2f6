"""Definitions: in files, in the catalog of a server, and made of the templates that it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from anabranch.dialects.port import RegisteredTool
from anabranch.dialects.source import SourceLimits
from anabranch.errors import DefinitionError
from anabranch.net.problems import Problem
from anabranch.operations.definitions.bundles import with_rules
from anabranch.operations.definitions.catalog import Draft, wanted
from anabranch.operations.definitions.prepare import TEXT, canonical_text
from anabranch.operations.definitions.prepare import check as check_definition
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.client import problem_of

TEMPLATE = "<template>"  # what a server calls a template that has no file


class HttpDefinitionBackend(HttpTopic):
    async def check(
        self, file: str, _tools: Sequence[RegisteredTool], rules: str | None
    ) -> list[Problem]:
        text = sendable(file, rules)
        if text is None:  # it does not even get as far as a server
            return list(check_definition(values.source(file), (), rules).problems)
        return await self.problems(text, file)

    async def problems(self, text: str, file: str) -> list[Problem]:
        told = await self._client.post("definitions", "check", body=posted(text, file))
        return named([problem_of(one) for one in told["problems"]], file)

    async def respell(self, file: str) -> tuple[str, str]:
        text = sendable(file, None) if file != "-" else None
        if text is None:
            return canonical_text(Path(file))  # says what is wrong with the file
        try:
            told = await self._client.post("definitions", "format", body=posted(text, file))
        except DefinitionError as error:
            raise renamed(error, file) from None
        return text, told["definition"]

    async def draw(
        self, file: str, form: str, _tools: Sequence[RegisteredTool], rules: str | None
    ) -> str:
        text = sendable(file, rules)
        if text is None:  # says what is wrong with the file
            raise DefinitionError(check_definition(values.source(file), (), rules).errors)
        body = posted(text, file)
        try:
            told = await self._client.post("definitions", "graph", body=body, format=form)
        except DefinitionError as error:
            raise renamed(error, file) from None
        return str(told["graph"])


def sendable(file: str, rules: str | None) -> str | None:
    """The text of a definition with its rules; None for a file that cannot be read as one."""
    source = values.source(file)
    if isinstance(source, str):
        text = source
    else:
        try:
            data = Path(str(source)).read_bytes()
            text = data.decode("utf-8")
        except (OSError, ValueError):
            return None
        if len(data) > SourceLimits().bytes_max:
            return None
    return with_rules(text, file, rules) if rules is not None else text


def posted(text: str, file: str) -> Row:
    """A definition as it is sent, with the bare name of its file."""
    return {"definition": text, "file": label_of(file)}


def label_of(file: str) -> str:
    name = Path(file).name[-200:].replace("\\", "_")
    return name if file != "-" and name and name.isprintable() else TEXT


def named(problems: Sequence[Problem], file: str) -> list[Problem]:
    """Problems at their places in the file that was sent."""
    label, shown = label_of(file), TEXT if file == "-" else file

    def place(there: str) -> str:
        head, hash_, rest = there.partition("#")
        return f"{shown}{hash_}{rest}" if head == label else there

    return [
        replace(one, position=replace(one.position, file=place(one.position.file)))
        for one in problems
    ]


def renamed(error: DefinitionError, file: str) -> DefinitionError:
    return DefinitionError(named(error.problems, file))


class HttpCatalogBackend(HttpTopic):
    async def register(self, drafts: Sequence[Draft]) -> list[Row]:
        sent = [
            {"definition": one.text, "file": Path(one.file).name, "path": one.path}
            for one in drafts
        ]
        return list((await self._client.post("catalog", body={"definitions": sent}))["items"])

    async def paths(self, prefix: str) -> list[Row]:
        return await self._all("catalog", prefix=prefix)

    async def versions(self, path: str) -> list[Row]:
        return list((await self._client.get("catalog", path, "versions"))["items"])

    async def show(self, target: str) -> Row:
        asked = wanted(target)
        return await self._client.get("catalog", asked.path, version=asked.version)


class HttpTemplateBackend(HttpTopic):
    async def put(self, text: str, file: str) -> Row:
        body = {"template": text}
        try:  # the same text again is the same version: it may be sent twice
            return await self._client.post("templates", body=body, once=True)
        except DefinitionError as error:
            raise DefinitionError([_at(one, file) for one in error.problems]) from None

    async def delete(self, name: str) -> Row:
        return await self._client.delete("templates", name)

    async def newest(self) -> list[Row]:
        return await self._all("templates")

    async def versions(self, name: str) -> list[Row]:
        return await self._all("templates", name, "versions")

    async def show(self, name: str, version: int | None) -> Row:
        return await self._client.get("templates", name, version=version)

    async def materialise(
        self, name: str, given: Mapping[str, Any], version: int | None
    ) -> tuple[str, list[Problem]]:
        body = {"parameters": given, "version": version}
        told = await self._client.post("templates", name, "definition", body=body)
        return told["definition"], [problem_of(one) for one in told["problems"]]


def _at(problem: Problem, file: str) -> Problem:
    """The problem at its place in the file that was sent."""
    place = problem.position
    return replace(problem, position=replace(place, file=place.file.replace(TEMPLATE, file)))
