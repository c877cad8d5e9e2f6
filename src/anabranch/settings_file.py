"""`anabranch.toml`: settings of a project or of a person, under those of the environment.

    store = "runs.db"            # relative to the folder that the file is in
    jobs_max = 200

    [keep_runs]
    completed = "30d"

    [pools]
    heavy = "dask://scheduler:8786"

The file is that of the current folder, or of the nearest folder above it, up to the root of the
repository or the home folder, whichever comes first. Outside of both only the current folder
counts: what lies above it may be anybody's. A file decides where runs are kept and which commands
are called, so one that another user owns, links to or may write is refused, for root as for all
others. Secrets in a file that others may read are refused as well.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import quote

import msgspec

from anabranch.errors import InputError
from anabranch.settings import (
    CHOICES,
    DEFAULTS,
    FILE,
    FILE_VARIABLE,
    PATH_LISTS,
    PATH_WORDS,
    PATHS,
    PREFIX,
    SECRETS,
    Settings,
    given_in,
    parse,
)

NAME, VARIABLE = FILE, FILE_VARIABLE
BYTES_MAX = 1024 * 1024
POOLS, KEEP_RUNS, RATE_LIMITS = "pools", "keep_runs", "rate_limits"  # those that may be tables
#: What is given nearer to the person sets aside what is given further away and means the contrary.
RIVALS = (
    ("store", "server"),
    *(("token", "token_file"), ("token_file", "token")),
    *(("secret_key", "secret_key_file"), ("secret_key_file", "secret_key")),
    ("chain_signer_key_env", "chain_signer_key_file"),
    ("chain_signer_key_file", "chain_signer_key_env"),
)
_POOL = re.compile(r"[\w.-]{1,200}")
_SEPARATOR = re.compile(r"[\s,]")  # of pools in one text
_PASSWORD = re.compile(r"://[^\s/@:]*:[^\s/@]+@|[?&]\w*password=")
_HEADER = "settings"  # tables of this name are common elsewhere
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_KINDS: Mapping[type, str] = {bool: "true or false", str: "text", list: "a list", dict: "a table"}

Level = Literal["default", "file", "environment", "option"]


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from: a level, and the variable, the option or the place in the file."""

    level: Level = "default"
    place: str = ""


class Loaded(msgspec.Struct, frozen=True):
    settings: Settings
    origins: Mapping[str, Origin]  # of every field that has another value than its default
    file: Path | None = None

    def over(self, values: Mapping[str, Any], origins: Mapping[str, Origin]) -> Loaded:
        """With other values on top."""
        settings = replace(self.settings, **values)
        return Loaded(settings, {**self.origins, **origins}, self.file)


def load(environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Loaded:
    """The defaults, over them the file, over that the environment."""
    env = os.environ if environment is None else environment
    file = _chosen(env, folder)
    written, lines = ({}, {}) if file is None else _File(file, named=VARIABLE in env).values()
    given = given_in(env)
    for name, other in RIVALS:
        if name in given and other not in given:
            written.pop(other, None)
    origins = {name: Origin("file", f"{file}:{lines[name]}") for name in written}
    origins |= {name: Origin("environment", PREFIX + name.upper()) for name in given}
    return Loaded(replace(Settings(), **{**written, **given}), origins, file)


def load_settings() -> Settings:
    """The settings as the command line has them: of `anabranch.toml`, and over it those of the
    environment."""
    return load().settings


# -- where it is -----------------------------------------------------------------------------


def _chosen(environment: Mapping[str, str], folder: Path | None) -> Path | None:
    named = environment.get(VARIABLE)
    if named is not None:
        return Path(named).absolute() if named else None
    try:
        return find(folder if folder is not None else Path.cwd())
    except OSError:  # the current folder is gone
        return None


def find(folder: Path) -> Path | None:
    """The nearest file, from this folder upwards."""
    return next(filter(_is_there, _places(folder)), None)


def places() -> list[Path]:
    """Where a file would be read that somebody puts there."""
    try:
        return _places(Path.cwd())
    except OSError:  # the current folder is gone
        return []


def _places(folder: Path) -> list[Path]:
    home = _home()
    chain = [folder, *folder.parents]
    for number, place in enumerate(chain, 1):
        if place == home or _is_there(place / ".git"):
            return [each / NAME for each in chain[:number]]
    return [folder / NAME]


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except (RuntimeError, OSError):
        return None


def _is_there(path: Path) -> bool:
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


# -- what it says ----------------------------------------------------------------------------


class _File:
    """Reads one file; everything wrong with it is told at once."""

    def __init__(self, path: Path, *, named: bool = False) -> None:
        self._path = path
        self._named = named  # by the person, and not just found
        self._problems: list[str] = []
        self._text = ""
        self._mode = 0

    def values(self) -> tuple[dict[str, Any], dict[str, int]]:
        """The values, and the line of each."""
        found: dict[str, Any] = {}
        for name, given in self._parsed().items():
            if name not in DEFAULTS:
                self._unknown(name)
                continue
            try:
                found[name] = self._value(name, given)
            except InputError as error:
                self._problems.append(error.message)
        if self._problems:
            raise InputError("\n".join(self._problems), code="settings_file")
        return found, {name: self._line(name) for name in found}

    def _parsed(self) -> dict[str, Any]:
        import tomllib

        from anabranch import files

        self._text = files.read_text(self._path, BYTES_MAX, opening=self._open)
        try:
            return tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{self._path}: {error}", code="settings_file") from None

    def _open(self, path: str | os.PathLike[str]) -> int:
        from anabranch import files

        descriptor = files.open_regular(path)
        try:
            self._check_writers(os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check_writers(self, about: os.stat_result) -> None:
        """Of the file that is open, and of the link that leads to it: paths begin at its folder."""
        from anabranch.files import has_other_owner

        if os.name != "posix":
            return
        self._mode = about.st_mode
        if not self._named and has_other_owner(about, os.lstat(self._path)):
            self._refuse(
                "it belongs to another user, and settings name commands and places",
                f"name it with {VARIABLE} if you trust it; with {VARIABLE}= no file is read",
            )
        if self._mode & stat.S_IWOTH:
            self._refuse("every user can change this file", f"`chmod o-w {self._path}`")
        if self._mode & stat.S_IWGRP and not self._named:
            self._refuse("its group can change this file", f"`chmod g-w {self._path}`")

    def _refuse(self, why: str, hint: str) -> NoReturn:
        raise InputError(f"{self._path} is not read: {why}: {hint}", code="settings_file")

    # -- values ------------------------------------------------------------------------------

    def _value(self, name: str, given: Any) -> Any:
        what = self._what(name)
        if name == POOLS and isinstance(given, dict):
            value: Any = self._pools(given)
        elif name == KEEP_RUNS and isinstance(given, dict):
            value = parse(name, self._ages(given), what)
        elif name == RATE_LIMITS and isinstance(given, dict):
            value = parse(name, self._rates(given), what)
        else:
            value = parse(name, _text_of(name, given, what), what)
        if name in PATHS and value:
            value = self._placed(value)
        if name in PATH_LISTS and value not in ("", *PATH_WORDS):
            value = os.pathsep.join(map(self._placed, value.split(os.pathsep)))
        self._check_secret(name, value)
        return value

    def _pools(self, given: Mapping[str, Any]) -> str:
        """A table of names and addresses, as the setting has it in one text."""
        parts = []
        for name, address in given.items():
            what = f"{self._path}:{self._line(name, POOLS)}: the pool {name!r:.100}"
            if not _POOL.fullmatch(name):
                raise InputError(f"{what} needs a name of letters, digits, `_`, `.` and `-`")
            if not isinstance(address, str):
                raise InputError(f'{what} must be an address in quotes, as "dask://HOST:8786"')
            parts.append(f"{name}={_SEPARATOR.sub(_escaped, address)}")
        return ", ".join(parts)

    def _ages(self, given: Mapping[str, Any]) -> str:
        """A table of statuses and ages, likewise."""
        for status, age in given.items():
            if not isinstance(age, str):
                what = f"{self._path}:{self._line(status, KEEP_RUNS)}: {KEEP_RUNS}.{status:.40}"
                raise InputError(f'{what} must be an age in quotes, as "30d"')
        return " ".join(f"{status}={''.join(age.split())}" for status, age in given.items())

    def _rates(self, given: Mapping[str, Any]) -> str:
        """A table of what is limited and its rate, likewise."""
        for name, rate in given.items():
            if not isinstance(rate, str):
                what = f"{self._path}:{self._line(name, RATE_LIMITS)}: {RATE_LIMITS}.{name:.40}"
                raise InputError(f'{what} must be a rate in quotes, as "5/s"')
        return " ".join(f"{name}={''.join(rate.split())}" for name, rate in given.items())

    def _placed(self, path: str) -> str:
        """Relative to the folder of the file, wherever the command is typed."""
        if path == ":memory:" or "://" in path:
            return path
        return str(self._path.parent / os.path.expanduser(path))

    def _check_secret(self, name: str, value: Any) -> None:
        secret = name in SECRETS and bool(value)
        if not (secret or _has_password(value)) or not self._mode & _OTHERS_READ:
            return
        kind = "is a secret" if secret else "holds a password"
        message = f"{self._what(name)} {kind}, and other users of this machine can read this file"
        instead = f"{name}_file" if secret else PREFIX + name.upper()
        raise InputError(f"{message}: `chmod 600 {self._path}`, or use {instead}")

    # -- messages ----------------------------------------------------------------------------

    def _what(self, name: str) -> str:
        return f"{self._path}:{self._line(name)}: {name}"

    def _unknown(self, name: str) -> None:
        close = get_close_matches(name.lower(), DEFAULTS, n=1)
        hint = f"did you mean {close[0]}?" if close else "`anabranch settings` lists them all"
        if name == _HEADER:
            hint = f"write the settings at the top of the file, without [{_HEADER}]"
        line = self._line(name)
        self._problems.append(f"{self._path}:{line}: there is no setting {name!r:.100}; {hint}")

    def _line(self, name: str, table: str = "") -> int:
        """Where a key stands: TOML is read without places, so it is looked for."""
        key = rf"\s*(?:\[\s*)?[\"']?{re.escape(name)}[\"']?\s*[=.\]]"
        after = self._line(table) if table else 1
        for number, line in enumerate(self._text.splitlines(), 1):
            if number >= after and re.match(key, line):
                return number
        return after


def _text_of(name: str, given: Any, what: str) -> str:
    """The value as an environment variable would have it."""
    default = DEFAULTS[name]
    if isinstance(given, bool) and set(CHOICES.get(name, ())) == {"no", "yes"}:
        return "yes" if given else "no"
    if isinstance(default, str):
        if isinstance(given, str):
            return given
        raise InputError(f"{what} must be text in quotes, not {_kind(given)}")
    numbers = (int,) if isinstance(default, int) else (int, float)
    if isinstance(given, bool) or not isinstance(given, numbers):
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise InputError(f"{what} must be {kind} without quotes, not {_kind(given)}")
    return str(given)


def _kind(given: Any) -> str:
    """What a value is, without the value: it may be a secret."""
    return _KINDS.get(type(given), "a number" if isinstance(given, int | float) else "a date")


def _escaped(letter: re.Match[str]) -> str:
    return quote(letter.group())


def _has_password(value: Any) -> bool:
    return isinstance(value, str) and _PASSWORD.search(value) is not None
