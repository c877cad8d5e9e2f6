"""Values that people type: K=V pairs, JSON where it is JSON, files."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.dialects.nodes import Fields, kind_of, plain
from anabranch.dialects.source import read_source
from anabranch.dialects.xrc729.words import SEALED
from anabranch.errors import DefinitionError, InputError, NotFound
from anabranch.operations.definitions.input_check import put, read_text
from anabranch.operations.definitions.prepare import Source
from anabranch.operations.overview.search import checked_search
from anabranch.settings import Settings
from anabranch.store.location import MEMORY, exists
from anabranch.store.ports import HeadFilter
from anabranch.work.values.json_values import require_json


def pairs(given: Sequence[str], what: str) -> dict[str, Any]:
    """`["a=1", "b.c=x"]` as `{"a": 1, "b": {"c": "x"}}`."""
    values: dict[str, Any] = {}
    for key, text in texts(given, what).items():
        new = text if key.startswith(SEALED) else read_text(text)  # a secret of digits is no number
        put(values, key.split("."), new, f"{key}={text}")
    return values


def texts(given: Sequence[str], what: str) -> dict[str, str]:
    """The same as it was typed: what it means depends on the definition."""
    return dict(_split(pair, what) for pair in given)


def _split(pair: str, what: str) -> tuple[str, str]:
    key, separator, text = pair.partition("=")
    if not separator or not key:
        raise InputError(f"{what} {pair!r} is not K=V", code="usage")
    return key, text


def flat_pairs(given: Sequence[str]) -> dict[str, Any]:
    """K=V pairs whose keys are taken as they are."""
    return {key: read_text(text) for key, text in texts(given, "value").items()}


def labels(given: Sequence[str]) -> dict[str, str]:
    """Labels stay the text that was typed."""
    return dict(_split(pair, "label") for pair in given)


def runs_wanted(options: argparse.Namespace) -> HeadFilter:
    """The filter that `bulk` and `purge` share."""
    return HeadFilter(
        statuses=options.status,
        dialect=options.dialect,
        name=options.name,
        labels=labels(options.label),
        run_prefix=options.prefix,
        search=checked_search(options.search),
    )


def purge_fields(wanted: HeadFilter) -> dict[str, Any]:
    """That filter as it is sent."""
    return {
        "status": list(wanted.statuses),
        "dialect": wanted.dialect,
        "name": wanted.name,
        "labels": dict(wanted.labels),
        "prefix": wanted.run_prefix,
        "search": wanted.search,
    }


def bulk_fields(wanted: HeadFilter) -> dict[str, Any]:
    more = ("parent", "created_before", "ended_before")
    return {**purge_fields(wanted), **{name: getattr(wanted, name) for name in more}}


def evidence(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return require_json(json.loads(text), "the evidence")
    except ValueError as error:
        raise InputError(f"--evidence is not JSON: {error}", code="usage") from None


def payload(text: str | None) -> Any:
    """What a signal says. Plain words are refused: they would be text that nobody meant as JSON."""
    if text is None:
        return None
    try:
        return require_json(json.loads(text), "the payload")
    except (ValueError, RecursionError) as error:
        said = f"the payload is not JSON: {error}; put a text into quotes: '\"text\"'"
        raise InputError(said, code="usage") from None


def file_input(path: str | None) -> dict[str, Any]:
    """The input in a JSON or YAML file."""
    if path is None:
        return {}
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read: {reason}", code="usage") from None
    if not data.strip():
        return {}
    document = read_source(data, file=path)
    if document.problems:
        raise DefinitionError(document.problems)
    if not isinstance(document.root, Fields):
        found = "nothing" if document.root is None else kind_of(document.root)
        raise InputError(f"{path} must hold a mapping; it holds {found}", code="usage")
    checked: dict[str, Any] = require_json(plain(document.root), path)
    return checked


def source(file: str) -> Source:
    """A definition: a file, or `-` for standard input."""
    if file != "-":
        return Path(file)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("what came on standard input is not UTF-8", code="usage") from None
    return text if "\n" in text else text + "\n"


def require_store(settings: Settings) -> None:
    """For verbs that look for a run: a store that is not there must not be made for them."""
    if settings.store != MEMORY and not exists(settings.store):
        raise NotFound(f"there is no store {settings.store}; --store PATH names another")


def look_here() -> None:
    """Modules in the working directory can be imported, as in a script that lies there."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def import_tools(modules: Sequence[str]) -> None:
    """Import modules that register tools; the working directory counts as a place for them."""
    if not modules:
        return
    from anabranch.work.kinds.callables import default_toolbox

    look_here()
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does when it is imported
            raise InputError(f"--tools {name}: {error!r}", code="usage") from error
        default_toolbox.imported.setdefault(name)
