"""`script` of a task: its code or its SQL in a file, at an address, or inline in a mapping.

    script: path
    script: {uri: path, source: {type: file}}
    script: {uri: "https://…", source: {type: http, method, headers, auth}}
    script: {source: {type: inline, code: …}}

What comes from an address is fetched by the performer of HTTP calls, within its limits and to the
addresses that it may reach. It is fetched for every attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work import inputs
from anabranch.work.port import Task

BYTES_MAX = 16 * 1024 * 1024
#: Carries out an HTTP call.
Fetch = Callable[[Task], Awaitable[Any]]


class ScriptNotFetched(Exception):
    """The call for a script failed; `answer` says how."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("the script could not be fetched")
        self.answer = answer


def script_text(value: Any) -> str:
    """The text, where it needs no call; reads a file, so not in the event loop."""
    script = {"uri": value} if isinstance(value, str) else inputs.mapping(value, "script")
    source = inputs.mapping(script.get("source"), "script.source")
    kind = source.get("type", "file")
    if kind == "inline":
        code = source.get("code", source.get("content", script.get("code")))
        return inputs.text(code, "script.source.code")
    if kind != "file":
        raise InputError(
            f"script.source.type '{kind}' cannot be read here; use file, http or inline"
        )
    path = inputs.text(script.get("uri", source.get("path")), "script.uri").removeprefix("file://")
    try:
        return files.read_text(path, BYTES_MAX)
    except files.FileRefused as error:
        raise InputError(f"script.uri: {error.message}") from None


async def read_script(task: Task, fetch: Fetch | None) -> str:
    """The text of the script of a task; `ScriptNotFetched` where its call failed."""
    value = task.inputs["script"]
    source = value.get("source") if isinstance(value, Mapping) else None
    if isinstance(source, Mapping) and source.get("type") == "http" and fetch is not None:
        return await _fetched(task, value, source, fetch)
    return await files.in_thread(partial(script_text, value), "script")


async def _fetched(
    task: Task, script: Mapping[str, Any], source: Mapping[str, Any], fetch: Fetch
) -> str:
    address = script.get("uri") or source.get("url") or source.get("endpoint")
    call = {"url": inputs.text(address, "script.uri"), "method": source.get("method", "GET")}
    call |= {name: source[name] for name in ("headers", "auth") if source.get(name) is not None}
    called = msgspec.structs.replace(task, kind="http", inputs=call, key=f"{task.key}/script")
    answer = await fetch(called)
    if answer.status != "ok":
        raise ScriptNotFetched(answer)
    text = answer.result["data"]
    if not isinstance(text, str):
        raise InputError("script: the server says that it is JSON, or it is no text")
    return text


async def with_sql(task: Task, fetch: Fetch | None) -> Mapping[str, Any]:
    """The inputs of a SQL task with what its script says in the place of `commands`.

    A script is no template: one that looks like it would not do what its author means.
    """
    given = task.inputs
    if given.get("script") is None:
        return given
    written = [name for name in ("command", "commands", "query") if given.get(name) is not None]
    if written:
        raise InputError(f"a SQL task takes one of {written[0]} and script; it has both")
    text = await read_script(task, fetch)
    if "{{" in text or "{%" in text:
        raise InputError(
            "script: the file has templates, and only the playbook is one; "
            "write placeholders, and their values as params"
        )
    rest = {name: value for name, value in given.items() if name != "script"}
    return {**rest, "commands": text}
