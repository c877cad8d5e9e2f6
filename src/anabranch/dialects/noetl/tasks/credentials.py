"""The keychain: named secrets, and the tasks that ask for one by its name.

Entries are checked here and carried on the net as they are, their templates compiled; the worker
resolves them (see `work.secrets.keychain`) and lays them out as `keychain`. A task that says
`auth: name` reads `keychain.name` when it starts. A name of no entry is that of a credential which
is kept where the work is done: nobody knows here whether there is one. No value passes through the
kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.tasks.credential_lookup import (
    BESIDE,
    KEYCHAIN,
    CredentialLookup,
    KeychainAtHand,
)
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import ValueTemplate, has_template
from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.net.net import CredentialName
from anabranch.net.problems import closest

#: For each kind of entry the keys of which one must be there.
ENTRIES: Mapping[str, tuple[str, ...]] = {
    "env": ("variable", "env", "var", "key", "secret_name", "map"),
    "static": ("map", "value"),
    "bearer": ("token",),
    "file": ("path", "file"),
    "secret_manager": (),
    "credential": (),
    "postgres_credential": (),
    "oauth2": ("endpoint", "url", "token_url"),
}
MANAGED = ("secret_manager", "credential", "postgres_credential")
#: Providers a worker can reach; the others are services of their own.
PROVIDERS = ("env", "file", "static", "store")
ELSEWHERE = ("gcp", "aws", "azure", "vault", "k8s", "google")
SCOPES = ("local", "global", "shared")
SECRET_MIN = 8  # characters; as in `work.secrets.forms`
_SECRET_FIELDS = ("password", "passwd", "secret", "client_secret", "token", "api_key")
ENTRY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
#: Names of credentials, as in `work.secrets.credential_sources`.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def read_keychain(
    root: Section, templates: TemplateCompiler, findings: Findings
) -> tuple[Mapping[str, Any], ...]:
    node = root.ask("keychain")
    if node is None or (isinstance(node, Fields) and not node.fields):
        return ()
    if not isinstance(node, Items):
        findings.wrong_type(node, "`keychain`", "a list")
        return ()
    found: dict[str, Mapping[str, Any]] = {}
    for number, each in enumerate(node, 1):
        entry = findings.section(each, f"keychain entry {number}")
        name = None if entry is None else entry.text("name")
        if entry is None:
            continue
        if name is None:
            entry.require("name", "give the entry a name")
            continue
        text = str(name.value)
        if not ENTRY_NAME.fullmatch(text):
            hint = "use letters, digits, `_` and `-`"
            findings.add(name.position, "bad-name", f"{text!r} is not a name for a secret", hint)
        elif text in found:
            message, hint = f"the keychain has {text!r} twice", "give one another name"
            findings.add(name.position, "duplicate-label", message, hint)
        else:
            _check(entry)
            _warn_of_short_secrets(entry)
            found[text] = templates.structure(entry.node)
    return tuple(found.values())


def _check(entry: Section) -> None:
    """The kind, and what it cannot do without; other keys are the entry's own."""
    if "kind" not in entry:
        entry.require("kind", "choose one of " + ", ".join(ENTRIES))
        return
    kind = entry.choice("kind", tuple(ENTRIES), "static")
    entry.choice("scope", SCOPES, "local")
    needed = ENTRIES[kind]
    if needed and not any(key in entry for key in needed):
        words = " or ".join(f"`{key}`" for key in needed[:2])
        entry.require(needed[0], f"entries of kind {kind} need {words}")
    provider = entry.text("provider") if kind in MANAGED else None
    if provider is not None and str(provider.value) in ELSEWHERE:
        name = entry.text("credential") or entry.text("name")
        wanted = "" if name is None else str(name.value)
        message = (
            f"the provider {provider.value!r} of {entry.what} cannot be reached from here; the "
            f"credential {wanted!r} stands for what is stored there"
        )
        hint = f"add it with `anabranch credential add {wanted}`, or use `env` or `file`"
        entry.findings.warn(provider.position, "credential-instead", message, hint)
    elif provider is not None and not has_template(str(provider.value)):
        entry.choice("provider", PROVIDERS, "env")


def _warn_of_short_secrets(entry: Section) -> None:
    """What is written here and is sure to be secret; the rest is looked at when it is resolved."""
    inner = entry.ask("map")
    places = [entry.node, *([inner] if isinstance(inner, Fields) else [])]
    for place in places:
        for key in _SECRET_FIELDS:
            node = place.get(key)
            if not isinstance(node, Scalar):
                continue
            text = node.value
            if isinstance(text, str) and 0 < len(text) < SECRET_MIN and not has_template(text):
                entry.findings.warn(
                    node.position,
                    "short-secret",
                    f"`{key}` of {entry.what} has fewer than {SECRET_MIN} characters: where an "
                    "answer repeats it inside a text it is not found",
                    "use a longer one, and let it come from a variable or a file",
                )


#: In a mapping under `auth`: what names a credential.
_NAMES_ONE = ("credential", "key", "name")


class AuthReader(msgspec.Struct, frozen=True):
    """What `auth` of a task comes to."""

    names: frozenset[str]
    templates: TemplateCompiler
    findings: Findings

    def value(self, node: Node, what: str) -> Any:
        """A mapping as it is; a name read from the keychain; a template: `credential_lookup`."""
        if isinstance(node, Fields):
            return self._mapping(node, what)
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self.findings.wrong_type(node, what, "the name of a credential, or a mapping")
            return None
        if has_template(node.value):
            return self._worked_out(node)
        if not NAME.fullmatch(node.value):
            message = f"{what} names the credential {node.value!r:.60}, which cannot be a name"
            hint = "use letters, digits, `_`, `-` and `.`, at most 100"
            self.findings.add(node.position, "bad-name", message, hint)
            return None
        if node.value not in self.names:
            self._by_name(node.value, node, what)
        lookup = f"{{{{ keychain['{node.value}'] }}}}"
        return self.templates.structure(Scalar(lookup, node.position))

    def _worked_out(self, node: Scalar) -> Any:
        """A template: the work finds out whether a name comes of it, or a secret."""
        given = self.templates.structure(node)
        if not isinstance(given, ValueTemplate):
            return given  # a mistake that was reported, or no template after all
        found = CredentialLookup(given)
        if found.may_be_name:
            self.templates.readings.append(
                (TemplateLookup((KEYCHAIN,), 1, open=True), node.position)
            )
        return found

    def at_hand(self, name: Node | None, provider: Node | None, what: str) -> Any:
        """For a task that gets a secret by name: the keychain, where that is among the places it
        looks in; else None."""
        word = provider.value if isinstance(provider, Scalar) else None
        text = name.value if isinstance(name, Scalar) else None
        if word not in (None, "store", *ELSEWHERE) or not isinstance(text, str) or name is None:
            return None
        if has_template(text):
            self.templates.readings.append(
                (TemplateLookup((KEYCHAIN,), 1, open=True), name.position)
            )
            given = self.templates.structure(name)
            return KeychainAtHand(given) if isinstance(given, ValueTemplate) else None
        if not NAME.fullmatch(text):
            return None  # a variable may be called as it likes
        if word in ELSEWHERE and provider is not None:
            message = (
                f"the provider {word!r} of {what} cannot be reached from here; the credential "
                f"{text!r} stands for what is stored there"
            )
            hint = f"add it with `anabranch credential add {text}`, or use `env` or `file`"
            self.findings.warn(provider.position, "credential-instead", message, hint)
        elif word == "store" and text not in self.names:
            self._by_name(text, name, what)
        lookup = self.templates.structure(Scalar(f"{{{{ keychain['{text}'] }}}}", name.position))
        return KeychainAtHand(lookup)

    def _mapping(self, node: Fields, what: str) -> Any:
        """Fields of a connection; or `{type: postgres, credential: NAME}`, also under an alias of
        its own: `{main: {type: postgres, credential: NAME}}`."""
        named = _named_in(node)
        if named is not None:
            return self.value(named, what)
        inner = {
            alias: one
            for alias, each in node.fields.items()
            if isinstance(each, Fields) and (one := _named_in(each)) is not None
        }
        if len(inner) == len(node.fields) == 1:
            return self.value(next(iter(inner.values())), what)
        if inner:
            return {
                alias: (
                    self.value(inner[alias], what)
                    if alias in inner
                    else self.templates.structure(each)
                )
                for alias, each in node.fields.items()
            }
        return self.templates.structure(node)

    def _by_name(self, name: str, node: Node, what: str) -> None:
        """It is looked for when the work is done; one that is nearly an entry may be a slip."""
        self.templates.credentials.append(CredentialName(name, node.position))
        message = f"{what} names the credential {name!r}, which is not in the keychain"
        if near := closest(name, self.names):
            self.findings.warn(node.position, "unknown-credential", message, near)
            return
        hint = f"add one with `anabranch credential add {name}`, or add it to `keychain`"
        said = f"{message}: the engine looks it up by its name when the step runs"
        self.findings.add(node.position, "credential-by-name", said, hint, "note")


def _named_in(node: Fields) -> Scalar | None:
    """The name of a credential in a mapping that has nothing else to say."""
    for key in _NAMES_ONE:
        found = node.get(key)
        if isinstance(found, Scalar) and isinstance(found.value, str):
            return found if set(node.fields) - {key} <= BESIDE else None
    return None


def loop_credentials(loop: Node | None) -> Iterator[Scalar]:
    """What the collection of a loop names under `auth`."""
    source = loop.get("in") if isinstance(loop, Fields) else None
    for each in source.fields.values() if isinstance(source, Fields) else ():
        name = each.get("auth") if isinstance(each, Fields) else None
        if isinstance(name, Scalar) and isinstance(name.value, str):
            yield name
