"""OAuth2 client credentials: tokens fetched when needed and renewed before they expire.

One refresh at a time per entry: whoever comes meanwhile uses the old token while it lasts, or waits
for the same refresh. A refresh that fails does no harm as long as the old token is good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.errors import ExpressionError, InputError
from anabranch.kernel.values import Answer, Fault
from anabranch.work.kinds import inputs
from anabranch.work.port import Performer, Task
from anabranch.work.secrets.redaction import Secret

_LIFE_SECONDS = 3600.0  # when the server does not say
_LIFE_SECONDS_MAX = 10 * 365 * 86_400.0  # a server that says more means "for ever"
_MARGIN_SECONDS = 60.0  # renewed that long before the end, but never in the first nine tenths
_SECOND_TRY_MS = 5_000


class KeychainError(ExpressionError):
    """A secret that cannot be had now, or not at all. The message names the entry, no value. It
    passes through templates as it is: whoever looks the secret up is told this and nothing else."""

    code = "keychain"

    def __init__(self, message: str, *, kind: str = "config", retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable


class OAuthToken(msgspec.Struct, frozen=True):
    value: Secret
    type: str
    renew_at: int  # milliseconds since the epoch
    expires_at: int

    def __repr__(self) -> str:
        return f"Token(expires_at={self.expires_at})"


class TokenSource:
    """The tokens of one entry."""

    def __init__(
        self, name: str, request: Mapping[str, Any], http: Performer, clock: Clock
    ) -> None:
        self._name = name
        self._request = request
        self._renews = inputs.flag(request.get("auto_renew", True), f"keychain.{name}.auto_renew")
        self._http = http
        self._clock = clock
        self._token: OAuthToken | None = None
        self._refresh: asyncio.Task[OAuthToken] | None = None
        self._not_before = 0  # after a failed refresh

    @property
    def busy(self) -> bool:
        """A token is being fetched."""
        return self._refresh is not None

    async def token(self) -> OAuthToken:
        token, now = self._token, self._clock.now()
        if token is not None and (now < token.renew_at or not self._renews):
            return token
        if token is not None and now < token.expires_at:
            return await self._renewed(token, now)
        return await self._refreshed()

    async def close(self) -> None:
        if self._refresh is not None:
            self._refresh.cancel()
            await asyncio.wait((self._refresh,))

    async def _renewed(self, token: OAuthToken, now: int) -> OAuthToken:
        """A new token, or the old one if somebody else is at it or the server is not."""
        if self._refresh is not None or now < self._not_before:
            return token
        try:
            return await self._refreshed()
        except KeychainError:
            self._not_before = now + _SECOND_TRY_MS
            return token

    async def _refreshed(self) -> OAuthToken:
        if self._refresh is None:
            self._refresh = asyncio.create_task(self._fetch())
            self._refresh.add_done_callback(self._done)
        # Shielded: the refresh is for all who wait, and one of them giving up is no reason to stop.
        return await asyncio.shield(self._refresh)

    def _done(self, refresh: asyncio.Task[OAuthToken]) -> None:
        self._refresh = None
        if not refresh.cancelled() and refresh.exception() is None:
            self._token = refresh.result()

    async def _fetch(self) -> OAuthToken:
        asked_at = self._clock.now()
        answer = await self._http.perform(_task(self._name, self._request))
        assert isinstance(answer, Answer)  # calls do not park
        return self._read(_body(answer, self._name), asked_at)

    def _read(self, body: Mapping[str, Any], asked_at: int) -> OAuthToken:
        value = body.get("access_token", body.get("token"))
        if not isinstance(value, str) or not value:
            raise KeychainError(f"keychain.{self._name}: the answer has no access_token")
        try:
            life = inputs.seconds(body.get("expires_in") or _LIFE_SECONDS, "expires_in")
        except InputError as error:
            raise KeychainError(f"keychain.{self._name}: {error.message}") from None
        life = min(life, _LIFE_SECONDS_MAX) * 1000
        margin = min(_MARGIN_SECONDS * 1000, life * 0.1)
        return OAuthToken(
            Secret(value),
            str(body.get("token_type") or "Bearer"),
            asked_at + int(life - margin),
            asked_at + int(life),
        )


def _task(name: str, request: Mapping[str, Any]) -> Task:
    endpoint = request.get("endpoint") or request.get("url") or request.get("token_url")
    given: dict[str, Any] = {
        "url": endpoint,
        "method": request.get("method") or "POST",
        "headers": request.get("headers"),
        "params": request.get("params"),
        "auth": request.get("auth"),
        "timeout": request.get("timeout") or 30,
        "follow_redirects": False,  # credentials go where they were sent, and nowhere else
    }
    data = request.get("data", request.get("body"))
    if data is None and request.get("client_id") is not None:
        data = _credentials(request)
    if data is not None:
        form = isinstance(data, Mapping) and not _wants_json(request.get("headers"))
        given["form" if form else "body"] = data
    given = {key: value for key, value in given.items() if value is not None}
    return Task(run="", step=name, job="", attempt=1, key="", kind="http", inputs=given)


def _credentials(request: Mapping[str, Any]) -> dict[str, Any]:
    form = {"grant_type": "client_credentials", "client_id": request["client_id"]}
    return form | {
        name: request[name]
        for name in ("client_secret", "scope", "audience")
        if request.get(name) is not None
    }


def _wants_json(headers: Any) -> bool:
    if not isinstance(headers, Mapping):
        return False
    kinds = [value for name, value in headers.items() if str(name).lower() == "content-type"]
    return any("json" in str(kind) for kind in kinds)


def _body(answer: Answer, name: str) -> Mapping[str, Any]:
    if answer.fault is not None:
        raise _refused(answer.fault, name)
    body = answer.result["data"]
    if isinstance(body, str):  # some servers forget to say that it is JSON
        from anabranch.work.values.served_json import JsonRefused, build_json  # few come here

        try:
            body = build_json(body.encode())
        except JsonRefused:
            body = None
    if not isinstance(body, Mapping):
        raise KeychainError(f"keychain.{name}: the answer of the token endpoint is not JSON")
    return body


def _refused(fault: Fault, name: str) -> KeychainError:
    """Its own words only: the body of the answer may repeat what was sent."""
    message = f"keychain.{name}: no token: {fault.message}"
    return KeychainError(message, kind=fault.kind, retryable=fault.retryable)
