"""From whatever a person hands in (a path, a text, a mapping) to a definition that can run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.dialects.nodes import Fields
from anabranch.dialects.port import Compiled, RegisteredTool
from anabranch.dialects.registry import load
from anabranch.dialects.source import SourceLimits, read_source
from anabranch.errors import AnabranchError, DefinitionError, InputError
from anabranch.net.net import Net
from anabranch.net.problems import Problem, in_order
from anabranch.operations.definitions.compile_cache import CACHE
from anabranch.operations.definitions.preflight import missing_children
from anabranch.runtime.nets import Compile
from anabranch.store.ports import Definition
from anabranch.store_files import refuse_store_file

Source = str | os.PathLike[str] | Mapping[str, Any]
Rules = str | os.PathLike[str] | Mapping[str, Any]  # of an orchestration
#: Notes of files that can be checked, and are no one definition that could run.
NOT_ONE_DEFINITION = ("several-orchestrations", "test-plan")
TEXT = "<text>"  # what a definition is called that came from no file
DEPTH_MAX = 200  # of values; readers of definitions take less, and say where


class Prepared(msgspec.Struct, frozen=True):
    """A definition that compiled, with what is worth a look in it."""

    definition: Definition
    net: Net
    problems: tuple[Problem, ...]


def check(
    source: Source,
    tools: Iterable[RegisteredTool] = (),
    rules: Rules | None = None,
    *,
    file: str = TEXT,
    knows: Callable[[str], bool] = lambda _target: False,
) -> Compiled:
    """Everything that can be said about a definition without running it. `knows` says whether the
    catalog has a child."""
    compiled, text, origin = _compiled(source, tools, rules, file)
    if compiled.net is None and compiled.dialect == "arca" and "template_id" in text:
        return _checked_template(compiled, text, origin)
    path = path_in(source)
    if path is None or compiled.net is None:
        return compiled  # of a text from elsewhere no file is looked at
    missing = missing_children(compiled.net, path.parent, knows)
    return replace(compiled, problems=in_order((*compiled.problems, *missing)))


def _checked_template(compiled: Compiled, text: str, file: str) -> Compiled:
    """A template is checked as what it will become; anything else is what it was."""
    from anabranch.dialects.arca.template_check import template_problems  # few check templates

    root = read_source(text, file=file).root
    if not isinstance(root, Fields) or "template_id" not in root or "workflow_id" in root:
        return compiled
    try:
        problems = template_problems(text, file=file)
    except DefinitionError as error:
        problems = list(error.problems)
    return Compiled(None, in_order(problems), "workflow-template")


def prepare(
    source: Source,
    tools: Iterable[RegisteredTool] = (),
    rules: Rules | None = None,
    *,
    file: str = TEXT,
    content: bytes | None = None,
) -> Prepared:
    """The compiled definition; raises `DefinitionError` with all its errors.

    `rules` are those of an orchestration: a folder, a bundle, or a mapping by alias or address.
    `file` is what a text is called: problems name it, and so does a definition without a name.
    `content` is that of the file which `source` names, where it has been read already.
    """
    compiled, text, origin = _compiled(source, tools, rules, file, content)
    if compiled.net is None:
        raise _cannot_run(compiled, origin)
    net = compiled.net
    definition = Definition(
        fingerprint=net.fingerprint,
        dialect=net.dialect,
        name=net.name,
        source=text,
        origin=origin,
    )
    return Prepared(definition, net, compiled.problems)


def _cannot_run(compiled: Compiled, origin: str) -> AnabranchError:
    """What keeps a definition from being run, drawn or played, though nothing may be wrong."""
    for problem in () if compiled.errors else compiled.problems:
        if problem.code in NOT_ONE_DEFINITION:
            message = f"{origin}: {problem.message}; {problem.hint}"
            return InputError(message, code=problem.code.replace("-", "_"))
    return DefinitionError(compiled.errors)


def _compiled(
    source: Source,
    tools: Iterable[RegisteredTool],
    rules: Rules | None = None,
    file: str = TEXT,
    content: bytes | None = None,
) -> tuple[Compiled, str, str]:
    """The definition, its text and where it came from. A file (or a pipe) is read once."""
    path = path_in(source)
    if path is None:
        text = as_text(source)
        if rules is not None:
            text = _with_rules(text, file, rules)
        return CACHE.compile(text, file=file, tools=tools), text, file
    most = SourceLimits().bytes_max
    try:
        data = content if content is not None else _start_of(path, most + 1)
    except (OSError, ValueError):
        return load(path, tools=tools), "", ""  # raises, and says what is wrong with the file
    if len(data) > most and path.is_file():
        return load(path, tools=tools), "", ""  # says how large it is
    if rules is not None:
        text = _with_rules(data.decode("utf-8", "replace"), str(path), rules)
        return CACHE.compile(text, file=str(path), tools=tools), text, str(path)
    compiled = CACHE.compile(data, file=str(path), tools=tools)
    return compiled, data.decode("utf-8", "replace"), str(path)


def _start_of(path: Path, most: int) -> bytes:
    refuse_store_file(path)
    with path.open("rb") as opened:
        return opened.read(most)


def canonical_text(path: Path) -> tuple[str, str]:
    """A playbook's text as it is, and in the canonical spelling."""
    _, text, origin = _compiled(path, ())
    return text, canonical_form(text, origin or str(path))


def canonical_form(text: str, file: str = TEXT) -> str:
    """A playbook in the canonical spelling; one from a `.json` file stays JSON."""
    from anabranch.dialects.noetl.respell.rewrite import canonical  # only `fmt` needs it

    return canonical(text, file)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    refuse_store_file(path)
    beside = path.with_name(f".{path.name}.anabranch")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.chmod(path.stat().st_mode)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"{path} cannot be written: {error.strerror}", code="no_file") from None


def compiler(tools: Iterable[RegisteredTool] = ()) -> Compile:
    """How an engine compiles the definitions in its store.

    A stored definition was checked when its run began. A tool that is not registered in this
    process is no reason to refuse it: the steps that need it will say so when they run.
    """
    known = frozenset(tools)

    def compile_definition(definition: Definition) -> Net:
        compiled = CACHE.compile(
            definition.source, file=definition.origin, tools=known, any_tool=True
        )
        if compiled.net is None:
            raise DefinitionError(compiled.errors)
        return compiled.net

    return compile_definition


def path_in(source: Source) -> Path | None:
    """The file that is meant, where it is not the definition itself."""
    if isinstance(source, Path):
        return source
    if isinstance(source, os.PathLike):
        return Path(source)
    if isinstance(source, str) and "\n" not in source and not source.lstrip().startswith("{"):
        return Path(source)
    return None


def as_text(source: Source) -> str:
    if isinstance(source, str):
        return source
    if isinstance(source, Mapping):
        require_size(source)
        try:
            return json.dumps(source)
        except (TypeError, ValueError) as error:
            raise InputError(f"the definition is not plain data: {error}") from None
    raise InputError(f"a definition is a path, a text or a mapping, not {type(source).__name__}")


def require_size(source: Mapping[str, Any]) -> None:
    """Refuse values that no definition may have so many of, before their text is made: that takes
    much longer than to count them."""
    limits = SourceLimits()
    try:
        encoded = msgspec.json.encode(source)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return  # whoever makes the text says what is wrong
    if len(encoded) > limits.values_max:  # a value has a letter at least
        from anabranch.work.values import json_size  # few definitions are so large

        most = json_size.JsonBounds(*[limits.values_max] * 3)
        json_size.scan(encoded, most, DEPTH_MAX)


def _with_rules(text: str, origin: str, rules: Rules) -> str:
    from anabranch.operations.definitions.bundles import (
        with_rules,  # only orchestrations have rules
    )

    return with_rules(text, origin, rules)
