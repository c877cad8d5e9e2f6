"""Kinds of keychain entries with values from the environment, from files, or of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.work.file_policy import FilePolicy
from anabranch.work.kinds import inputs
from anabranch.work.secrets.credential_entries import COMMON

_FILE_BYTES = 1024 * 1024

_Resolve = Callable[[Mapping[str, Any], Mapping[str, str], FilePolicy], Any]


def _from_environment(
    entry: Mapping[str, Any], environment: Mapping[str, str], _: FilePolicy
) -> Any:
    wanted = entry.get("map")
    if wanted is not None:
        names = inputs.mapping(wanted, "map")
        return {out: _variable(name, environment) for out, name in names.items()}
    for key in ("variable", "env", "var", "key", "secret_name"):
        if entry.get(key) is not None:
            return _variable(entry[key], environment)
    raise InputError("it needs variable, or map with several")


def _variable(name: Any, environment: Mapping[str, str]) -> str:
    value = environment.get(inputs.text(name, "the name of a variable"))
    if value is None:
        raise InputError(f"the environment has no variable {name}")
    return value


def _static(entry: Mapping[str, Any], *_: object) -> Any:
    if entry.get("map") is not None:
        return inputs.mapping(entry["map"], "map")
    if entry.get("value") is not None:
        return inputs.scalar(entry["value"], "value")
    raise InputError("it needs map, or value")


def _bearer(entry: Mapping[str, Any], *_: object) -> Any:
    return {"type": "bearer", "token": inputs.text(entry.get("token"), "token")}


def _file(entry: Mapping[str, Any], _: Mapping[str, str], allowed: FilePolicy) -> Any:
    path = Path(inputs.text(entry.get("path", entry.get("file")), "path"))
    if entry.get("format", "text") == "json":
        return _json_file(path, entry.get("map"), allowed)
    wanted = entry.get("map")
    if wanted is None:
        return read_secret_file(path, allowed)
    names = inputs.mapping(wanted, "map")
    return {out: read_secret_file(path / str(name), allowed) for out, name in names.items()}


def _json_file(path: Path, wanted: Any, allowed: FilePolicy) -> Any:
    try:
        content = msgspec.json.decode(read_secret_file(path, allowed))
    except (msgspec.DecodeError, RecursionError):
        raise InputError(f"{path} is not JSON") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object")
    names = inputs.mapping(wanted, "map") if wanted is not None else {key: key for key in content}
    if missing := [name for name in names.values() if name not in content]:
        raise InputError(f"{path} has no '{missing[0]}'")
    return {out: content[name] for out, name in names.items()}


def read_secret_file(path: Path, allowed: FilePolicy | None = None) -> str:
    """The text of a file without the line break editors leave at its end. `allowed` where a
    definition names the file, and not the operator."""
    opening = files.open_regular if allowed is None else allowed.open_regular
    text = files.read_text(path, _FILE_BYTES, opening=opening)
    return text.removesuffix("\n").removesuffix("\r")


def _managed(entry: Mapping[str, Any], environment: Mapping[str, str], allowed: FilePolicy) -> Any:
    """`secret_manager` and `credential`: their fields, from one of the providers there are."""
    provider = entry.get("provider")
    if provider == "env":
        return _from_environment(entry, environment, allowed)
    if provider == "file":
        return _file({"path": entry.get("root", "."), **entry}, environment, allowed)
    if provider in (None, "static"):
        fields = {key: value for key, value in entry.items() if key not in COMMON | {"provider"}}
        return _static(entry) if fields.keys() & {"map", "value"} else fields
    raise InputError(f"provider '{provider}' cannot be reached from here; use env or file")


KINDS: Mapping[str, _Resolve] = {
    "env": _from_environment,
    "static": _static,
    "bearer": _bearer,
    "file": _file,
    "secret_manager": _managed,
    "credential": _managed,
    "postgres_credential": _managed,
}


class FileEntry(NamedTuple):
    """An entry that is read from a file."""

    entry: Mapping[str, Any]  # with its templates evaluated
    path: object  # for messages
    read: Callable[[FilePolicy], Any]


def is_in_file(entry: Mapping[str, Any]) -> bool:
    return KINDS.get(str(entry.get("kind"))) is _file or entry.get("provider") == "file"


def file_entry(entry: Mapping[str, Any], environment: Mapping[str, str]) -> FileEntry | None:
    if not is_in_file(entry):
        return None
    path = entry.get("path", entry.get("file", entry.get("root", "its file")))
    return FileEntry(entry, path, partial(KINDS[str(entry.get("kind"))], entry, environment))
