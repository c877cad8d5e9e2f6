"""Answers of a server to those who do its jobs, as types on both sides: the schemas in the OpenAPI
document."""

from __future__ import annotations

from typing import Any

import msgspec


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server that workers can claim jobs from."""

    id: str  # another one after a restart
    url: str
    here: bool  # it is the one that was asked


class ServerList(msgspec.Struct, frozen=True):
    """The servers that share a store. `here` is the one that answers."""

    items: list[ServerAddress]
    next: str | None = None


class Source(msgspec.Struct, frozen=True):
    """The definition of a job, to be compiled where the work is done."""

    fingerprint: str
    dialect: str
    name: str
    source: str
    origin: str


class FoundCredential(msgspec.Struct, frozen=True):
    """A credential on its way to the work that looks it up."""

    type: str
    data: Any

    def __repr__(self) -> str:
        return f"FoundCredential({self.type!r})"


class Begun(msgspec.Struct, frozen=True):
    run: str
