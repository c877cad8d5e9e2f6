"""`script` of a task: its code or its SQL in a file, at an address, or inline in a mapping.

script: path
script: {uri: path, source: {type: file}}
script: {uri: https://…, source: {type: http, method, headers, auth, timeout}}
script: {uri: path, source: {type: http, endpoint: https://…}}
script: {uri: gs://bucket/key, source: {type: gcs, auth}}         likewise s3
script: {uri: key, source: {type: s3, bucket, region, auth}}      likewise gcs
script: {source: {type: inline, code: …}}

What comes over HTTP comes as the kind `http` would fetch it: the same addresses, limits and errors.
Objects of buckets are read as `buckets.py` says. Both are fetched for every attempt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.faults import Unavailable, fault
from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kinds import inputs
from anabranch.work.kinds.buckets.places import (
    SCHEMES,
    ObjectAddress,
    is_object,
    leads_elsewhere,
    read_place,
)
from anabranch.work.kinds.http.request import bare
from anabranch.work.port import Performer, Task
from anabranch.work.secrets.redaction import given_to_work

if TYPE_CHECKING:
    from anabranch.work.kinds.buckets.buckets import Buckets

BYTES_MAX = 16 * 1024 * 1024
_ADDRESSES = ("http://", "https://")
_CLOUDS = {word: scheme for scheme, word in SCHEMES.items()}
_CALL = ("method", "headers", "params", "auth", "timeout", "verify_ssl", "follow_redirects")


class ScriptSources:
    """Reads scripts. Without `http` and `buckets` they are files, or inline."""

    def __init__(
        self,
        http: Performer | None = None,
        buckets: Callable[[], Buckets] | None = None,
        allowed: FilePolicy = EVERYWHERE,
    ) -> None:
        self._http = http
        self._buckets = buckets
        self._allowed = allowed

    async def text(self, value: Any, task: Task) -> str:
        """The text, or an `InputError`; one that is `Unavailable` may be there another time."""
        kind = source_of(value)
        if kind == "http" and self._http is not None:
            return await self._fetched(value, task)
        if kind in _CLOUDS and self._buckets is not None:
            return await self._object(self._buckets(), value, task)
        return await files.in_thread(partial(script_text, value, self._allowed), "script")

    async def with_sql(self, task: Task) -> Mapping[str, Any]:
        """The inputs of a SQL task with what its script says in the place of `commands`.

        A file is no template: one that looks like it would not do what its author means.
        """
        given = task.inputs
        if given.get("script") is None:
            return given
        written = [name for name in ("command", "commands", "query") if given.get(name) is not None]
        if written:
            raise InputError(f"a SQL task takes one of {written[0]} and script; it has both")
        text = await self.text(given["script"], task)
        if "{{" in text or "{%" in text:
            raise InputError(
                "script: the file has templates, and only the playbook is one; "
                "write placeholders, and their values as params"
            )
        rest = {name: value for name, value in given.items() if name != "script"}
        return {**rest, "commands": text}

    async def _object(self, buckets: Buckets, value: Any, task: Task) -> str:
        script, source = _parts(value)
        _refuse_bare_name(source.get("auth"))
        place = _place(script, source, _CLOUDS[source_of(value)])
        content = await buckets.read(place, source, task, BYTES_MAX)
        try:
            return content.decode()
        except UnicodeDecodeError:
            message = f"{place}: a script is text, and this is not"
            raise Unavailable(message, fault("parse", message)) from None

    async def _fetched(self, value: Any, task: Task) -> str:
        script, source = _parts(value)
        call = {name: source[name] for name in _CALL if source.get(name) is not None}
        _refuse_bare_name(source.get("auth"))
        url = _url(script, source)
        asked = msgspec.structs.replace(
            task, kind="http", inputs={**call, "url": url}, key=f"{task.key}/script"
        )
        assert self._http is not None
        answer = await self._http.perform(asked)
        assert isinstance(answer, Answer)
        if answer.status != "ok":
            raise Unavailable("the script could not be fetched", answer)
        text = answer.result["data"]
        if not isinstance(text, str):
            message = f"{bare(url)}: a script is text, and this is not"
            raise Unavailable(message, fault("parse", message))
        return text


def source_of(value: Any) -> str:
    """Where the script is: `file`, `inline`, `http`, `gcs`, `s3` or another word of the task."""
    script, source = _parts(value)
    if source.get("type") is not None:
        return inputs.text(source["type"], "script.source.type")
    uri = script.get("uri")
    if isinstance(uri, str) and is_object(uri):
        return SCHEMES[uri.partition("://")[0].lower()]
    return "http" if isinstance(uri, str) and uri.startswith(_ADDRESSES) else "file"


def script_text(value: Any, allowed: FilePolicy = EVERYWHERE) -> str:
    """The text of a script that is a file or inline; reads, so not in the event loop."""
    script, source = _parts(value)
    kind = source_of(value)
    if kind == "inline":
        code = source.get("code", source.get("content", script.get("code")))
        return inputs.text(code, "script.source.code")
    path = script_path(value)
    if path is None:
        fetched = kind == "http" or kind in _CLOUDS
        words = "use file or inline" if fetched else "use file, http, gcs, s3 or inline"
        raise InputError(f"script.source.type '{kind}' cannot be read here; {words}")
    try:
        return files.read_text(path, BYTES_MAX, opening=allowed.open_regular)
    except files.FileRefused as error:
        raise InputError(f"script.uri: {error.message}") from None


def script_path(value: Any) -> str | None:
    """The file, where the script is one."""
    if source_of(value) != "file":
        return None
    script, source = _parts(value)
    path = inputs.text(script.get("uri", source.get("path")), "script.uri")
    return path.removeprefix("file://")


def script_name(value: Any) -> str:
    """What it is called, as far as its place says: `load.py`, or nothing."""
    script, source = _parts(value)
    uri = script.get("uri") or source.get("path") or source.get("endpoint") or source.get("url")
    return bare(uri).rpartition("/")[2] if isinstance(uri, str) else ""


def _parts(value: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    script = {"uri": value} if isinstance(value, str) else inputs.mapping(value, "script")
    return script, inputs.mapping(script.get("source"), "script.source")


def _refuse_bare_name(auth: Any) -> None:
    """A name that was looked up has become a secret: any other text is not sent as a token.

    It gets here where the whole mapping was worked out, so that nobody saw that it has a name.
    """
    scope = given_to_work()
    if isinstance(auth, str) and (scope is None or not scope.holds_secret(auth)):
        raise InputError(
            "script.source.auth is a text that was not looked up: write `auth: NAME` in the "
            "playbook itself, or a mapping such as {type: bearer, token: …}"
        )


def _place(script: Mapping[str, Any], source: Mapping[str, Any], scheme: str) -> ObjectAddress:
    """The object; a `uri` that is no address is a key of `source.bucket`."""
    uri = inputs.text(script.get("uri", source.get("path")), "script.uri")
    if "://" not in uri:
        bucket = inputs.text(source.get("bucket"), "script.source.bucket")
        uri = f"{scheme}://{bucket}/{uri.lstrip('/')}"
    place = read_place(uri, "script.uri")
    if place.scheme != scheme:
        raise InputError(
            f"script.uri is an address of {SCHEMES[place.scheme]}, and script.source.type says "
            f"{SCHEMES[scheme]}"
        )
    return place


def _url(script: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    """The whole address; a `uri` that is none is a path below `source.endpoint`."""
    uri = script.get("uri")
    base = source.get("endpoint", source.get("url"))
    if base is None or (isinstance(uri, str) and uri.startswith(_ADDRESSES)):
        return inputs.text(uri, "script.uri")
    below = inputs.text(uri, "script.uri").lstrip("/") if uri is not None else ""
    if leads_elsewhere(re.split(r"[?#]", below)[0]):
        raise InputError(
            "script.uri leads out of script.source.endpoint: it has a part `.` or `..`"
        )
    base = inputs.text(base, "script.source.endpoint")
    return f"{base.rstrip('/')}/{below}" if below else base
