"""Objects in buckets: `s3://bucket/key` and `gs://bucket/key`, read and written through fsspec.

One file system, `s3fs`, speaks to both: Google Cloud Storage understands the requests of S3, signed
with HMAC keys or with a token in their header. So every connection is made by a connector of ours,
under the policy of `work/network/addresses.py`, also to an endpoint that a credential names.

Credentials come from the task alone. The session that makes clients has no providers: nothing is
looked for in the environment, in files of the home folder or at a metadata service, and proxies and
endpoints of the environment are not used. A client lives for one object.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from anabranch.errors import InputError
from anabranch.work.faults import Unavailable, fault
from anabranch.work.kind_options import BucketOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.buckets.login import GOOGLE, BucketLogin, read_login, with_token
from anabranch.work.kinds.buckets.places import SCHEMES, ObjectAddress, installed
from anabranch.work.kinds.buckets.session import (
    calls_of_ours,
    carry_token,
    loaded,
    session_of_nobody,
)
from anabranch.work.kinds.http.performer import connecting
from anabranch.work.kinds.http.response import kind_of
from anabranch.work.kinds.switched_off import why_off
from anabranch.work.network.addresses import AddressRefused, connector_options
from anabranch.work.port import Performer, Task
from anabranch.work.time_limit import time_limit

MISSING = "objects in buckets need the packages fsspec and s3fs: pip install 'anabranch[buckets]'"
_REGION = re.compile(r"[a-z0-9-]{1,40}")
_CHUNK = 256 * 1024
_CONNECT_SECONDS = 30.0
_CAUSES_MAX = 10


class ObjectTooLarge(InputError):
    """The object has more bytes than the limit."""


class Buckets:
    """Reads and writes objects, each over a client of its own."""

    def __init__(
        self,
        options: BucketOptions | None = None,
        http: Performer | None = None,
        off: frozenset[str] = frozenset(),
    ) -> None:
        self._options = options or BucketOptions()
        self._http = http
        self._off = off

    async def read(
        self,
        place: ObjectAddress,
        given: Mapping[str, Any],
        task: Task,
        limit: int,
        setting: str = "",
    ) -> bytes:
        """The content, or an `InputError`; one that is `Unavailable` may be there another time."""
        async with self._opened(place, given, task) as system:
            file = await system.open_async(_path(place), "rb")
            parts, left = [], limit + 1
            try:
                while left > 0 and (part := await file.read(min(left, _CHUNK))):
                    parts.append(part)
                    left -= len(part)
            finally:
                if file.r is not None:  # one that is not at its end keeps its connection
                    file.r.close()
        if left <= 0:
            changed = f" (setting {setting})" if setting else ""
            raise ObjectTooLarge(f"{place} is larger than {limit:,} bytes{changed}")
        return b"".join(parts)

    async def write(
        self,
        place: ObjectAddress,
        content: bytes,
        given: Mapping[str, Any],
        task: Task,
        **about: Any,
    ) -> None:
        """The object as a whole, in one request; `about` are `ContentType` and `Metadata`."""
        async with self._opened(place, given, task) as system:
            whole = {"chunksize": len(content) + 1}  # smaller parts would be several requests
            await system._pipe_file(_path(place), content, **whole, **about)

    @asynccontextmanager
    async def _opened(
        self, place: ObjectAddress, given: Mapping[str, Any], task: Task
    ) -> AsyncIterator[Any]:
        for kind in ("http", SCHEMES[place.scheme]):  # they are calls, whoever makes them
            if kind in self._off:
                raise Unavailable(why_off(kind), fault("config", why_off(kind), code="KIND_OFF"))
        limit = inputs.timeout(given) or self._options.timeout_seconds
        login = read_login(place.scheme, given)
        make = await self._file_system()
        try:
            async with time_limit(limit):
                login = await with_token(login, self._http, task)
                system = make(**self._arguments(place, login))
                system.retries = 1  # trying again is the matter of the task
                client = await system.set_session()
                try:
                    if login.bearer:
                        carry_token(client, login.bearer)
                    yield system
                finally:
                    await client.close()
        except InputError:
            raise
        except TimeoutError:
            message = f"{place}: no complete answer within {limit:g} s"
            raise Unavailable(message, fault("timeout", message, code="TIMEOUT")) from None
        except Exception as error:  # of several libraries, which promise no common kind
            raise _unavailable(place, error) from None

    async def _file_system(self) -> Any:
        if not installed():
            raise Unavailable(MISSING, fault("config", MISSING, code="MISSING_EXTRA"))
        return await asyncio.to_thread(loaded)

    def _arguments(self, place: ObjectAddress, login: BucketLogin) -> dict[str, Any]:
        """Everything that could come from somewhere else is said here: fsspec fills in from its
        own files and variables what is not."""
        google = place.scheme == "gs"
        endpoint = login.endpoint or (GOOGLE if google else None)
        region = login.region or ("auto" if google else "us-east-1")
        if not _REGION.fullmatch(region):
            raise InputError("region must have small letters, digits and `-`, as eu-west-1")
        signs = bool(login.key)
        return {
            "anon": not signs,
            "key": login.key if signs else None,
            "secret": login.secret if signs else None,
            "token": login.session or None,
            "username": None,
            "password": None,
            "endpoint_url": endpoint,
            "use_ssl": True,
            "client_kwargs": {"region_name": region},
            "config_kwargs": self._config(path_style=bool(endpoint)),
            "s3_additional_kwargs": {},
            "requester_pays": False,
            "version_aware": False,
            "cache_regions": False,
            "session": session_of_nobody(),
            "asynchronous": True,
            "skip_instance_cache": True,
            "use_listings_cache": False,
        }

    def _config(self, *, path_style: bool) -> dict[str, Any]:
        return {
            "connector_args": connector_options(self._options.addresses),
            "http_session_cls": calls_of_ours(),
            "connect_timeout": _CONNECT_SECONDS,
            "read_timeout": self._options.timeout_seconds,
            "retries": {"total_max_attempts": 1},
            "proxies": {},
            "s3": {"addressing_style": "path" if path_style else "auto"},
            "defaults_mode": "legacy",  # `auto` of the environment would ask the metadata service
            "ignore_configured_endpoint_urls": True,
            "request_checksum_calculation": "when_required",  # Google does not know the others
            "response_checksum_validation": "when_required",
            "warm_up_loader_caches": True,
        }


def _path(place: ObjectAddress) -> str:
    return f"{place.bucket}/{place.key}"


# -- what went wrong -------------------------------------------------------------------------


def _unavailable(place: ObjectAddress, error: Exception) -> Unavailable:
    kind, code, words = _told(error)
    message = f"{place}: {words}"
    return Unavailable(message, fault(kind, message, code=code))


def _told(error: Exception) -> tuple[str, str, str]:
    causes = list(_causes(error))
    for one in causes:
        if isinstance(one, AddressRefused):
            return "config", "ADDRESS_REFUSED", str(one.strerror)
    for one in causes:
        response = getattr(one, "response", None)
        if isinstance(response, Mapping):
            return _answered(response)
    names = {type(one).__name__ for one in causes}
    if names & {"ConnectTimeoutError", "ReadTimeoutError", "FSTimeoutError"}:
        return "timeout", "TIMEOUT", "no answer in time"
    if "SSLError" in names:
        return "connection", "TLS", "the server could not be trusted"
    for one in causes:
        cause = getattr(one, "os_error", None)
        if isinstance(cause, OSError):
            return ("connection", *connecting(cause))
    if names & {"EndpointConnectionError", "ConnectionClosedError", "HTTPClientError"}:
        return "connection", "CONN_FAILED", "the connection failed"
    if isinstance(error, ValueError | KeyError | TypeError) or names & {"ParamValidationError"}:
        return "parse", "BAD_ANSWER", f"it cannot be done so ({type(error).__name__})"
    return "connection", "CONN_FAILED", f"it failed ({type(error).__name__})"


def _answered(response: Mapping[str, Any]) -> tuple[str, str, str]:
    """An error that the service told; its texts may repeat who asked, its codes do not."""
    told = response.get("Error") or {}
    status = int((response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0)
    code = re.sub(r"[^A-Za-z0-9_.-]", "", str(told.get("Code") or ""))[:60]
    words = {401: "access denied", 403: "access denied", 404: "there is no such object"}
    said = words.get(status, "the service refused")
    kind = kind_of(status) if status >= 400 else "client_error"
    shown = f"{status} {code}" if code not in ("", str(status)) else str(status)
    return kind, f"HTTP_{status}", f"{said} ({shown})"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and len(found) < _CAUSES_MAX:
        found.append(error)
        inner = getattr(error, "os_error", None)
        if isinstance(inner, BaseException) and inner not in found:
            found.append(inner)
        error = error.__cause__ or error.__context__
    return found
