"""Who somebody is to a bucket: the fields of a credential, and tokens of Google service accounts.

    s3   access_key_id, secret_access_key, session_token; region, endpoint_url
    gcs  access_key_id and secret_access_key (HMAC keys); or token (OAuth); or service_account_json,
         or the fields of such a file; endpoint_url

Other spellings of these names are understood. A credential goes to the endpoint that it names
itself, or to the one of its cloud; no other place is asked for one. Without a credential nothing is
sent that says who asks; `auth: {endpoint_url: …}` is an endpoint without one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.faults import Unavailable, fault
from anabranch.work.kinds import inputs
from anabranch.work.libraries import load
from anabranch.work.port import Performer, Task
from anabranch.work.secrets.redaction import given_to_work

GOOGLE = "https://storage.googleapis.com"
TOKENS = "https://oauth2.googleapis.com/token"
SIGNING = "service accounts need the package cryptography: pip install 'anabranch[buckets]'"
_PRIMITIVES = "cryptography.hazmat.primitives"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFE_SECONDS = 3600
_KEY = ("access_key_id", "aws_access_key_id", "key_id", "access_key", "access_id", "key")
_SECRET = ("secret_access_key", "aws_secret_access_key", "secret_key", "secret")
_SESSION = ("session_token", "aws_session_token")
_BEARER = ("token", "access_token", "value")
_ENDPOINT = ("endpoint_url", "endpoint", "url")
_REGION = ("region", "region_name", "aws_region")
_ACCOUNT = ("service_account_json", "service_account", "service_account_info")


class BucketLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Either keys to sign with, or a token, or an account that gets one, or nothing."""

    key: str = ""
    secret: str = ""
    session: str = ""
    bearer: str = ""
    account: Mapping[str, Any] | None = None
    endpoint: str = ""  # empty: that of the cloud
    region: str = ""


def read_login(scheme: str, given: Mapping[str, Any], what: str = "") -> BucketLogin:
    """What `auth` of a task or of the source of a script comes to."""
    auth = given.get("auth", given.get("credential"))
    region = _first(given, _REGION, f"{what}region")
    if _first(given, _ENDPOINT[:2], f"{what}endpoint_url"):
        raise InputError(
            f"{what}endpoint_url stands beside auth, and a credential goes only where it says "
            "itself: put endpoint_url into the credential, or into auth"
        )
    if auth is None:
        return BucketLogin(region=region)
    fields = _fields(auth, f"{what}auth")
    endpoint = _address(_first(fields, _ENDPOINT, f"{what}auth.endpoint_url"))
    region = _first(fields, _REGION, f"{what}auth.region") or region
    if not fields.keys() - {*_ENDPOINT, *_REGION, "type"}:
        return BucketLogin(endpoint=endpoint, region=region)
    key, secret = _first(fields, _KEY, f"{what}auth"), _first(fields, _SECRET, f"{what}auth")
    if key and secret:
        session = _first(fields, _SESSION, f"{what}auth.session_token")
        return BucketLogin(
            key=key, secret=secret, session=session, endpoint=endpoint, region=region
        )
    if scheme == "s3":
        raise InputError(f"{what}auth needs access_key_id and secret_access_key")
    account = _account(fields, f"{what}auth")
    if account is not None:
        return BucketLogin(account=account, endpoint=endpoint, region=region)
    bearer = _first(fields, _BEARER, f"{what}auth.token")
    if not bearer or not bearer.isprintable():
        raise InputError(
            f"{what}auth needs service_account_json, token, or access_key_id and secret_access_key"
        )
    return BucketLogin(bearer=bearer, endpoint=endpoint, region=region)


def _fields(auth: Any, what: str) -> Mapping[str, Any]:
    """A credential that is one text: the file of a service account, or a token."""
    if not isinstance(auth, str):
        fields = inputs.mapping(auth, what)
        whole = fields.get("value")
        return _parsed(whole) or fields if isinstance(whole, str) else fields
    scope = given_to_work()
    if scope is None or not scope.holds_secret(auth):
        raise InputError(
            f"{what} is a text that was not looked up: write `auth: NAME` in the playbook itself"
        )
    return _parsed(auth) or {"token": auth}


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, Mapping) else None


def _account(fields: Mapping[str, Any], what: str) -> Mapping[str, Any] | None:
    for name in _ACCOUNT:
        found = fields.get(name)
        if found is not None:
            fields = _parsed(found) or {} if isinstance(found, str) else inputs.mapping(found, what)
            break
    else:
        if "private_key" not in fields:
            return None
    for name in ("private_key", "client_email"):
        if not isinstance(fields.get(name), str):
            raise InputError(f"{what}: the service account has no {name}")
    return fields


def _first(fields: Mapping[str, Any], names: tuple[str, ...], what: str) -> str:
    for name in names:
        if fields.get(name) not in (None, ""):
            return inputs.text(fields[name], what)
    return ""


def _address(text: str) -> str:
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError("endpoint_url must look like https://host:port")
    return text.rstrip("/")


async def with_token(login: BucketLogin, http: Performer | None, task: Task) -> BucketLogin:
    """A service account as the token it is given for now; any other login as it is.

    The call is one of the kind `http`: what it may reach is said by `http_addresses`."""
    account = login.account
    if account is None:
        return login
    if http is None:
        raise InputError("service accounts cannot be used here: nothing asks for their tokens")
    place = inputs.text(account.get("token_uri") or TOKENS, "auth.token_uri")
    signed = await asyncio.to_thread(_assertion, account, place, int(time.time()))
    form = {"grant_type": _GRANT, "assertion": signed}
    call = {"url": place, "method": "POST", "form": form}
    asked = msgspec.structs.replace(task, kind="http", inputs=call, key="")
    answer = await http.perform(asked)
    assert isinstance(answer, Answer)
    if answer.status != "ok":
        said = answer.fault.message if answer.fault is not None else "it failed"
        kind = answer.fault.kind if answer.fault is not None else "auth"
        message = f"the service account got no token: {said}"
        raise Unavailable(message, fault("auth" if kind == "client_error" else kind, message))
    data = answer.result["data"]
    token = data.get("access_token") if isinstance(data, Mapping) else None
    if not isinstance(token, str) or not token or not token.isprintable():
        message = "the service account got no token: the answer has none"
        raise Unavailable(message, fault("auth", message))
    scope = given_to_work()
    if scope is not None:
        scope.learn(token)
    return msgspec.structs.replace(login, bearer=token, account=None)


def _assertion(account: Mapping[str, Any], audience: str, now: int) -> str:
    """A JSON Web Token that only the holder of the key can write (RFC 7523)."""
    try:
        hashes, serialization = load(f"{_PRIMITIVES}.hashes"), load(f"{_PRIMITIVES}.serialization")
        padding, rsa = (load(f"{_PRIMITIVES}.asymmetric.{name}") for name in ("padding", "rsa"))
    except ImportError:
        raise InputError(SIGNING) from None
    claims = {
        "iss": account["client_email"],
        "scope": _SCOPE,
        "aud": audience,
        "iat": now,
        "exp": now + _LIFE_SECONDS,
    }
    header: dict[str, Any] = {"alg": "RS256", "typ": "JWT"}
    if isinstance(account.get("private_key_id"), str):
        header["kid"] = account["private_key_id"]
    text = f"{_part(header)}.{_part(claims)}"
    try:
        key = serialization.load_pem_private_key(account["private_key"].encode(), None)
    except (ValueError, TypeError):
        raise InputError("auth: private_key of the service account cannot be read") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InputError("auth: private_key of the service account is no RSA key")
    signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{_encoded(signature)}"


def _part(value: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
