"""What a template under `auth` gives: the name of a credential, or a secret itself.

    "{{ workload.which }}"            a name: looked up, and never sent anywhere
    "pg_{{ workload.stage }}"         the same
    "{{ keychain.api.token }}"        a secret: used as it is
    "Bearer {{ keychain.api.token }}" the same
    "{{ keychain.api }}"              the fields of an entry
    "{{ _prev }}"                     a secret, where a task of kind `secrets` has just got it
    "{{ workload.which if ctx.a else keychain.api.token }}"   decided by what came out

Of a template that reads the keychain a text is a name where it is that of an entry, stands in the
template in quotes, or is what another name it reads has; everything else came from the keychain. A
secret is not looked up as a name: that would carry it to whoever is asked for credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Derived
from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.expressions.port import Paths

KEYCHAIN = "keychain"
#: In a mapping under `auth`: what may stand beside the name of a credential.
BESIDE = frozenset(
    {"type", "source", "provider", "scope", "service", "description", "kind", "oauth_credential"}
)
#: Fields of a keychain that say which credential is meant.
_NAMING = frozenset({"name", "credential", "credential_name"})
_WITHOUT_SECRETS = frozenset({"workload", "ctx"})  # what is recorded has none
_QUOTED = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")


class CredentialLookup(Derived):
    """A name that is worked out, looked up; a secret or fields as they are."""

    __slots__ = ()

    @property
    def reads(self) -> Paths:
        return self.inner.reads | {(KEYCHAIN,)} if self.may_be_name else self.inner.reads

    @property
    def may_be_name(self) -> bool:
        """False where nothing but one place of the keychain can come out."""
        found = self.inner.readings
        alone = len(found) == 1 and found[0].root == KEYCHAIN and not found[0].open
        return not alone or found[0].path[-1] in _NAMING or bool(self._literals - _keys(found[0]))

    def derived(self, value: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(value, Mapping):
            value = self._named_in(value)
        if not isinstance(value, str):
            return value
        ring = names.get(KEYCHAIN)
        if ring is None:
            raise ExpressionError(f"`auth: {self.text:.200}`: there is no keychain here")
        if not self._is_name(value, names, ring):
            return value
        try:
            return _plain(ring[value])
        except KeyError:
            raise ExpressionError(f"the keychain has no entry {value[:60]!r}") from None

    def _named_in(self, value: Mapping[str, Any]) -> Any:
        """The name in a mapping `{type: …, credential: NAME}` from elsewhere than the keychain."""
        name = value.get("credential")
        of_keychain = any(one.root == KEYCHAIN for one in self.inner.readings)
        if of_keychain or not isinstance(name, str) or set(value) - {"credential"} - BESIDE:
            return value
        return name

    def _is_name(self, text: str, names: Mapping[str, Any], ring: Mapping[str, Any]) -> bool:
        found = self.inner.readings
        if not any(one.root == KEYCHAIN for one in found):
            gave = getattr(ring, "gave", None)
            plain = all(one.root in _WITHOUT_SECRETS for one in found)
            return plain or text in ring or gave is None or not gave(text)
        if text in ring or text in self._literals:
            return True
        naming = (one for one in found if one.root != KEYCHAIN or one.path[-1] in _NAMING)
        return any(_gives(one, names, text) for one in naming)

    @property
    def _literals(self) -> frozenset[str]:
        return frozenset(one or two for one, two in _QUOTED.findall(self.text))


class KeychainAtHand(Derived):
    """The keychain itself, for work that looks into it only when it has found nothing elsewhere.
    The template gives the name, or reads the entry, that it may ask for."""

    __slots__ = ()

    @property
    def reads(self) -> Paths:
        found = self.inner.reads
        return found if any(root == KEYCHAIN for root, *_ in found) else found | {(KEYCHAIN,)}

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        return self._view(names).get(KEYCHAIN)

    def derived(self, value: Any, names: Mapping[str, Any]) -> Any:
        raise NotImplementedError


def _keys(reading: TemplateLookup) -> frozenset[str]:
    return frozenset(str(part) for part in reading.path)


def _gives(reading: TemplateLookup, names: Mapping[str, Any], text: str) -> bool:
    """Whether this place has the text; of one with a key that is worked out, any value of it."""
    value: Any = names
    for part in reading.path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return False
    if reading.open and isinstance(value, Mapping):
        return text in [each for each in value.values() if isinstance(each, str)]
    return isinstance(value, str) and value == text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value
