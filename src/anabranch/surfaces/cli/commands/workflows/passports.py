"""`passport`: make identities and capability passports, and look whether they hold."""

from __future__ import annotations

import argparse
import os
import secrets
import time
from pathlib import Path
from typing import Any

from anabranch.errors import InputError
from anabranch.market.identities import SigningKey
from anabranch.market.passports import (
    NAMESPACES,
    issue_passport,
    passports_in,
    read_passport,
    renew_passport,
    revoke_passport,
)
from anabranch.market.sources import fetch_source, load_source
from anabranch.settings import Settings
from anabranch.surfaces.cli.output import render
from anabranch.work.participants.performers import rfc3339

_DAY = 86_400_000


async def passport(options: argparse.Namespace, settings: Settings) -> int:
    return _ACTIONS[options.action](options)


def _new(options: argparse.Namespace) -> int:
    """A secret seed in a file of its own, which is never overwritten."""
    try:
        handle = os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"{options.file} cannot be made: {error.strerror}") from None
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    key = _key(options.file)
    facts = {role: key.identity(role) for role in ("node", "participant")}
    return render.tell(options, facts, "\n".join(facts.values()))


def _issue(options: argparse.Namespace) -> int:
    now = int(time.time() * 1000)
    signed = issue_passport(
        _key(options.file),
        options.node,
        options.capability,
        issued_at=rfc3339(now),
        expires_at=rfc3339(now + options.days * _DAY),
        scope={NAMESPACES: options.account_namespace} if options.account_namespace else None,
    )
    print(render.json_line(signed))
    return 0


def _revoke(options: argparse.Namespace) -> int:
    key, chosen = _key(options.file), _chosen(options)
    before = read_passport(chosen)
    if before.issuer != key.identity("participant") and before.node_id != key.identity("node"):
        message = "only its issuer and its node can revoke it, and this is the key of neither"
        raise InputError(message)
    signed = revoke_passport(key, chosen, revoked_at=rfc3339(int(time.time() * 1000)))
    print(render.json_line(signed))
    return 0


def _renew(options: argparse.Namespace) -> int:
    now = int(time.time() * 1000)
    signed = renew_passport(
        _key(options.file),
        _chosen(options),
        issued_at=rfc3339(now),
        expires_at=rfc3339(now + options.days * _DAY),
    )
    print(render.json_line(signed))
    return 0


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """The passport in the file, or the one of several that `--id` names."""
    document = load_source(fetch_source(options.passport), options.passport)
    found = [each for each in passports_in(document) if isinstance(each, dict)]
    found = found or ([document] if isinstance(document, dict) else [])
    if options.id is not None:
        found = [each for each in found if each.get("passport_id") == options.id]
    if len(found) == 1:
        return found[0]
    if not found:
        named = f" with the id {options.id}" if options.id is not None else ""
        raise InputError(f"{options.passport} holds no passport{named}", code="usage")
    ids = ", ".join(render.clean(str(each.get("passport_id"))) for each in found[:5])
    message = f"{options.passport} holds {len(found)} passports; say which with --id: {ids}"
    raise InputError(message, code="usage")


def _verify(options: argparse.Namespace) -> int:
    """Whether form and signature hold; who may issue what is for the directory to say."""
    document = load_source(fetch_source(options.file), options.file)
    found = list(passports_in(document)) or [document]
    verdicts = [_verdict(each) for each in found]
    for one in verdicts:
        print(render.json_line(one) if options.json else f"{one['passport']}: {one['verdict']}")
    return 0 if all(one["verdict"] == "holds" for one in verdicts) else 2


def _verdict(document: Any) -> dict[str, str]:
    named = render.clean(str(document.get("passport_id")) if isinstance(document, dict) else "?")
    try:
        read = read_passport(document)
    except InputError as error:
        return {"passport": named, "verdict": error.message}
    over = read.expires_at is not None and read.expires_at <= time.time() * 1000
    return {"passport": named, "verdict": "has expired" if over else "holds"}


def _key(file: str) -> SigningKey:
    try:
        return SigningKey.from_seed(bytes.fromhex(Path(file).read_text("ascii").strip()))
    except (OSError, ValueError):
        raise InputError(f"{file} is not a file with a seed; `passport new` makes one") from None


_ACTIONS = {"new": _new, "issue": _issue, "verify": _verify, "revoke": _revoke, "renew": _renew}
