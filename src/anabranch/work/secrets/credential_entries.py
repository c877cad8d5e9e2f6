"""Entries of a keychain that stand for a credential which is kept elsewhere by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.work.kinds import inputs

#: Keys that every entry may have; they are no fields of a secret.
COMMON = frozenset({"name", "kind", "scope", "desc", "description", "ttl", "auth"})
#: Kinds of entries whose fields come from elsewhere, and services that cannot be asked from here:
#: a credential of ours stands for what is kept there.
MANAGED = frozenset({"secret_manager", "credential", "postgres_credential"})
ELSEWHERE = frozenset({"gcp", "aws", "azure", "vault", "k8s", "google"})


def credential_of(entry: Mapping[str, Any]) -> str | None:
    """The name of the credential that an entry stands for; None where it has values of its own.

    It is the one that it names (`credential`), or that of its own name, where its provider is one
    that cannot be asked, or where it says nothing else."""
    if entry.get("kind") not in MANAGED:
        return None
    if isinstance(entry.get("credential"), str):
        return str(entry["credential"])
    provider = entry.get("provider")
    own = {key for key, value in entry.items() if value is not None} - COMMON - {"provider"}
    if provider == "store" or provider in ELSEWHERE or (provider is None and not own):
        return str(entry["name"])
    return None


def mapped(found: Any, wanted: Any, name: str) -> Any:
    """Under the names that `map` of an entry gives to the fields of a credential. Where it has no
    such field, what `map` says is a place in another store, and the one text is the value."""
    if wanted is None:
        return found
    names = inputs.mapping(wanted, f"keychain.{name}.map")
    if not isinstance(found, Mapping):
        return dict.fromkeys(names, found)
    lacking = [out for out, field in names.items() if field not in found and out not in found]
    if lacking:
        raise InputError(f"the credential has no field '{lacking[0]}'; give it one, or change map")
    return {out: found[field] if field in found else found[out] for out, field in names.items()}
