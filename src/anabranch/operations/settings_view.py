"""Settings as people may see them: each with where it comes from, and without its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.net.problems import did_you_mean
from anabranch.settings import DEFAULTS, SECRETS, Settings
from anabranch.settings_file import Level, Loaded, Origin
from anabranch.store import location

HIDDEN = "(hidden)"
#: A word is read once: what of it is before the scheme is a part of what is found.
_ADDRESS = re.compile(
    r"(?<![\w+.-])(?P<before>(?:(?![A-Za-z])[\w+.-])*)(?P<scheme>[A-Za-z][\w+.-]*+://)"
    r"(?:[^\s/?#,]*@)?(?P<host>[^\s/?#,]*)[^\s,]*"
)


class ShownSetting(msgspec.Struct, frozen=True):
    name: str
    value: Any
    origin: Level
    place: str  # the variable, the option, or file and line; "" for a default


def shown_settings(loaded: Loaded, names: Iterable[str] = ()) -> Iterator[ShownSetting]:
    """Those of these names, or all of them, in the order of the documentation."""
    wanted = set(names)
    for name in wanted - DEFAULTS.keys():
        hint = did_you_mean(name, DEFAULTS)
        message = f"there is no setting {name!r:.100}"
        raise InputError(f"{message}; {hint}" if hint else message, code="usage")
    for name in DEFAULTS:
        if not wanted or name in wanted:
            origin = loaded.origins.get(name, Origin())
            value = shown(name, getattr(loaded.settings, name))
            yield ShownSetting(name, value, origin.level, origin.place)


def shown(name: str, value: Any) -> Any:
    """The value, as far as it is for everybody's eyes."""
    if name in SECRETS:
        return HIDDEN if value else ""
    if name == "store":
        return location.shown(value)
    return _ADDRESS.sub(_host, value) if name in _PRIVATE else value


def _host(address: re.Match[str]) -> str:
    """Behind a host, and before it, may be a key or a password."""
    whole = f"{address['before']}{address['scheme']}{address['host']}"
    return whole if address[0].rstrip("/") == whole else f"{whole}/…"


_PRIVATE = frozenset(each.name for each in fields(Settings) if not each.repr)
