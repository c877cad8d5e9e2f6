"""The keychain: named secrets, and the tasks that ask for one by its name.

Entries are checked here and carried on the net as they are, their templates compiled; the worker
resolves them (see `work.keychain`) and lays them out as `keychain`. A task that says `auth: name`
reads `keychain.name` when it starts. No value passes through the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.templates import Templates
from anabranch.expressions.jinja import has_template
from anabranch.net.problems import did_you_mean

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
PROVIDERS = ("env", "file", "static")
ELSEWHERE = ("gcp", "aws", "azure", "vault", "k8s", "google")
SCOPES = ("local", "global", "shared")
SECRET_MIN = 8  # characters; as in `work.secret_forms`
_SECRET_FIELDS = ("password", "passwd", "secret", "client_secret", "token", "api_key")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WHOLE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)


def read_keychain(
    root: Section, templates: Templates, findings: Findings
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
            if "name" not in entry:
                entry.require("name", "give the entry a name")
            continue
        text = str(name.value)
        if not _NAME.fullmatch(text):
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
        message = f"the provider {provider.value!r} of {entry.what} cannot be reached from here"
        hint = "use `env` or `file`, and let the machine put the secret there"
        entry.findings.add(provider.position, "bad-choice", message, hint)
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


@dataclass(frozen=True, slots=True)
class Credentials:
    """What `auth` of a task comes to."""

    names: frozenset[str]
    templates: Templates
    findings: Findings

    def value(self, node: Node, what: str) -> Any:
        """A mapping as it is; a name, or a template that gives one, read from the keychain."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            if isinstance(node, Fields):
                return self.templates.structure(node)
            self.findings.wrong_type(node, what, "a name in the keychain, or a mapping")
            return None
        if has_template(node.value):
            whole = _WHOLE.fullmatch(node.value)
            if whole is None or "{{" in whole.group(1):
                return self.templates.structure(node)
            inner = whole.group(1).strip()
            lookup = f"{{{{ keychain[{inner}] if ({inner}) is string else ({inner}) }}}}"
            return self.templates.structure(Scalar(lookup, node.position))
        if node.value not in self.names:
            message = f"{what} names the credential {node.value!r}, which is not in the keychain"
            hint = did_you_mean(node.value, self.names) or "add it to `keychain`"
            self.findings.add(node.position, "unknown-credential", message, hint)
            return None
        lookup = f"{{{{ keychain['{node.value}'] }}}}"
        return self.templates.structure(Scalar(lookup, node.position))
