"""What inline work (shell commands, Python code) gets of the process that starts it.

The environment of an engine holds secrets: its own (`ANABRANCH_TOKEN`), those of keychains and of
participants. Inline work inherits only what programs need to run at all, and what the operator
names. What a task gives as `env` is added to that. With a user of its own (`os_user.py`) inline
work cannot read the files and the processes of the engine either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

import msgspec

from anabranch.errors import InputError
from anabranch.work.kinds.commands.os_user import OsUser

#: What programs need in order to find other programs, their home, a language and certificates.
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "PWD", "HOSTNAME"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "TEMP", "TMP"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "VIRTUAL_ENV"),
    *("LD_LIBRARY_PATH", "DYLD_*", "NO_PROXY", "no_proxy"),
)
_PATTERNS = tuple(name for name in INHERITED if "*" in name)
#: Inherited unless they hold a password (`http://user:password@proxy`).
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")
OURS = "ANABRANCH_"

_MISSED = re.compile(r"KeyError: '(\w+)'|\b(\w+): (?:parameter not set|unbound variable)")


class KeptNames(msgspec.Struct, frozen=True):
    """The variables that a process keeps to itself: settings, and what settings name. No definition
    reads them, and nothing that definitions start inherits them."""

    named: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        return name.upper().startswith(OURS) or name in self.named

    def without(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment for a program that others have a say in."""
        env = os.environ if environment is None else environment
        return {name: value for name, value in env.items() if not self.has(name)}


#: Of who names no others.
SETTINGS = KeptNames()


class ReadableVariables(Mapping[str, str]):
    """The environment as definitions may read it, as it is when they do."""

    def __init__(self, own: KeptNames, environment: Mapping[str, str] | None = None) -> None:
        self._own = own
        self._environment = os.environ if environment is None else environment

    def __getitem__(self, name: str) -> str:
        if self._own.has(name):
            raise InputError(f"{name} belongs to Anabranch itself: no definition can read it")
        return self._environment[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._environment if not self._own.has(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How far inline work is kept apart from the engine."""

    environment: tuple[str, ...] = ()  # more names to inherit; `*` stands for any letters
    own: KeptNames = SETTINGS  # never inherited, whatever the patterns say
    user: OsUser | None = None  # None is the user of the engine

    def variables(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a process of inline work starts with, before the task adds its own."""
        env = os.environ if environment is None else environment
        kept = {name: value for name, value in env.items() if self._passes(name, value)}
        return kept if self.user is None else self.user.at_home(kept)

    def hint(self, message: str) -> str:
        """For a failure that names a variable which the engine has and the work has not."""
        found = _MISSED.search(message)
        name = (found[1] or found[2]) if found else ""
        value = os.environ.get(name)
        if value is None or self._passes(name, value) or self.own.has(name):
            return ""
        return (
            f" (the engine's environment has {name}, and inline work does not inherit it: give it "
            f"in the task, or name it in the setting inline_environment)"
        )

    def _passes(self, name: str, value: str) -> bool:
        if self.own.has(name):
            return False
        if any(fnmatchcase(name, pattern) for pattern in self.environment):
            return True
        if name.lower() in PROXIES:
            return "@" not in value
        return name in INHERITED or any(fnmatchcase(name, pattern) for pattern in _PATTERNS)


def isolation_of(environment: str, user: str, *, own: KeptNames, python: bool = True) -> Isolation:
    """From the settings `inline_environment` and `inline_user`."""
    return Isolation(
        environment=tuple(environment.replace(",", " ").split()),
        own=own,
        user=OsUser.named(user, python=python) if user else None,
    )
