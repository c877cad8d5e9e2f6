"""What inline work (shell commands, Python code) gets of the process that starts it.

The environment of an engine holds secrets: its own (`ANABRANCH_TOKEN`), those of keychains and of
participants. Inline work inherits only what programs need to run at all, and what the operator
names. What a task gives as `env` is added to that. With a user of its own (`os_user.py`) inline
work cannot read the files and the processes of the engine either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
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


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """How far inline work is kept apart from the engine."""

    environment: tuple[str, ...] = ()  # more names to inherit; `*` stands for any letters
    withheld: frozenset[str] = frozenset()  # never inherited, whatever the patterns say
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
        if value is None or self._passes(name, value) or self._ours(name):
            return ""
        return (
            f" (the engine's environment has {name}, and inline work does not inherit it: give it "
            f"in the task, or name it in the setting inline_environment)"
        )

    def _passes(self, name: str, value: str) -> bool:
        if self._ours(name):
            return False
        if any(fnmatchcase(name, pattern) for pattern in self.environment):
            return True
        if name.lower() in PROXIES:
            return "@" not in value
        return name in INHERITED or any(fnmatchcase(name, pattern) for pattern in _PATTERNS)

    def _ours(self, name: str) -> bool:
        return is_ours(name) or name in self.withheld


def is_ours(name: str) -> bool:
    """Whether a variable is a setting of ours, which may be a secret (`ANABRANCH_TOKEN`)."""
    return name.upper().startswith(OURS)


def not_ours(name: str) -> str:
    """The name of a variable that a definition may read."""
    if is_ours(name):
        raise InputError(f"{name} belongs to Anabranch itself: no definition can read it")
    return name


def isolation_of(
    environment: str, user: str, *, withheld: str = "", python: bool = True
) -> Isolation:
    """From the settings `inline_environment` and `inline_user`; `withheld` is never inherited."""
    return Isolation(
        environment=tuple(environment.replace(",", " ").split()),
        withheld=frozenset({withheld} - {""}),
        user=OsUser.named(user, python=python) if user else None,
    )
