"""`script` of a task: its code or its SQL in a file, or inline in a mapping.

script: path
script: {uri: path, source: {type: file}}
script: {source: {type: inline, code: …}}
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.work import inputs

BYTES_MAX = 16 * 1024 * 1024


def script_text(value: Any) -> str:
    """The text; reads a file, so not in the event loop."""
    script = {"uri": value} if isinstance(value, str) else inputs.mapping(value, "script")
    source = inputs.mapping(script.get("source"), "script.source")
    kind = source.get("type", "file")
    if kind == "inline":
        code = source.get("code", source.get("content", script.get("code")))
        return inputs.text(code, "script.source.code")
    if kind != "file":
        raise InputError(f"script.source.type '{kind}' cannot be read here; use file or inline")
    path = inputs.text(script.get("uri", source.get("path")), "script.uri").removeprefix("file://")
    try:
        return files.read_text(path, BYTES_MAX)
    except files.FileRefused as error:
        raise InputError(f"script.uri: {error.message}") from None


async def with_sql(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of a SQL task with what its script says in the place of `commands`.

    A file is no template: one that looks like it would not do what its author means.
    """
    if given.get("script") is None:
        return given
    written = [name for name in ("command", "commands", "query") if given.get(name) is not None]
    if written:
        raise InputError(f"a SQL task takes one of {written[0]} and script; it has both")
    text = await files.in_thread(partial(script_text, given["script"]), "script")
    if "{{" in text or "{%" in text:
        raise InputError(
            "script: the file has templates, and only the playbook is one; "
            "write placeholders, and their values as params"
        )
    rest = {name: value for name, value in given.items() if name != "script"}
    return {**rest, "commands": text}
