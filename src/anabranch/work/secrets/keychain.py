"""The keychain of a definition: named secrets, resolved on the worker and nowhere else.

    - {name: api,   kind: bearer,  token: "{{ env.API_TOKEN }}"}      keychain.api.token
    - {name: pw,    kind: env,     variable: DB_PASSWORD}             keychain.pw
    - {name: db,    kind: env,     map: {user: DB_USER, password: DB_PASSWORD}}
    - {name: fixed, kind: static,  map: {region: eu, key: abc}}
    - {name: cert,  kind: file,    path: /run/secrets/cert}           with `format: json`: its keys
    - {name: vault, kind: secret_manager, provider: env, map: {password: DB_PASSWORD}}
    - {name: idp,   kind: oauth2,  endpoint: …, data: {…}}            keychain.idp.token

An entry may use those before it (`{{ keychain.pw }}`). Texts are secrets, except under the names in
`PUBLIC`: an address or a user name under stars would only hide what a message is about.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from anabranch import files
from anabranch.clock import Clock, SystemClock
from anabranch.errors import ExpressionError, InputError
from anabranch.kernel.values import INTERNAL
from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kind_options import HttpOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.isolation import SETTINGS, KeptNames, ReadableVariables
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.port import Performer
from anabranch.work.secrets.credential_entries import COMMON, ELSEWHERE, credential_of, mapped
from anabranch.work.secrets.credential_fields import for_work, password_in
from anabranch.work.secrets.credential_sources import Credential, CredentialSource, find_in
from anabranch.work.secrets.keychain_kinds import KINDS, FileEntry, file_entry
from anabranch.work.secrets.oauth2 import KeychainError, TokenSource
from anabranch.work.secrets.redaction import (
    INSIDE,
    Absent,
    Keyring,
    Redactor,
    Secret,
    giving,
    revealed,
    with_credentials,
)
from anabranch.work.secrets.values import Unresolved
from anabranch.work.values.payloads import hash_of

__all__ = ["KINDS", "PUBLIC", "Keychain", "KeychainError", "Render"]

Render = Callable[[Any, Mapping[str, Any]], Any]

log = logging.getLogger("anabranch")

ENTRIES_KEPT = 256  # those whose tokens were asked for last
#: Fields that are no secrets, wherever they stand.
PUBLIC = frozenset(
    {"host", "hostname", "port", "user", "username", "database", "dbname", "db", "schema"}
    | {"type", "kind", "token_type", "region", "endpoint", "url", "driver", "sslmode", "path"}
    | {"db_host", "db_port", "db_user", "db_name", "account", "warehouse", "role", "header"}
    | {"provider", "scope", "expires_at", "name", "client_id", "grant_type", "audience"}
)
_WRITTEN = frozenset({"static", "bearer", "oauth2"})  # their values stand in the entry itself


def _client(options: HttpOptions | None) -> Performer:
    from anabranch.work.kinds.http.performer import Http  # only for entries that have tokens

    return Http(options)


class Keychain:
    """Resolves entries and remembers tokens. One per worker."""

    def __init__(
        self,
        redactor: Redactor,
        *,
        http: Performer | None = None,
        options: HttpOptions | None = None,  # for calls of its own
        clock: Clock | None = None,
        environment: Mapping[str, str] | None = None,
        sources: Sequence[CredentialSource] = (),  # of credentials by name
        allowed: FilePolicy = EVERYWHERE,  # which files entries may name
        own: KeptNames = SETTINGS,  # variables that they may not
    ) -> None:
        self.own = own
        self._allowed = allowed
        self._sources_by_name = sources
        self._redactor = redactor
        self._own_http = LazyPerformer(partial(_client, options))
        self._http: Performer = http or self._own_http
        self._clock = clock or SystemClock()
        self._environment = ReadableVariables(own, environment)
        self._sources: dict[str, TokenSource] = {}
        self._warned: set[str] = set()

    async def resolve(
        self, entries: Iterable[Mapping[str, Any]], render: Render, run: str = ""
    ) -> Keyring:
        """The secrets of these entries. `render(entry, keychain)` evaluates an entry's templates,
        which may look at the keychain so far. Every value is known to the redactor before it is
        handed out, for as long as the run lives. Cheap to call again: only tokens take time, and
        they are kept.

        What the entries are made of is not given to the job: what it looks up is. An entry that
        cannot be had is told to whoever looks it up; names of no entry are credentials.
        """
        scope = Redactor.of_job()
        with giving(scope):
            values = await self._values(entries, render, scope, run)
        find = partial(self._credential, run) if self._sources_by_name else None
        return Keyring(values, find=find)

    async def _credential(self, run: str, name: str) -> Any:
        """The credential of this name, for one job; in its place why there is none."""
        scope = Redactor.of_job()
        with giving(scope):
            return await self._known(name, f"credential {name!r}", self._by_name(name), scope, run)

    async def _by_name(self, name: str) -> Any:
        found = await find_in(self._sources_by_name, name)
        fields = for_work(found.type, found.data)
        if isinstance(fields, Mapping) and fields.get("type") == "oauth2":
            return await self._token(name, {**fields, "name": name, "version": _stamp(found)})
        return fields

    async def _values(
        self, entries: Iterable[Mapping[str, Any]], render: Render, scope: Redactor, run: str
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in entries:
            name = _name_of(entry)
            value = self._entry(entry, render, values, scope)
            values[name] = await self._known(name, f"keychain.{name}", value, scope, run)
        return values

    async def _entry(
        self,
        entry: Mapping[str, Any],
        render: Render,
        before: Mapping[str, Any],
        scope: Redactor,
    ) -> Any:
        ring = Keyring(
            before, find=partial(self._credential, "") if self._sources_by_name else None
        )
        name, rendered = await with_credentials(lambda: _rendered(entry, render, ring))
        if rendered.get("kind") in _WRITTEN:
            scope.learn(_wrapped({k: v for k, v in rendered.items() if k not in COMMON}))
        auth = rendered.get("auth")
        if rendered.get("kind") == "oauth2" and isinstance(auth, str) and _is_a_name(entry["auth"]):
            rendered = {**rendered, "auth": await self._by_name(auth)}
        return await self._resolved(name, rendered)

    async def _known(
        self, name: str, what: str, value: Coroutine[Any, Any, Any], scope: Redactor, run: str
    ) -> Any:
        """The value with its secrets known to the redactor, or why it cannot be had."""
        try:
            found = _wrapped(await value)
        except KeychainError as error:
            said = error.message if what in error.message else f"{what}: {error.message}"
            return _absent(scope, said, error.kind, error.retryable)
        except (InputError, ExpressionError) as error:
            may_heal = isinstance(error, files.FileTimeout)
            return _absent(scope, f"{what}: {error.message}", "config", may_heal)
        except Exception as error:  # its text may quote the value that was not learnt yet
            said = f"{what} cannot be resolved: {type(error).__name__}"
            return _absent(scope, said, INTERNAL, True)
        scope.learn(found)
        self._redactor.learn(found, run)
        self._warn_of_short_ones(name, found)
        return found

    def _warn_of_short_ones(self, name: str, value: Any) -> None:
        if name not in self._warned and any(len(text) < INSIDE for text in _secrets_in(value)):
            if len(self._warned) >= ENTRIES_KEPT:
                self._warned.clear()  # and warn once more
            self._warned.add(name)
            log.warning(
                "keychain.%s has a secret of fewer than %d characters: where an answer repeats it "
                "inside a text it is not found; use a longer one",
                name,
                INSIDE,
            )

    async def close(self) -> None:
        for source in self._sources.values():
            await source.close()
        await self._own_http.close()

    async def _resolved(self, name: str, entry: Mapping[str, Any]) -> Any:
        kind = entry.get("kind")
        if kind == "oauth2":
            return await self._token(name, entry)
        wanted = credential_of(entry)
        if wanted is not None:
            return mapped(await self._managed(wanted, entry), entry.get("map"), name)
        resolve = KINDS.get(str(kind))
        if resolve is None:
            raise InputError(f"kind '{kind}' is not known; there are {', '.join(KINDS)}, oauth2")
        file = file_entry(entry, self._environment)
        if file is None:
            return resolve(entry, self._environment, self._allowed)
        return await files.in_thread(partial(file.read, self._allowed), file.path)

    async def _managed(self, wanted: str, entry: Mapping[str, Any]) -> Any:
        try:
            return await self._by_name(wanted)
        except KeychainError as error:
            provider = entry.get("provider")
            if provider not in ELSEWHERE:
                raise
            said = f"the provider '{provider}' cannot be reached from here, and {error.message}"
            raise KeychainError(said, kind=error.kind, retryable=error.retryable) from None

    async def _token(self, name: str, entry: Mapping[str, Any]) -> Any:
        self._redactor.learn(_wrapped({k: v for k, v in entry.items() if k not in COMMON}))
        source = self._source(name, entry)
        token = await source.token()
        return {
            "token": token.value,
            "access_token": token.value,
            "token_type": token.type,
            "type": "bearer",  # so that the entry as a whole can be the `auth` of a call
            "expires_at": token.expires_at,
        }

    def _source(self, name: str, entry: Mapping[str, Any]) -> TokenSource:
        key = hash_of(msgspec.json.encode(entry))  # the same question, the same token
        source = self._sources.pop(key, None)
        if source is None:
            source = TokenSource(name, entry, self._http, self._clock)
        self._sources[key] = source  # the last one now
        if len(self._sources) > ENTRIES_KEPT:  # an entry that is rendered anew is another question
            unused = next((key for key, one in self._sources.items() if not one.busy), key)
            del self._sources[unused]
        return source


#: Why this entry cannot be had: "" where it can, None where that is not known.
FileLook = Callable[[FileEntry], str | None]
_NOT_FOR_TEMPLATE = "what its template refers to is not there"


def absent_entries(
    entries: Iterable[Mapping[str, Any]],
    render: Render,
    look: FileLook = lambda _file: None,
    *,
    own: KeptNames = SETTINGS,
    environment: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """(name, why) of the entries that cannot be had. Nobody else is asked: tokens and credentials
    by name are taken to be there, and of files counts what `look` says.

    The reasons are shown to whoever reads the run, so what was found on the way is starred in them,
    and it is given to no job that happens to ask."""
    known = ReadableVariables(own, environment)
    scope = Redactor.of_job()
    with giving(scope):
        found = list(_missing(entries, render, look, known))
    return [(name, scope.text(why)) for name, why in found]


def _missing(
    entries: Iterable[Mapping[str, Any]],
    render: Render,
    look: FileLook,
    known: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    values: dict[str, Any] = {}
    missing: set[str] = set()
    guessed = False  # an entry before this one is only taken to be there
    for entry in entries:
        resolve = KINDS.get(str(entry.get("kind")))
        if resolve is None:
            guessed = True
            continue
        why: str | None = None
        try:
            name, rendered = _rendered(entry, render, Keyring(values, find=_not_asked))
            if credential_of(rendered) is not None:
                guessed = True
            elif (file := file_entry(rendered, known)) is None:
                values[name] = _wrapped(resolve(rendered, known, EVERYWHERE))
            else:
                guessed, why = True, look(file)
        except Unresolved as asked:  # an entry before this one, or a credential
            guessed = guessed or asked.name not in missing
            why = None if guessed else _NOT_FOR_TEMPLATE
        except (InputError, KeychainError) as error:
            why = error.message
        except ExpressionError:
            why = None if guessed else _NOT_FOR_TEMPLATE
        if why:
            missing.add(str(entry.get("name")))
            yield str(entry.get("name")), why


async def _not_asked(_name: str) -> Any:
    raise AssertionError("names of credentials are only noted here")


def _name_of(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise KeychainError("an entry of the keychain has no name")
    return name


def _rendered(
    entry: Mapping[str, Any], render: Render, so_far: Keyring
) -> tuple[str, Mapping[str, Any]]:
    name = _name_of(entry)
    return name, inputs.mapping(render(entry, so_far), f"keychain.{name}")


def _absent(scope: Redactor, message: str, kind: str, retryable: bool) -> Absent:
    return Absent(KeychainError(scope.text(message), kind=kind, retryable=retryable))


def _is_a_name(given: Any) -> bool:
    """Whether `auth` of an entry names a credential: what comes from the keychain is a secret."""
    reads = getattr(given, "reads", ())
    return reads is not None and not any(path[0] == "keychain" for path in reads)


def _stamp(found: Credential) -> str:
    """A token that was fetched with other fields is another token."""
    return hash_of(msgspec.json.encode(found.data))


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _secrets_in(each)


def _wrapped(value: Any, field: str = "") -> Any:
    """Texts and numbers become secrets, unless their name says that they are none."""
    if isinstance(value, Mapping):
        return {key: _wrapped(revealed(item), str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_wrapped(item, field) for item in value]
    if value is None or isinstance(value, bool | Secret):
        return value
    if field.lower() in PUBLIC and not password_in(value):
        return value
    return Secret(value if isinstance(value, str) else str(value))
