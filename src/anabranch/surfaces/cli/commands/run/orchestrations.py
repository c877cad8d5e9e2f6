"""What `run` takes from the command line for orchestrations: files, folders, registries."""

from __future__ import annotations

import argparse
from pathlib import Path

from anabranch import files
from anabranch.dialects.source import SourceLimits
from anabranch.dialects.xrc729.words import BUDGET, OWNER, SESSION
from anabranch.errors import InputError
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.work.kinds.callables import default_toolbox


async def definition(options: argparse.Namespace, settings: Settings) -> Prepared:
    """The definition to run: a file, or what a registry contract keeps under an id."""
    tools = default_toolbox.signatures()
    if not options.registry:
        _only_with_registry(options)
        if options.file is None:
            raise InputError("name a definition, or a registry with --registry", code="usage")
        if options.ostc:
            text = one_of_several(options.file, options.ostc)
            return prepare(text, tools, options.rules, file=options.file)
        found = None if options.file == "-" else in_catalog(options.file, settings)
        return found or prepare(values.source(options.file), tools, options.rules)
    _check_registry(options, settings)
    from anabranch.work.chain.loader import load_orchestration
    from anabranch.work.chain.wiring import rpc_options

    loaded = await load_orchestration(
        settings.chain_url,
        options.registry,
        options.ostc,
        expect_hash=options.hash,
        pin_rules=options.pin_rules,
        encrypted_rules=bool(settings.rule_keys_file),
        starter=options.owner,
        options=rpc_options(settings),
    )
    return prepare(loaded.bundle(), tools, options.rules)


def in_catalog(target: str, settings: Settings) -> Prepared | None:
    """What the catalog has under this path; None where a file is meant."""
    if Path(target).is_file():
        return None
    from anabranch.surfaces.cli.backend.local.definitions import catalog_of  # files need none

    with catalog_of(settings) as catalog:
        return catalog.prepared(target)


def one_of_several(file: str, ostc: str) -> str:
    """The one orchestration that is meant, of a file with several."""
    from anabranch.operations.definitions.bundles import chosen  # playbooks need none

    source = values.source(file)
    if isinstance(source, Path):
        text = files.read_text(source, SourceLimits().bytes_max)
    else:
        text = str(source)
    return chosen(text, file, ostc)


def _only_with_registry(options: argparse.Namespace) -> None:
    for name in ("hash", "pin_rules"):
        if getattr(options, name):
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} is for what --registry loads: name one", code="usage")


def _check_registry(options: argparse.Namespace, settings: Settings) -> None:
    if options.file is not None:
        raise InputError("name a file or a --registry, not both", code="usage")
    if not options.ostc:
        raise InputError("--registry keeps many orchestrations: name one with --ostc", code="usage")
    if not settings.chain_url:
        raise InputError("--registry needs a node to ask: name it with --rpc", code="usage")
    check_form("--registry", options.registry, 40)
    if options.hash:
        check_form("--hash", options.hash, 64)


def check_form(flag: str, text: str, digits: int) -> None:
    from anabranch.dialects.xrc729.bundle import ADDRESS, HASH  # playbooks need none

    form = ADDRESS if digits == 40 else HASH
    if not form.fullmatch(text):
        raise InputError(f"{flag} is 0x and {digits} hex digits, not {text!r}", code="usage")


def session_labels(options: argparse.Namespace) -> dict[str, str]:
    """The labels of the run; owner and gas of a session are among them."""
    labels = values.labels(options.label)
    if getattr(options, "owner", ""):  # only `run` takes orchestrations
        check_form("--owner", options.owner, 40)
        labels[OWNER] = options.owner
    if getattr(options, "session", None):
        if OWNER not in labels:
            raise InputError("--session is a number of an owner: name one", code="usage")
        labels[SESSION] = str(options.session)
    if getattr(options, "max_gas", 0):
        labels[BUDGET] = str(options.max_gas)
    return labels
