"""Clients for buckets that know nobody, follow no redirects, and read no endless answers.

What they do by themselves is decided by libraries: they look for credentials in many places, they
follow redirects, and they read what says no to its end. Each of these is taken from them here.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from anabranch.work.libraries import load

ANSWER_BYTES = 256 * 1024  # of an answer that is no object


@cache
def calls_of_ours() -> Any:
    """The class of what makes the calls of a client."""
    base: Any = load("aiobotocore.httpsession").AIOHTTPSession

    class ClientSession(base):  # type: ignore[misc]  # it has no types
        async def _get_session(self, proxy_url: str | None) -> _Calls:
            return _Calls(await super()._get_session(proxy_url))

    return ClientSession


class _Calls:
    """A client session whose answers are those of the server that was asked."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, method: str, **given: Any) -> Any:
        response = await self._session.request(method, **given, allow_redirects=False)
        if method != "GET" or response.status >= 300:
            await _read_short(response)
        return response


async def _read_short(response: Any) -> None:
    """The body, kept where `read()` finds it."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES:
            response.close()
            raise ValueError(f"an answer of more than {ANSWER_BYTES:,} bytes")
    response._body = b"".join(parts)


def loaded() -> Any:
    """The class of file systems. Importing takes a second, so not in the event loop."""
    made = load("fsspec").get_filesystem_class("s3")
    calls_of_ours()
    session_of_nobody()
    return made


@cache
def session_of_nobody() -> Any:
    """What makes clients. It has no credentials and nowhere to look for them, so one is for all;
    it keeps the descriptions of the service, which take long to read."""
    made = load("aiobotocore.session").AioSession
    nobody = load("aiobotocore.credentials").AioCredentialResolver(providers=[])
    session = made(
        session_vars={
            name: (None, None, os.devnull if name.endswith("_file") else default, convert)
            for name, (_, _, default, convert) in made.SESSION_VARIABLES.items()
        }
    )
    session.register_component("credential_provider", nobody)
    return session


def carry_token(client: Any, token: str) -> None:
    """Sends a token with the requests to the endpoint, and with no others.

    Beside a token Google knows its own names of headers, not those of Amazon."""
    host = urlsplit(client.meta.endpoint_url).netloc

    def add(request: Any, **_others: Any) -> None:
        if urlsplit(request.url).netloc != host:
            return
        request.headers["Authorization"] = f"Bearer {token}"
        for name in [one for one in request.headers if one.lower().startswith("x-amz-meta-")]:
            value = request.headers[name]
            del request.headers[name]
            request.headers[f"x-goog-meta-{name[len('x-amz-meta-') :]}"] = value

    client.meta.events.register("before-send.s3", add)
