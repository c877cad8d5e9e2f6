"""What the answer of an HTTP server means: a result, or a fault of the right kind."""

from __future__ import annotations

import base64
import email.utils
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault
from anabranch.work.kinds.http.charsets import UnknownCharset, codec_of, decoded
from anabranch.work.kinds.http.request import HttpRequest, bare
from anabranch.work.secrets.redaction import ROOM_MAX, head_of
from anabranch.work.values.served_json import build_json, do_aside

_PREVIEW = 2_000
_TELLING = ("content-type", "retry-after", "x-request-id", "www-authenticate", "date", "server")
_KINDS = {401: "auth", 403: "auth", 404: "not_found", 429: "rate_limit"}


class HttpResponse(msgspec.Struct, frozen=True):
    """An answer that has been read, as far as it was worth reading."""

    status: int
    url: str
    headers: dict[str, str]  # names in lower case, repeated ones joined
    body: bytes
    elapsed: float  # seconds


async def read_answer(request: HttpRequest, response: HttpResponse) -> Answer:
    """What the reply means; a large one is taken apart beside the event loop."""
    return await do_aside(len(response.body), answer_for, request, response)


def answer_for(request: HttpRequest, response: HttpResponse) -> Answer:
    if not 200 <= response.status < 300:
        return _refused(request, response)
    try:
        content = _content(response)
    except (ValueError, LookupError, RecursionError, msgspec.MsgspecError) as error:
        return fault(
            "parse",
            f"{request.place}: the answer is not the {_media_type(response)} it claims to be: "
            f"{error}",
            details={"http_status": response.status, "body": _preview(response)},
        )
    return succeeded(
        {
            "status_code": response.status,
            "headers": response.headers,
            "url": response.url,
            "elapsed": round(response.elapsed, 6),
            **content,
        }
    )


def kind_of(status: int) -> str:
    """The error kind of a status that is no success."""
    return _KINDS.get(status) or ("server_error" if status >= 500 else "client_error")


def _refused(request: HttpRequest, response: HttpResponse) -> Answer:
    headers = response.headers
    details = {
        "http_status": response.status,
        "status": response.status,  # some playbooks read it under this name
        "headers": {
            name: value
            for name, value in headers.items()
            if name in _TELLING or name.startswith("x-ratelimit")
        },
        "body": _preview(response),
    }
    wait = retry_after(headers)
    if wait is not None:
        details["retry_after"] = wait
    return fault(
        kind_of(response.status),
        f"{request.place} answered {response.status}{_advice(request, response)}",
        code=f"HTTP_{response.status}",
        details=details,
    )


def _advice(request: HttpRequest, response: HttpResponse) -> str:
    if not 300 <= response.status < 400 or request.follow:
        return ""
    target = bare(response.headers.get("location", "")) or "nowhere"
    return f" (a redirect to {target}; set follow_redirects: true to go there)"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks for, whichever of its two forms it uses."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, round((moment - datetime.now(UTC)).total_seconds(), 3))


def _content(response: HttpResponse) -> dict[str, Any]:
    media_type = _media_type(response)
    if not response.body:
        return {"data": None}
    if media_type == "application/json" or media_type.endswith("+json"):
        return {"data": _json(response)}
    if _is_text(media_type):
        try:
            return {"data": decoded(response.body, _charset(response), "replace")}
        except UnknownCharset:  # the bytes as they are; `headers` say what they claim to be
            return _as_bytes(response)
    try:
        return {"data": response.body.decode()}
    except UnicodeDecodeError:
        return _as_bytes(response)


def _as_bytes(response: HttpResponse) -> dict[str, Any]:
    return {"data": base64.b64encode(response.body).decode(), "encoding": "base64"}


def _json(response: HttpResponse) -> Any:
    body, codec = response.body, codec_of(_charset(response))
    if codec not in ("utf-8", "ascii"):
        body = decoded(body, codec).encode()
    return build_json(body.removeprefix(b"\xef\xbb\xbf"))


def _media_type(response: HttpResponse) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _charset(response: HttpResponse) -> str:
    parameters = response.headers.get("content-type", "").split(";")[1:]
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'") or "utf-8"
    return "utf-8"


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("/xml", "+xml", "/javascript"))


def _preview(response: HttpResponse) -> str:
    text = response.body[: _PREVIEW * 4 + ROOM_MAX].decode("utf-8", "replace")
    return text if len(text) <= _PREVIEW else f"{head_of(text, _PREVIEW)} …"
