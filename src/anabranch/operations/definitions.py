"""From whatever a person hands in (a path, a text, a mapping) to a definition that can run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.dialects.port import Compiled
from anabranch.dialects.registry import compile_source, load
from anabranch.errors import DefinitionError, InputError
from anabranch.net.net import Net
from anabranch.net.problems import Problem
from anabranch.runtime.nets import Compile
from anabranch.store.ports import Definition

Source = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A definition that compiled, with what is worth a look in it."""

    definition: Definition
    net: Net
    problems: tuple[Problem, ...]


def check(source: Source, tools: Iterable[str] = ()) -> Compiled:
    """Everything that can be said about a definition without running it."""
    path = _as_path(source)
    if path is not None:
        return load(path, tools=tools)
    return compile_source(_as_text(source), tools=tools)


def prepare(source: Source, tools: Iterable[str] = ()) -> Prepared:
    """The compiled definition; raises `DefinitionError` with all its errors."""
    compiled = check(source, tools)
    if compiled.net is None:
        raise DefinitionError(compiled.errors)
    path = _as_path(source)
    net = compiled.net
    definition = Definition(
        fingerprint=net.fingerprint,
        dialect=net.dialect,
        name=net.name,
        source=path.read_text(encoding="utf-8") if path is not None else _as_text(source),
        origin=str(path) if path is not None else "<text>",
    )
    return Prepared(definition, net, compiled.problems)


def compiler(tools: Iterable[str] = ()) -> Compile:
    """How an engine compiles the definitions in its store.

    A stored definition was checked when its run began. A tool that is not registered in this
    process is no reason to refuse it: the steps that need it will say so when they run.
    """
    known = frozenset(tools)

    def compile_definition(definition: Definition) -> Net:
        compiled = compile_source(
            definition.source, file=definition.origin, tools=known, any_tool=True
        )
        if compiled.net is None:
            raise DefinitionError(compiled.errors)
        return compiled.net

    return compile_definition


def _as_path(source: Source) -> Path | None:
    if isinstance(source, os.PathLike):
        return Path(source)
    if isinstance(source, str) and "\n" not in source and not source.lstrip().startswith("{"):
        return Path(source)
    return None


def _as_text(source: Source) -> str:
    if isinstance(source, str):
        return source
    if isinstance(source, Mapping):
        try:
            return json.dumps(source)
        except (TypeError, ValueError) as error:
            raise InputError(f"the definition is not plain data: {error}") from None
    raise InputError(f"a definition is a path, a text or a mapping, not {type(source).__name__}")
