"""From the settings to a chain. What a chain needs is imported when there is one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.store.location import MEMORY, on_postgres
from anabranch.work.network.addresses import read_policy
from anabranch.work.rule.ports import ChainIdentity, ContractExecutor, ContractReader, RuleSource
from anabranch.work.secrets.keychain_kinds import read_secret_file
from anabranch.work.secrets.redaction import Redactor

if TYPE_CHECKING:
    from anabranch.work.chain.evm import Endpoints
    from anabranch.work.chain.rpc import RpcOptions
    from anabranch.work.chain.sent import Sent

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"(?!0x)(?![0-9a-fA-F]{64}$)[A-Za-z_][A-Za-z0-9_]*")


class ChainPorts(msgspec.Struct, frozen=True):
    """What the performer of rules gets from a chain."""

    rules: RuleSource
    reader: ContractReader
    executor: ContractExecutor
    identity: ChainIdentity
    endpoints: Endpoints

    async def close(self) -> None:
        await self.endpoints.close()


def chain_from(
    settings: Settings,
    *,
    redactor: Redactor | None = None,
    environment: Mapping[str, str] | None = None,
) -> ChainPorts | None:
    """The chain of the settings; None when there is none.

    Whatever is missing is said now and not when the first rule needs it. The redactor learns the
    key and the credentials of the nodes, so that no result or message shows them.
    """
    if not settings.chain_url:
        if settings.chain_execution != "record":
            raise InputError(
                f"chain_execution is {settings.chain_execution}, but no node is given "
                "(setting chain_url)"
            )
        return None
    from anabranch.work.chain.evm import Endpoints, EvmChain

    named = endpoints_in(settings.chain_endpoints)
    endpoints = Endpoints(
        settings.chain_url,
        named,
        any_url=settings.chain_rule_urls == "allow",
        options=rpc_options(settings),
        addresses=read_policy(settings.rule_addresses, "rule_addresses"),
    )
    if redactor is not None:
        for url in (settings.chain_url, *named.values()):
            for word in credentials_in(url):
                redactor.learn(word)
    env = os.environ if environment is None else environment
    executor = _executor(settings, endpoints, redactor, env)
    chain = EvmChain(endpoints)
    return ChainPorts(chain, chain, executor, chain, endpoints)


def rpc_options(settings: Settings) -> RpcOptions:
    """How nodes are asked, by steps and by loads alike."""
    from anabranch.work.chain.rpc import RpcOptions

    return RpcOptions(timeout_seconds=settings.chain_timeout_seconds)


def endpoints_in(text: str) -> dict[str, str]:
    """`name=url name=url`, parted by blanks."""
    found: dict[str, str] = {}
    for number, entry in enumerate(text.split(), 1):
        name, equals, url = entry.partition("=")
        if not equals or not _NAME.fullmatch(name) or not url:  # the entry may hold a password
            raise InputError(f"chain_endpoints: entry {number} is not name=url")
        if name in found:
            raise InputError(f"chain_endpoints: the name {name!r} is there twice")
        found[name] = url
    return found


def shown_node(url: str) -> str:
    """The node without whatever only its owner should know; keys of access stand in paths too."""
    if not url:
        return ""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def credentials_in(url: str) -> list[str]:
    """The parts of an address that only its owner should know."""
    parts = urlsplit(url)
    keys = [piece for piece in parts.path.split("/") if len(piece) >= 12]
    return [word for word in (parts.password, parts.query, *keys) if word]


def _executor(
    settings: Settings,
    endpoints: Endpoints,
    redactor: Redactor | None,
    environment: Mapping[str, str],
) -> ContractExecutor:
    from anabranch.work.chain.executor import DryRun, ExecutorOptions, SigningExecutor
    from anabranch.work.chain.signer import LocalSigner

    if settings.chain_execution == "record":
        return DryRun()
    key = _key(settings, environment)
    if redactor is not None and key:
        redactor.learn(key.removeprefix("0x"))
    if settings.chain_execution == "simulate":
        return DryRun(endpoints.usual, sender=LocalSigner(key).address if key else "")
    if not key:
        raise InputError(
            "chain_execution is send, but there is no key "
            "(setting chain_signer_key_env or chain_signer_key_file)"
        )
    options = ExecutorOptions(
        gas_max=settings.chain_gas_max,
        fee_max=settings.chain_fee_max,
        value_wei=settings.chain_value_wei,
        receipt_seconds=settings.chain_receipt_seconds,
    )
    return SigningExecutor(endpoints.usual, LocalSigner(key), _sent(settings), options)


def _key(settings: Settings, environment: Mapping[str, str]) -> str:
    variable, file = settings.chain_signer_key_env, settings.chain_signer_key_file
    if variable and file:
        raise InputError("chain_signer_key_env and chain_signer_key_file: give one of them")
    if variable:
        if not _VARIABLE.fullmatch(variable):  # it may be the key itself, so it is not repeated
            raise InputError("chain_signer_key_env has to be the name of a variable")
        if not environment.get(variable):
            raise InputError(f"the environment has no variable {variable} with a private key")
        return environment[variable].strip()
    return read_secret_file(Path(file)).strip() if file else ""


def _sent(settings: Settings) -> Sent:
    from anabranch.work.chain.sent import SentFile, SentInMemory

    if settings.chain_sent:
        return SentFile(settings.chain_sent)
    if settings.store == MEMORY:
        return SentInMemory()
    if on_postgres(settings.store):
        raise InputError(
            "chain_sent has to name the file that remembers what was sent: a store on PostgreSQL "
            "has no file beside which it could be"
        )
    return SentFile(f"{settings.store}.sent")
