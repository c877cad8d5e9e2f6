"""What an `http` task asks for: its inputs read once into the request that is sent."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.port import Task

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_REPEATABLE_BY_KEY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_BODY_NAMES = ("body", "payload", "json", "data", "form")
_FORM = "application/x-www-form-urlencoded"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_WORDS = ("auth", "cookie", "token", "secret", "password", "api-key", "apikey")


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. `total` always holds, so that no server can drip for ever."""

    total: float
    connect: float | None = None
    read: float | None = None


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: dict[str, str]
    params: list[tuple[str, str]]
    body: bytes | None
    timeouts: Timeouts
    verify: bool
    follow: bool
    led_by: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Method and address for messages: without user, password and query."""
        return f"{self.method} {bare(self.url)}"


def read_request(task: Task, default_seconds: float) -> HttpRequest:
    """The request, or an `InputError` that names the input at fault and repeats no secret."""
    given = task.inputs
    method = inputs.text(given.get("method") or "GET", "method").upper()
    if method not in METHODS:
        raise InputError(f"method '{method:.20}' is not one of {', '.join(sorted(METHODS))}")
    url = _url(given)
    headers = _headers(given)
    body = _body(given, headers)
    _authorize(given.get("auth"), headers)
    trusted = not carries_credentials(headers, url)
    _identify(headers, method, task.key)
    return HttpRequest(
        method=method,
        url=url,
        headers=headers,
        params=_params(given.get("params")),
        body=body,
        timeouts=_timeouts(given, default_seconds),
        verify=_flag(given, "verify_ssl", default=True),
        follow=_flag(given, "follow_redirects", default=trusted and method in ("GET", "HEAD")),
        led_by=task.led_by,
    )


def bare(url: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _url(given: Mapping[str, Any]) -> str:
    name = "url" if given.get("url") is not None else "endpoint"
    if given.get(name) is None:
        raise InputError("an http task needs url")
    url = inputs.text(given[name], name).strip()
    try:
        usable = _usable(url)
    except ValueError as error:
        raise InputError(f"{name} is not a usable address: {error}") from None
    if not usable:
        raise InputError(f"{name} must look like https://host/path, not '{bare(url):.200}'")
    return url


@lru_cache(maxsize=1024)  # loops call one address again and again
def _usable(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port  # raises when it is no number, or too large a one
    return parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and port != 0


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in inputs.mapping(given.get("headers"), "headers").items():
        if value is None:
            continue
        text = inputs.scalar(value, f"headers.{name}")
        if not _HEADER_NAME.fullmatch(name):
            raise InputError(f"headers: {name!r:.60} cannot be the name of a header")
        if any(character in text for character in "\r\n\0"):
            raise InputError(f"headers.{name:.60} must not contain line breaks")
        headers[name.lower()] = text
    return headers


def _params(value: Any) -> list[tuple[str, str]]:
    """Null is left out, a list repeats its name."""
    pairs = []
    for name, given in inputs.mapping(value, "params").items():
        for item in given if isinstance(given, list) else [given]:
            if item is not None:
                pairs.append((name, inputs.scalar(item, f"params.{name}")))
    return pairs


def _body(given: Mapping[str, Any], headers: dict[str, str]) -> bytes | None:
    """Text goes as it is, `form` and form content as pairs, everything else as JSON."""
    names = [name for name in _BODY_NAMES if given.get(name) is not None]
    if not names:
        return None
    if len(names) > 1:
        raise InputError(f"an http task takes one body; it has {' and '.join(names)}")
    name, value = names[0], given[names[0]]
    declared = headers.get("content-type", "")
    if isinstance(value, str) and name != "json":
        if name == "form":
            headers.setdefault("content-type", _FORM)
        headers.setdefault("content-type", "text/plain; charset=utf-8")
        return value.encode("utf-8", "replace")
    if name == "form" or (declared.startswith(_FORM) and isinstance(value, Mapping)):
        headers.setdefault("content-type", _FORM)
        return urlencode(_params(inputs.mapping(value, name))).encode()
    headers.setdefault("content-type", "application/json")
    return msgspec.json.encode(value)


def _authorize(auth: Any, headers: dict[str, str]) -> None:
    """`{type: basic, username, password}`, `{type: bearer, token}`, also `{bearer: {token}}`;
    `{type: api_key, api_key, header}`; `{headers: {…}}`; a text is a token."""
    if auth is None:
        return
    if isinstance(auth, str):
        scheme = auth.partition(" ")[0].lower() in ("bearer", "basic")
        headers["authorization"] = _one_line(auth if scheme else f"Bearer {auth}", "auth")
        return
    fields = dict(inputs.mapping(auth, "auth"))
    kind = str(fields.get("type") or fields.get("kind") or "").lower()
    for name in ("basic", "bearer"):
        if name in fields:
            kind, inner = name, fields[name]
            fields = {"token": inner} if isinstance(inner, str) else {**inputs.mapping(inner, name)}
    if kind in ("", "http") and isinstance(fields.get("headers"), Mapping):
        headers |= _headers({"headers": fields["headers"]})
        if not fields.keys() & {"token", "username", "user", "api_key"}:
            return
    if kind in ("", "http"):
        kind = "bearer" if "token" in fields else "api_key" if "api_key" in fields else "basic"
    if kind == "bearer":
        token = inputs.text(fields.get("token"), "auth.token") if "token" in fields else ""
        headers["authorization"] = f"Bearer {_one_line(token, 'auth.token')}"
    elif kind == "basic":
        user = inputs.scalar(fields.get("username", fields.get("user")), "auth.username")
        password = inputs.scalar(fields.get("password", ""), "auth.password")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers["authorization"] = f"Basic {encoded}"
    elif kind == "api_key":
        given = next((fields[name] for name in ("api_key", "value", "key") if name in fields), None)
        header = inputs.text(fields.get("header", "X-API-Key"), "auth.header")
        headers |= _headers({"headers": {header: inputs.text(given, "auth.api_key")}})
    else:
        raise InputError(f"auth.type '{kind:.20}' is not known here; use basic, bearer or api_key")


def _one_line(secret: str, what: str) -> str:
    if not secret or not secret.isprintable():
        raise InputError(f"{what} is empty or has characters a header cannot carry")
    return secret


def carries_credentials(headers: Mapping[str, Any], url: str) -> bool:
    if "@" in url and "@" in urlsplit(url).netloc:
        return True
    return any(word in name.lower() for name in headers for word in _SECRET_WORDS)


def _identify(headers: dict[str, str], method: str, key: str) -> None:
    """A server that knows this header does the same thing once, however often it is asked."""
    if method in _REPEATABLE_BY_KEY and key:
        headers.setdefault("idempotency-key", quote(key, safe="/:=+@,;!*()[]"))


def _timeouts(given: Mapping[str, Any], default: float) -> Timeouts:
    value = given.get("timeout")
    if not isinstance(value, Mapping):
        return _total(inputs.timeout(given) or default)
    named = {
        name: inputs.seconds(value[name], f"timeout.{name}")
        for name in ("connect", "read", "total")
        if value.get(name) is not None
    }
    total = named.get("total", max(default, named.get("connect", 0) + named.get("read", 0)))
    return Timeouts(total, named.get("connect"), named.get("read"))


@lru_cache(maxsize=64)
def _total(seconds: float) -> Timeouts:
    return Timeouts(seconds)


def _flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name)
    return default if value is None else inputs.flag(value, name)
