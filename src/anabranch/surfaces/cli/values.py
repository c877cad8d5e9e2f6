"""Values that people type: K=V pairs, JSON where it is JSON, files."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from anabranch.errors import InputError
from anabranch.work.json_values import require_json


def pairs(given: Sequence[str], what: str) -> dict[str, Any]:
    """`["a=1", "b.c=x"]` as `{"a": 1, "b": {"c": "x"}}`."""
    values: dict[str, Any] = {}
    for pair in given:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise InputError(f"{what} {pair!r} is not K=V", code="usage")
        _put(values, key.split("."), value(text), pair)
    return values


def _put(values: dict[str, Any], path: list[str], new: Any, pair: str) -> None:
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InputError(f"{pair!r} goes through {part!r}, which is not a mapping")
        values = inner
    values[path[-1]] = new


def flat_pairs(given: Sequence[str], what: str) -> dict[str, Any]:
    """K=V pairs whose keys are taken as they are."""
    values: dict[str, Any] = {}
    for pair in given:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise InputError(f"{what} {pair!r} is not K=V", code="usage")
        values[key] = value(text)
    return values


def value(text: str) -> Any:
    """JSON if it can be read as JSON, the text itself otherwise."""
    try:
        return require_json(json.loads(text), "the value")
    except (ValueError, InputError):
        return text


def labels(given: Sequence[str]) -> dict[str, str]:
    return {
        key: text if isinstance(text, str) else json.dumps(text)
        for key, text in flat_pairs(given, "label").items()
    }


def evidence(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return require_json(json.loads(text), "the evidence")
    except ValueError as error:
        raise InputError(f"--evidence is not JSON: {error}", code="usage") from None


def file_input(path: str | None) -> dict[str, Any]:
    """The input in a JSON or YAML file."""
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", code="usage") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} is neither JSON nor YAML: {error}", code="usage") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a mapping, not {type(found).__name__}", code="usage")
    checked: dict[str, Any] = require_json(found, path)
    return checked


def import_tools(modules: Sequence[str]) -> None:
    """Import modules that register tools; the working directory counts as a place for them."""
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InputError(f"--tools {name}: {error}", code="usage") from None
