"""The kind `nats`: values in a bucket, messages in a stream, messages to whoever listens.

    kv_get, kv_put, kv_delete, kv_purge, kv_keys     bucket, key, value, pattern
    publish                                          subject, data, headers
    js_publish, js_get_msg, js_stream_info           stream, subject, data, headers, seq, last

The server is `url` with `user` and `password`, or `token`, also from `auth`: one text there is the
address, or the token. What is stored or published in a stream carries the job's key as
`Nats-Msg-Id`: within the server's window a repeated attempt is known as one. What a task may reach
is the policy of `work/network/addresses.py`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault, misconfigured
from anabranch.work.kind_options import NatsOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.http.performer import connecting
from anabranch.work.kinds.nats.client import (
    NatsConnection,
    NatsError,
    NatsLogin,
    NoResponders,
    read_headers,
    read_place,
)
from anabranch.work.kinds.python.performer import as_builtin
from anabranch.work.network.addresses import AddressRefused
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import brief
from anabranch.work.time_limit import time_limit
from anabranch.work.values.served_json import JsonRefused, build_json, do_aside, read_json

KEYS_MAX = 100_000
PATTERN_MAX = 1_000  # characters: what is made of a longer one takes seconds to make
_API = "$JS.API"
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(r"[-/_=A-Za-z0-9]+(?:\.[-/_=A-Za-z0-9]+)*")
_SUBJECT = re.compile(r"[^\s.*>]+(?:\.[^\s.*>]+)*")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_OF_LOGIN = ("url", "user", "password", "token")
_LATER = ("jwt", "nkey", "nkey_seed", "creds", "credentials_file")
_NOT_FOUND = 10037  # no message of that number or subject


class _ApiError(Exception):
    """JetStream said no."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("description") or "it failed"))
        self.status = int(error.get("code") or 500)
        self.code = int(error.get("err_code") or 0)


class Nats:
    """Performs operations, each over a connection of its own."""

    def __init__(self, options: NatsOptions | None = None) -> None:
        self._options = options or NatsOptions()

    async def perform(self, task: Task) -> Answer:
        given = task.inputs
        limit = self._options.timeout_seconds
        where = "nats"
        try:
            operation = _operation(given)
            limit = inputs.timeout(given) or limit
            fields = _connection(given)
            place = read_place(inputs.text(fields.get("url"), "url"))
            where = str(place)
            login = _login(fields, place.login)
            async with time_limit(limit):
                opening = NatsConnection.connect(
                    place, login, self._options.addresses, self._options.bytes_max
                )
                async with await opening as nats:
                    return succeeded(await operation(nats, given, _CONTROLS.sub("?", task.key)))
        except InputError as error:
            return misconfigured(error)
        except TimeoutError:
            return fault("timeout", f"{where}: it took longer than {limit:g} s", code="TIMEOUT")
        except AddressRefused as error:
            return fault("config", f"{where}: {error.strerror}", code="ADDRESS_REFUSED")
        except NatsError as error:
            return fault(error.kind, f"{where}: {error}")
        except NoResponders as error:
            return _nobody(where, str(error))
        except _ApiError as error:
            return _refused(where, error)
        except (EOFError, ConnectionResetError):
            words = "the server closed the connection before its answer ended"
            return fault("connection", f"{where}: {words}", code="CONN_CLOSED")
        except OSError as error:
            code, words = connecting(error)
            return fault("connection", f"{where}: {words}", code=code)
        except JsonRefused as error:
            return fault("parse", f"{where}: its answer cannot be read: {error}")
        except (ValueError, KeyError, TypeError, AttributeError):
            return fault("parse", f"{where}: its answer cannot be read")


def _nobody(where: str, subject: str) -> Answer:
    if subject.startswith("$KV."):
        bucket = subject.split(".")[1]
        return fault("not_found", f"{where}: there is no bucket '{bucket}'", code="NO_BUCKET")
    if subject.startswith(_API):
        message = f"{where}: it has no JetStream, which buckets and streams need"
        return fault("config", message, code="NO_JETSTREAM")
    message = f"{where}: no stream takes what is published to '{subject}'"
    return fault("not_found", message, code="NO_STREAM")


def _refused(where: str, error: _ApiError) -> Answer:
    kind = "server_error" if error.status >= 500 else "client_error"
    kind = {404: "not_found", 401: "auth", 403: "auth"}.get(error.status, kind)
    return fault(kind, f"{where}: {error}", code=f"NATS_{error.code or error.status}")


# -- the task --------------------------------------------------------------------------------

Operation = Callable[[NatsConnection, Mapping[str, Any], str], Awaitable[dict[str, Any]]]


def _operation(given: Mapping[str, Any]) -> Operation:
    name = inputs.text(given.get("operation"), "operation")
    if name not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise InputError(f"operation must be one of {known}, not '{name:.40}'")
    return OPERATIONS[name]


def _connection(given: Mapping[str, Any]) -> dict[str, Any]:
    auth = given.get("auth", given.get("credential"))
    if isinstance(auth, str):  # a credential that is one text
        auth = {"url": auth} if "://" in auth else {"token": auth}
    found = dict(inputs.mapping(auth, "auth"))
    if later := [name for name in _LATER if found.get(name)]:
        raise InputError(f"auth.{later[0]} cannot be used yet; give user and password, or token")
    plain = {name.removeprefix("nats_"): value for name, value in found.items()}
    plain = {"user": plain.get("username"), **plain}
    plain |= {name: given[name] for name in _OF_LOGIN if given.get(name) is not None}
    return {name: plain[name] for name in _OF_LOGIN if plain.get(name) is not None}


def _login(fields: Mapping[str, Any], of_address: NatsLogin) -> NatsLogin:
    given = {name: inputs.scalar(fields[name], name) for name in _OF_LOGIN[1:] if name in fields}
    return NatsLogin(**given) if given else of_address


def _name(given: Mapping[str, Any], key: str, pattern: re.Pattern[str]) -> str:
    text = inputs.text(given.get(key), key)
    if not pattern.fullmatch(text):
        raise InputError(f"{key} cannot be {text[:60]!r}: NATS does not take such a name")
    return text


def _payload(value: Any) -> bytes:
    """Text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    try:
        return json.dumps(value, default=as_builtin).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the value is not JSON: {error}") from None


async def _value(payload: bytes) -> Any:
    """JSON where it is that and no more than is taken of JSON, else text, else base64."""
    return await do_aside(len(payload), _read, payload) if payload else None


def _read(payload: bytes) -> Any:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return {"data": base64.b64encode(payload).decode(), "encoding": "base64"}
    try:
        return build_json(payload)
    except JsonRefused:
        return text


def _sent_headers(given: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in inputs.mapping(given.get("headers"), "headers").items():
        text = inputs.scalar(value, f"headers.{name}")
        if not re.fullmatch(r"[!-9;-~]+", name) or "\r" in text or "\n" in text:
            raise InputError(f"headers: {name[:60]!r} is no header")
        found[name] = text
    return found


# -- JetStream -------------------------------------------------------------------------------


async def _api(nats: NatsConnection, subject: str, **request: Any) -> dict[str, Any]:
    payload = json.dumps(request).encode() if request else b""
    answer = await read_json((await nats.request(f"{_API}.{subject}", payload)).payload)
    if not isinstance(answer, dict) or answer.get("error"):
        raise _ApiError(answer["error"] if isinstance(answer, dict) else {})
    return answer


async def _stored(
    nats: NatsConnection, subject: str, payload: bytes, headers: Mapping[str, str]
) -> dict[str, Any]:
    answer = await read_json((await nats.request(subject, payload, headers)).payload)
    if answer.get("error"):
        raise _ApiError(answer["error"])
    return dict(answer)


async def _message(nats: NatsConnection, stream: str, **which: Any) -> dict[str, Any] | None:
    """One message as it is stored; None where there is none."""
    try:
        found = (await _api(nats, f"STREAM.MSG.GET.{stream}", **which))["message"]
    except _ApiError as error:
        if error.code == _NOT_FOUND:
            return None
        raise
    headers, _ = read_headers(_decoded(found.get("hdrs")))
    return {**found, "headers": headers, "payload": _decoded(found.get("data"))}


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "")
    except (binascii.Error, TypeError):
        return b""


# -- operations ------------------------------------------------------------------------------


def _place_of(given: Mapping[str, Any]) -> tuple[str, str]:
    return _name(given, "bucket", _BUCKET), _name(given, "key", _KEY)


async def _kv_get(nats: NatsConnection, given: Mapping[str, Any], _key: str) -> dict[str, Any]:
    bucket, key = _place_of(given)
    found = await _message(nats, f"KV_{bucket}", last_by_subj=f"$KV.{bucket}.{key}")
    shown = {"bucket": bucket, "key": key}
    if found is None or found["headers"].get("KV-Operation") in ("DEL", "PURGE"):
        return {"status": "not_found", **shown, "value": None}
    told = {"revision": found["seq"], "created": found.get("time")}
    return {"status": "success", **shown, "value": await _value(found["payload"]), **told}


async def _kv_put(nats: NatsConnection, given: Mapping[str, Any], once: str) -> dict[str, Any]:
    bucket, key = _place_of(given)
    payload = _payload(given.get("value"))
    answer = await _stored(nats, f"$KV.{bucket}.{key}", payload, {"Nats-Msg-Id": once})
    return {"status": "success", "bucket": bucket, "key": key, "revision": answer["seq"]}


def _kv_marked(headers: Mapping[str, str]) -> Operation:
    """Says of a key that it has no value any more."""

    async def mark(nats: NatsConnection, given: Mapping[str, Any], _key: str) -> dict[str, Any]:
        bucket, key = _place_of(given)
        await _stored(nats, f"$KV.{bucket}.{key}", b"", headers)
        return {"status": "success", "bucket": bucket, "key": key}

    return mark


async def _kv_keys(nats: NatsConnection, given: Mapping[str, Any], _key: str) -> dict[str, Any]:
    """The last message of each key is looked at: one that marks its end is no key."""
    bucket = _name(given, "bucket", _BUCKET)
    pattern = inputs.text(given.get("pattern") or "*", "pattern")
    if len(pattern) > PATTERN_MAX:
        raise InputError(f"pattern has {len(pattern):,} characters, and {PATTERN_MAX:,} may be")
    stream, inbox = f"KV_{bucket}", nats.listen()
    config = {
        "deliver_subject": inbox,
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "headers_only": True,
        "filter_subject": f"$KV.{bucket}.>",
        "mem_storage": True,
    }
    made = await _api(nats, f"CONSUMER.CREATE.{stream}", stream_name=stream, config=config)
    left = made["num_pending"] + made["delivered"]["consumer_seq"]
    if left > KEYS_MAX:
        raise InputError(f"bucket '{bucket}' has {left:,} keys, and {KEYS_MAX:,} are the limit")
    keys = []
    while left:
        message = await nats.received()
        left = int(message.reply.rpartition(".")[2])  # each says how many are still to come
        if message.headers.get("KV-Operation") not in ("DEL", "PURGE"):
            keys.append(message.subject.removeprefix(f"$KV.{bucket}."))
    await _api(nats, f"CONSUMER.DELETE.{stream}.{made['name']}")
    found = await do_aside(len(keys) * len(pattern), _matching, keys, pattern)
    return {"status": "success", "bucket": bucket, "keys": found, "count": len(found)}


def _matching(keys: list[str], pattern: str) -> list[str]:
    return sorted(key for key in keys if fnmatchcase(key, pattern))


async def _publish(nats: NatsConnection, given: Mapping[str, Any], _key: str) -> dict[str, Any]:
    subject = _name(given, "subject", _SUBJECT)
    await nats.publish(subject, _payload(given.get("data")), _sent_headers(given))
    return {"status": "success", "subject": subject}


async def _js_publish(nats: NatsConnection, given: Mapping[str, Any], once: str) -> dict[str, Any]:
    subject = _name(given, "subject", _SUBJECT)
    headers = {"Nats-Msg-Id": once, **_sent_headers(given)}
    if given.get("stream") is not None:
        headers["Nats-Expected-Stream"] = _name(given, "stream", _BUCKET)
    answer = await _stored(nats, subject, _payload(given.get("data")), headers)
    told = {"stream": answer["stream"], "seq": answer["seq"]}
    return {"status": "success", **told, "duplicate": bool(answer.get("duplicate"))}


async def _js_get_msg(nats: NatsConnection, given: Mapping[str, Any], _key: str) -> dict[str, Any]:
    stream = _name(given, "stream", _BUCKET)
    which: dict[str, Any]
    if given.get("seq") is not None:
        which = {"seq": _sequence(given["seq"])}
    elif given.get("subject") is not None:
        which = {"last_by_subj": _name(given, "subject", _SUBJECT)}
    elif inputs.flag(given.get("last", False), "last"):
        which = {"seq": (await _api(nats, f"STREAM.INFO.{stream}"))["state"]["last_seq"]}
    else:
        raise InputError("js_get_msg takes seq, subject, or last: true")
    found = await _message(nats, stream, **which)
    if found is None:
        return {"status": "not_found", "stream": stream, "data": None}
    told = {"subject": found["subject"], "seq": found["seq"], "time": found.get("time")}
    value = {"data": await _value(found["payload"]), "headers": found["headers"]}
    return {"status": "success", "stream": stream, **told, **value}


def _sequence(value: Any) -> int:
    text = inputs.scalar(value, "seq")
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InputError(f"seq must be the number of a message, not {brief(value)}")
    return int(text)


async def _js_stream_info(
    nats: NatsConnection, given: Mapping[str, Any], _key: str
) -> dict[str, Any]:
    stream = _name(given, "stream", _BUCKET)
    info = await _api(nats, f"STREAM.INFO.{stream}")
    config = ("name", "subjects", "retention", "max_msgs", "max_bytes", "max_age")
    state = ("messages", "bytes", "first_seq", "last_seq", "consumer_count")
    return {
        "status": "success",
        "stream": stream,
        "config": {name: info["config"].get(name) for name in config},
        "state": {name: info["state"].get(name) for name in state},
    }


OPERATIONS: Mapping[str, Operation] = {
    "kv_get": _kv_get,
    "kv_put": _kv_put,
    "kv_delete": _kv_marked({"KV-Operation": "DEL"}),
    "kv_purge": _kv_marked({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}),
    "kv_keys": _kv_keys,
    "publish": _publish,
    "js_publish": _js_publish,
    "js_get_msg": _js_get_msg,
    "js_stream_info": _js_stream_info,
}
