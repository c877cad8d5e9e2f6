"""The folder of a node: its configuration, its keys, its store, its tokens.

node.json        what `node init` wrote and people change
config/*.json    what the operator sets over the configuration of modules
keys/            one file a role, readable by the owner alone
node.db          the state
authtok          the token of the operator; made anew at every start
url              where the node listens, while it runs
middleware/      a folder for each module: its token, its log, what it writes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.ports import NodeConfig
from anabranch.net.problems import did_you_mean

FILE = "node.json"
CONTROL = "authtok"


class NodeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of `node.json`. The sections are read by the parts that they belong to."""

    name: str
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    seeds: tuple[str, ...] = ()
    modules: tuple[Any, ...] = ()
    peers: Mapping[str, Any] = {}
    directory: Mapping[str, Any] = {}
    offers: Mapping[str, Any] = {}
    delivery: Mapping[str, Any] = {}
    orders: Mapping[str, Any] = {}
    ledger: Mapping[str, Any] = {}
    deferred: Mapping[str, Any] = {}


SECTIONS = ("modules", "peers", "directory", "offers", "delivery", "orders", "ledger", "deferred")


class NodeFolder:
    """Where things are; nothing is read before it is asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    @property
    def keys(self) -> Path:
        return self.path / "keys"

    @property
    def store(self) -> Path:
        return self.path / "node.db"

    @property
    def control_token(self) -> Path:
        return self.path / CONTROL

    @property
    def url(self) -> Path:
        return self.path / "url"

    def create(self, given: NodeFile) -> None:
        """The folder with its configuration; refuses one that has a node in it."""
        _require_seeds(given.seeds, "--seed-url")
        data = msgspec.json.format(msgspec.json.encode(given, order="deterministic"), indent=2)
        if (self.path / FILE).exists():
            raise self._exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.path / "config").mkdir(exist_ok=True)
            with (self.path / FILE).open("xb") as file:
                file.write(data + b"\n")
        except OSError as error:
            if (self.path / FILE).exists():
                raise self._exists() from None
            raise InputError(
                f"{self.path} cannot be the folder of a node: {error.strerror}", code="node_file"
            ) from None

    def _exists(self) -> InputError:
        return InputError(
            f"there is a node in {self.path} already: choose another folder", code="node_exists"
        )

    def read(self) -> NodeFile:
        file = self.path / FILE
        try:
            data = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(
                f"there is no node in {self.path}: make one with `anabranch node init "
                f"{self.path.name}`, or say which folder with --node",
                code="no_node",
            ) from None
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}", code="node_file") from None
        try:
            given = msgspec.json.decode(data, type=NodeFile)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            hint = _hint(data)
            raise InputError(f"{file}: {error}{hint}", code="node_file") from None
        _require_seeds(given.seeds, f"{file}: `seeds`")
        return given

    def config(self, file: NodeFile, url: str) -> NodeConfig:
        return NodeConfig(
            name=file.name,
            url=url,
            data_dir=str(self.path),
            seeds=file.seeds,
            raw={name: getattr(file, name) for name in SECTIONS},
        )


def _require_seeds(seeds: tuple[str, ...], where: str) -> None:
    for seed in seeds:
        try:
            url = urlsplit(seed)
            good = url.scheme in ("http", "https") and url.hostname and url.port != 0
        except ValueError:
            good = False
        if not good:
            raise InputError(
                f"{where}: {seed[:100]!r} is no URL such as http://127.0.0.1:8801", code="node_file"
            )


def _hint(data: bytes) -> str:
    """A field that was probably meant."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    known = NodeFile.__struct_fields__
    odd = [key for key in found if key not in known] if isinstance(found, dict) else []
    meant = did_you_mean(odd[0], known) if odd else ""
    return f" ({odd[0]}: {meant})" if meant else ""
