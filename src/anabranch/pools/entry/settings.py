"""Which settings of the engine hold for work on a cluster, and which those of the machine there.

What a result may be is for the engine to say: it has to take it. What a machine is willing to do
(processes, the user of inline code, credentials) is for the machine, in its own environment. Kinds
of work can be switched off by both; where calls may go, which files may be named and as whom tasks
log in, the machine says, or else the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from anabranch import settings as config
from anabranch.settings import Settings

#: Of the engine: limits of results and of what is read for them.
OF_THE_ENGINE = (
    "inline_bytes_max",
    "result_bytes_max",
    "expression_bytes_max",
    "http_body_bytes",
    "sql_rows_max",
    "sql_result_bytes",
    "artifact_bytes",
    "collection_line_bytes",
    "collection_shard_bytes",
)
OF_THE_MACHINE_FIRST = ("http_addresses", "files_allowed", "postgres_identity")
OF_BOTH = (*OF_THE_MACHINE_FIRST, "no_inline")

_DEFAULTS = {each.name: each.default for each in fields(Settings)}


def settings_to_send(settings: Settings) -> dict[str, Any]:
    """What work on the cluster has to be told; nothing where the defaults hold."""
    names = (*OF_THE_ENGINE, *OF_BOTH)
    values = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in values.items() if value != _DEFAULTS[name]}


def settings_of_work(
    sent: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of this machine, with those of the engine where it has the say."""
    here = config.from_environment(environment)
    told = {name: sent.get(name, _DEFAULTS[name]) for name in OF_THE_ENGINE}
    off = f"{here.no_inline} {sent.get('no_inline', '')}".strip()
    reach = {name: getattr(here, name) or sent.get(name, "") for name in OF_THE_MACHINE_FIRST}
    return replace(here, **told, **reach, no_inline=off)
