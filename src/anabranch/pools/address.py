"""Which pools a compute cluster does, and how: `heavy=dask://host:8786?queue=32, gpu=ray:auto`.

An address names the engine and where it is; options stand behind a question mark, as in a URL. No
message quotes more of it than the name of the pool, of the engine or of an option: a folder for
values or the environment of the work may hold a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NoReturn
from urllib.parse import quote, unquote

import msgspec

from anabranch.errors import InputError
from anabranch.net.problems import did_you_mean

NAME_MAX = 200
QUEUE_MAX = 100_000
PORTS = {"dask://": 8786, "dask+tls://": 8786, "ray://": 10001, "ray:": 6379}
EXAMPLES = "dask://HOST:8786, dask+tls://HOST:8786, ray://HOST:10001, ray:auto or ray:HOST:6379"
ENGINES = ("dask", "dask+tls", "ray")
GRACE_SECONDS = 10.0
BEGIN_SECONDS = 60.0

#: Between two pools, and not inside an option.
_NEXT = re.compile(r"(?<![\s,])[\s,]++(?=[\w.-]++\s*+=)")
_SEPARATOR = re.compile(r"[\s,]")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[\w.-]+)(?::(\d{1,5}))?")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One pool and the cluster that does its jobs."""

    name: str
    engine: Literal["dask", "ray"]
    address: str  # for the library of the engine
    shown: str  # for people, without options
    queue: int | None = None  # tickets beyond the slots; None: as the dispatcher says
    values: str = ""  # "cluster", "server" or the URL of a folder; "": as the surface has it
    tools: tuple[str, ...] | None = None  # modules with callables; None: those of --tools
    resources: Mapping[str, float] = {}
    priority: int = 0  # Dask
    restart: bool = False  # Dask: end the worker of a job that does not stop
    runtime_env: Mapping[str, Any] = {}  # Ray
    grace_seconds: float = GRACE_SECONDS  # from the request to stop until force
    begin_seconds: float = BEGIN_SECONDS  # a ticket that waits longer beside free slots is said

    def __repr__(self) -> str:
        return f"PoolOptions({self.name!r}, {self.shown!r})"

    @property
    def values_shown(self) -> str:
        """Where large values are, without what a URL may hide."""
        place, _, rest = self.values.partition("://")
        return f"{place}://{rest.rpartition('@')[2]}" if rest else self.values


def parse_pools(text: str) -> dict[str, PoolOptions]:
    """What the setting `pools` says; raises `InputError` and names the pool that is wrong."""
    return pools_of(_named(_NEXT.split(text)))


def typed_over(text: str, typed: Iterable[str]) -> str:
    """The setting with what was typed, a pool each, in the place of pools of the same name."""
    new = _named(typed)
    pools_of(new)
    safe = {name: _SEPARATOR.sub(_escaped, address) for name, address in new.items()}
    known = {**_named(_NEXT.split(text)), **safe}
    return ", ".join(f"{name}={address}" for name, address in known.items())


def _escaped(letter: re.Match[str]) -> str:
    return quote(letter.group())


def _named(parts: Iterable[str]) -> dict[str, str]:
    """Name → address."""
    given: dict[str, str] = {}
    for part in filter(None, (each.strip(" ,\t\r\n") for each in parts)):
        name, equals, address = (each.strip() for each in part.partition("="))
        if not equals or not name:
            raise InputError(
                "write each pool as NAME=ADDRESS, such as heavy=dask://HOST:8786 or gpu=ray:auto",
                code="pool_address",
            )
        if name in given:
            raise InputError(f"the pool {name!r:.100} is given twice", code="pool_address")
        given[name] = address
    return given


def pools_of(given: Mapping[str, str | PoolOptions]) -> dict[str, PoolOptions]:
    """The same for a mapping of names to addresses, as programs give it."""
    return {
        name: address if isinstance(address, PoolOptions) else read_pool(name, address)
        for name, address in given.items()
    }


def read_pool(name: str, address: str) -> PoolOptions:
    """One pool and its address."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise InputError(
            f"a pool needs a printable name of 1 to {NAME_MAX} characters", code="pool_address"
        )
    if not isinstance(address, str):
        _wrong(name, f"its address is not a text: write {EXAMPLES}")
    place, _, query = address.partition("?")
    engine, reached, shown = _place(name, place)
    return PoolOptions(
        name=name, engine=engine, address=reached, shown=shown, **_options(name, engine, query)
    )


def require_elsewhere(pools: Collection[str], here: str) -> None:
    """Refuse a pool that is to be done by a cluster and by this process."""
    ours = frozenset(here.replace(",", " ").split())
    for name in pools:
        if name in ours or "*" in ours:
            _wrong(name, "the setting `pools_here` says that this process does its jobs: leave one")


# -- the address -----------------------------------------------------------------------------


def _place(name: str, place: str) -> tuple[Literal["dask", "ray"], str, str]:
    """(engine, the address for its library, the address for people)."""
    scheme = next((one for one in PORTS if place.startswith(one)), "")
    if not scheme or (place.startswith("ray:/") and scheme == "ray:"):
        _unknown_engine(name, place)
    rest = place.removeprefix(scheme).rstrip("/")
    if place == "ray:auto":
        return "ray", "auto", "ray:auto"
    if "@" in rest:
        _wrong(name, f"{_engine(scheme)} takes no user and no password in its address")
    host = _HOST.fullmatch(rest)
    port = int(host.group(2) or PORTS[scheme]) if host else 0
    if host is None or not 0 < port < 65536:
        _wrong(name, f"its address needs a host and a port: write {EXAMPLES}")
    where = f"{host.group(1)}:{port}"
    library = {"dask://": "tcp://", "dask+tls://": "tls://", "ray://": "ray://", "ray:": ""}
    engine: Literal["dask", "ray"] = "dask" if scheme.startswith("dask") else "ray"
    return engine, f"{library[scheme]}{where}", f"{scheme}{where}"


def _unknown_engine(name: str, place: str) -> NoReturn:
    word = re.match(r"[\w+.-]*", place)
    said = word.group() if word and ":" in place else ""
    if said in ENGINES:
        _wrong(name, f"its address needs '{said}://'. Write {EXAMPLES}")
    hint = did_you_mean(said, ENGINES) if said else ""
    near = f"; {hint}" if hint.startswith("did") else "."
    what = f"the engine {said!r:.40} is not known{near}" if said else "its address names no engine."
    _wrong(name, f"{what} Write {EXAMPLES}")


def _engine(scheme: str) -> str:
    return "Dask" if scheme.startswith("dask") else "Ray"


def _wrong(name: str, what: str) -> NoReturn:
    raise InputError(f"pool {name!r:.100}: {what}", code="pool_address") from None


# -- options ---------------------------------------------------------------------------------


def _options(name: str, engine: str, query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        option, _, text = part.partition("=")
        option = unquote(option).strip()
        known = _OPTIONS.get(option)
        if known is None:
            _unknown_option(name, option, query)
        field, only, read = known
        if only and only != engine:
            said = f"{only.capitalize()} has the option {option!r}, {engine.capitalize()} has not"
            _wrong(name, said)
        if field in found:
            _wrong(name, f"the option {option!r} is given twice")
        try:
            found[field] = read(unquote(text).strip())
        except ValueError as wrong:
            _wrong(name, f"the option {option!r} {wrong}")
    return found


def _unknown_option(name: str, option: str, query: str) -> NoReturn:
    """Behind a & in a password, an option may be a part of it: then nothing is quoted."""
    if "@" in unquote(query) or not re.fullmatch(r"[\w-]{1,40}", option):
        said = "it has an option that is not known; a & in a value is written as %26"
        _wrong(name, f"{said}. Options are {', '.join(_OPTIONS)}")
    _wrong(name, f"the option {option!r} is not known; {did_you_mean(option, _OPTIONS)}")


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) > QUEUE_MAX:
        raise ValueError(f"must be a whole number of 0 to {QUEUE_MAX:,}")
    return int(text)


def _priority(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise ValueError("must be a whole number")
    return int(text)


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("must be `yes` or `no`")
    return text == "yes"


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,7}(\.\d{1,6})?", text) or float(text) <= 0:
        raise ValueError("must be a number of seconds above zero")
    return float(text)


def _values(text: str) -> str:
    if text in ("cluster", "server") or text.startswith("/"):
        return text
    scheme, _, rest = text.partition("://")
    if rest and re.fullmatch(r"[A-Za-z][\w+.-]*", scheme):
        return text
    raise ValueError("must be `cluster`, `server` or the URL of a folder, such as s3://bucket/work")


def _tools(text: str) -> tuple[str, ...]:
    modules = tuple(text.replace(",", " ").split())
    if not all(_MODULE.fullmatch(one) for one in modules):
        raise ValueError("must be names of modules: `tools=shop.tools,shop.checks`")
    return modules


def _resources(text: str) -> dict[str, float]:
    found = {}
    for part in text.replace(",", " ").split():
        name, _, amount = part.partition(":")
        if not name or not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", amount):
            raise ValueError("must be names and amounts: `resources=GPU:1,disk:2.5`")
        found[name] = float(amount)
    return found


def _runtime_env(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        raise ValueError("must be a JSON object") from None


#: Option → (field, the only engine that has it, how its text is read).
_OPTIONS: Mapping[str, tuple[str, str, Callable[[str], Any]]] = {
    "queue": ("queue", "", _count),
    "values": ("values", "", _values),
    "tools": ("tools", "", _tools),
    "resources": ("resources", "", _resources),
    "priority": ("priority", "dask", _priority),
    "restart": ("restart", "dask", _yes_or_no),
    "runtime_env": ("runtime_env", "ray", _runtime_env),
    "grace": ("grace_seconds", "", _seconds),
    "begin": ("begin_seconds", "", _seconds),
}
