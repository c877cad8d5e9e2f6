"""Reading the entries of a book: everything that is wrong is collected, each with its path."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import is_number
from anabranch.net.problems import Problem, did_you_mean
from anabranch.work.kinds.http.request import bare
from anabranch.work.network.addresses import read_policy
from anabranch.work.participants.signed import Signatures
from anabranch.work.secrets.redaction import Redactor

BOOK_KEYS = ("participants", "capabilities", "directory")
DIRECTORY_KEYS = (
    *("passports", "revocations", "issuers", "bindings", "sync_seconds", "addresses"),
)
ENTRY_KEYS = ("url", "function", "headers", "service_types", "price", "labels", "key", "health")

#: Which endpoints of a directory are asked, where the book says nothing else.
PUBLIC = "public"

#: These are ours to say.
_OUR_HEADERS = frozenset(
    {
        *("content-type", "content-length", "accept", "accept-encoding", "idempotency-key"),
        *("connection", "transfer-encoding", "te", "upgrade", "expect"),
    }
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"\$\{([^}]*+)(\}?)")  # one that nothing closes reaches to the end
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Keys = tuple[str, ...]


class BookError(InputError):
    """Everything that is wrong with a book: where, and what."""

    def __init__(self, wrong: Iterable[tuple[Keys, str]], problems: Iterable[Problem] = ()) -> None:
        self.wrong = tuple(wrong)
        self.problems = tuple(problems)  # of a book that is a file
        super().__init__("\n".join(message for _, message in self.wrong), code="bad_book")


class Listing(msgspec.Struct, frozen=True):
    """What the book says about one participant, besides how it is reached."""

    participant: str
    service_types: tuple[str, ...] = ()
    price: float | None = None
    labels: Mapping[str, Any] = {}
    health: str = ""  # a URL that answers with 2xx while it is well
    place: str = ""  # where it is asked: a URL without its secrets, or a function
    signed: bool = False  # its answers must be signed


class Address(msgspec.Struct, frozen=True):
    """Where a participant is reached, what is said to it besides, and what of that is secret."""

    url: str
    headers: Mapping[str, str]
    secrets: frozenset[str]


class EntryReader(msgspec.Struct):
    """Reads values and remembers what is wrong with them."""

    environment: Mapping[str, str]
    folder: Path | None = None  # of the book, where it is a file
    wrong: list[tuple[Keys, str]] = []

    def complain(self, keys: Keys, message: str) -> None:
        self.wrong.append((keys, message))

    def mapping(self, value: Any, keys: Keys, what: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.complain(keys, f"{what} must be a mapping, not {type(value).__name__}")
            return {}
        odd = [key for key in value if not isinstance(key, str)]
        for key in odd:
            self.complain(keys, f"{what} has the key {key!r:.80}, which is no text")
        return {key: value[key] for key in value if isinstance(key, str)}

    def fields(
        self, value: Any, keys: Keys, what: str, known: tuple[str, ...]
    ) -> Mapping[str, Any]:
        """A mapping with none but these keys."""
        found = self.mapping(value, keys, what)
        for key in found:
            if key not in known:
                hint = did_you_mean(key, known)
                self.complain((*keys, key), f"{what} has no key {key!r:.80}; {hint}")
        return found

    def listing(self, name: str, entry: Mapping[str, Any], keys: Keys) -> Listing:
        types = entry.get("service_types") or ()
        if not isinstance(types, list | tuple) or not all(isinstance(t, str) for t in types):
            message = f"participant {name!r}: `service_types` is a list of names"
            self.complain((*keys, "service_types"), message)
            types = ()
        price = entry.get("price")
        if price is not None and not is_number(price):
            self.complain((*keys, "price"), f"participant {name!r}: `price` is a number")
            price = None
        what = f"`labels` of participant {name!r}"
        labels = self.mapping(entry.get("labels"), (*keys, "labels"), what)
        health = self.health_url(name, entry, keys)
        signed = entry.get("key") is not None
        return Listing(name, tuple(types), price, labels, health, _place_of(entry), signed)

    def directory(self, value: Any) -> Mapping[str, Any]:
        keys, what = ("directory",), "`directory` of the book"
        found = self.fields(value, keys, what, DIRECTORY_KEYS)
        seconds = found.get("sync_seconds")
        if seconds is not None and not (is_number(seconds) and seconds > 0):
            message = f"{what}: `sync_seconds` is a number of seconds above 0"
            self.complain((*keys, "sync_seconds"), message)
        if found and found.get("passports") is None:
            message = f"{what} needs `passports`: a file, a URL or a list of them"
            self.complain(keys, message)
        self._check_addresses(found.get("addresses"), (*keys, "addresses"), what)
        issuers = found.get("issuers")
        if issuers is not None and not isinstance(issuers, list | tuple):
            self.complain((*keys, "issuers"), f"{what}: `issuers` is a list of participants")
        return found

    def _check_addresses(self, value: Any, keys: Keys, what: str) -> None:
        try:
            if value is not None and not isinstance(value, str):
                raise InputError("`addresses` is text, such as public or 10.0.0.0/8")
            read_policy(value or PUBLIC, "directory.addresses")
        except InputError as error:
            self.complain(keys, f"{what}: {error.message}")

    def key(self, name: str, value: Any, keys: Keys, signatures: Signatures | None) -> str:
        """The key that a participant signs its answers with, "" for none."""
        if value is None:
            return ""
        if not isinstance(value, str):
            self.complain(
                keys, f"participant {name!r}: `key` is text such as participant:did:key:…"
            )
            return ""
        if signatures is None:
            self.complain(keys, f"participant {name!r}: `key` cannot be checked here")
            return ""
        problem = signatures.problem_of(value)
        if problem:
            self.complain(keys, f"participant {name!r}: `key`: {problem}")
        return value

    def health_url(self, name: str, entry: Mapping[str, Any], keys: Keys) -> str:
        """Where one may look whether it is well, "" for nowhere."""
        if entry.get("health") is None:
            return ""
        at = (*keys, "health")
        url = self._filled(entry["health"], at, f"`health` of {name!r}", set())
        problem = _problem_of_url(url) if url else ""
        if problem:
            self.complain(at, f"participant {name!r}: `health` {problem}")
        return url

    # -- how somebody is reached -------------------------------------------------------------

    def function(self, name: str, written: Any, keys: Keys) -> Callable[..., Any] | None:
        if callable(written):
            return written  # type: ignore[no-any-return]
        module, _, attribute = str(written).partition(":")
        if not module or not attribute:
            self.complain(keys, f"participant {name!r}: write `function` as module:function")
            return None
        try:
            self._look_beside_the_book()
            found = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # whatever the module does when it is imported
            said = str(error) if isinstance(error, ImportError | AttributeError) else repr(error)
            self.complain(keys, f"participant {name!r}: {said}")
            return None
        if not callable(found):
            self.complain(keys, f"participant {name!r}: {written} cannot be called")
            return None
        return found  # type: ignore[no-any-return]

    def _look_beside_the_book(self) -> None:
        """Modules that lie there can be imported, behind all that are found without it."""
        beside = None if self.folder is None else str(self.folder.resolve())
        if beside is not None and beside not in sys.path:
            sys.path.append(beside)

    def address(self, name: str, entry: Mapping[str, Any], keys: Keys) -> Address:
        secrets: set[str] = set()
        url = self._filled(entry.get("url"), (*keys, "url"), f"`url` of {name!r}", secrets)
        problem = _problem_of_url(url)
        if problem:
            self.complain((*keys, "url"), f"participant {name!r}: `url` {problem}")
        else:
            secrets.update(filter(None, [urlsplit(url).password]))
        what = f"`headers` of participant {name!r}"
        given = self.mapping(entry.get("headers"), (*keys, "headers"), what)
        headers = {
            key: self._header(key, value, (*keys, "headers", key), what, secrets)
            for key, value in given.items()
        }
        if not problem and "@" in urlsplit(url).netloc and "authorization" in map(str.lower, given):
            message = f"{what}: Authorization is in the URL already; keep one of them"
            self.complain((*keys, "headers"), message)
        return Address(url, headers, frozenset(secrets))

    def _header(self, key: str, value: Any, keys: Keys, what: str, secrets: set[str]) -> str:
        if not _HEADER_NAME.fullmatch(key):
            self.complain(keys, f"{what}: {key!r:.80} is not the name of a header")
        elif key.lower() in _OUR_HEADERS:
            self.complain(keys, f"{what}: {key} is set by the engine; remove it")
        text = self._filled(value, keys, f"header {key} of {what}", secrets)
        if not text.isprintable():
            self.complain(keys, f"{what}: {key} has characters that a header cannot carry")
        return text

    def _filled(self, value: Any, keys: Keys, what: str, secrets: set[str]) -> str:
        """The text with `${NAME}` filled in; what comes from the environment is secret."""

        def look_up(match: re.Match[str]) -> str:
            if not match[2]:
                return match[0]
            name = match[1]
            if not _NAME.fullmatch(name):
                self.complain(keys, f"{what}: write a variable of the environment as ${{NAME}}")
                return ""
            found = self.environment.get(name, "")
            if not found:
                message = f"{what} needs the environment variable {name}, which is not set"
                self.complain(keys, message)
            secrets.add(found)
            return found

        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.complain(keys, f"{what} is text, not {type(value).__name__}")
            return ""
        return _VARIABLE.sub(look_up, str(value))


def _place_of(entry: Mapping[str, Any]) -> str:
    """For people: the address as the book has it, with its variables left alone."""
    if entry.get("url") is not None:
        url = str(entry["url"])
        return "" if _problem_of_url(url) else bare(url)
    written = entry.get("function")
    return written if isinstance(written, str) else getattr(written, "__qualname__", "a function")


def _problem_of_url(url: str) -> str:
    """Never with the URL itself: there may be a secret in it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a valid address"
    if parts.scheme not in ("http", "https"):
        return "must start with http:// or https://"
    if not host:
        return "names no host"
    return "" if url.isprintable() and " " not in url else "has blanks or control characters in it"


def redactor_of(secrets: Iterable[str]) -> Redactor:
    redactor = Redactor.of_job()
    for secret in secrets:
        redactor.learn(secret)
    return redactor
