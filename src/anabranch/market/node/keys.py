"""The secret keys of a node: one file a role, readable by their owner alone.

    node.key          signs envelopes to peers, and advertisements
    participant.key   signs offers, orders, passports and revocations
    org.key           an organisation whose custodian the participant is; it signs nothing itself
    org-NAME.key      further organisations

A file holds 32 random bytes in hexadecimal. It is made whole or not at all, never replaced, and
refused where others than its owner can read it. No message and no log has what is in it.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.market.identities import SigningKey

SUFFIX = ".key"
REQUIRED = ("node", "participant")

_NAME = re.compile(r"node|participant|org(-[a-z0-9][a-z0-9-]{0,62})?")
_SEED_BYTES = 32
_FILE_BYTES = 200
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITE_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def role_of(name: str) -> str:
    """The role of a key by the name of its file: node, participant or org."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name[:80]!r} is no name of a key: node, participant, org, or org- and small letters",
            code="key_name",
        )
    return name.partition("-")[0]


class KeyFolder:
    """The keys in a folder, by name. Each file is read once, when the folder is opened."""

    def __init__(self, path: Path, keys: Mapping[str, SigningKey]) -> None:
        self.path = path
        self._keys = dict(keys)

    def __repr__(self) -> str:
        return f"KeyFolder({str(self.path)!r}, {sorted(self._keys)})"

    @classmethod
    def create(
        cls,
        path: str | Path,
        names: Iterable[str] = REQUIRED,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> KeyFolder:
        """New keys, all or none of them; a file that is there is never replaced."""
        folder, wanted = Path(path), list(dict.fromkeys(names))
        for name in wanted:
            role_of(name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _require_private_folder(folder)
        made: list[Path] = []
        try:
            for name in wanted:
                made.append(_make(folder / f"{name}{SUFFIX}", random_bytes(_SEED_BYTES)))
        except BaseException:
            for file in made:
                file.unlink()
            raise
        _sync(folder)
        return cls(folder, {name: _load(folder / f"{name}{SUFFIX}") for name in wanted})

    @classmethod
    def open(cls, path: str | Path) -> KeyFolder:
        """The keys that are there; refuses a folder or a file that others could read or change."""
        folder = Path(path)
        if not folder.is_dir():
            raise InputError(f"there is no folder of keys {folder}", code="no_keys")
        _require_private_folder(folder)
        found = sorted(folder.glob(f"*{SUFFIX}"))
        names = [file.name.removesuffix(SUFFIX) for file in found]
        return cls(
            folder,
            {
                name: _load(file)
                for name, file in zip(names, found, strict=True)
                if _NAME.fullmatch(name)
            },
        )

    def key(self, name: str) -> SigningKey:
        role_of(name)
        if name not in self._keys:
            raise InputError(f"there is no key {name}{SUFFIX} in {self.path}", code="no_key")
        return self._keys[name]

    def identities(self) -> dict[str, str]:
        """The public identity of each key, by its name."""
        return {name: key.identity(role_of(name)) for name, key in self._keys.items()}

    def signer(self) -> KeySigner:
        return KeySigner(self)


class KeySigner:
    """Implements `Signer` of the ports: each role signs with its own key."""

    def __init__(self, keys: KeyFolder) -> None:
        self._node, self._participant = (keys.key(name) for name in REQUIRED)
        self.node_id = self._node.identity("node")
        self.participant_id = self._participant.identity("participant")
        self.org_id = keys.identities().get("org", "")

    def __repr__(self) -> str:
        return f"KeySigner({self.node_id!r}, {self.participant_id!r})"

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._node.sign(document)

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        return self._participant.sign(document, without)


def load_signer(path: str | Path) -> KeySigner:
    """The signer of the keys in a folder; raises `InputError` that names what is missing."""
    return KeyFolder.open(path).signer()


# -- files -----------------------------------------------------------------------------------


def _make(file: Path, seed: bytes) -> Path:
    """The content is on the disk before the name is: a crash leaves a whole key or none."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)  # of a process that was killed and had the same number
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as out:
            os.fchmod(out.fileno(), 0o600)  # whatever the umask says
            out.write(seed.hex() + "\n")
            out.flush()
            os.fsync(out.fileno())
        os.link(draft, file)  # fails where there is one
    except FileExistsError:
        raise InputError(f"{file} is there already; a key is never replaced", code="key") from None
    finally:
        draft.unlink()
    return file


def _sync(folder: Path) -> None:
    """The names, too; file systems that cannot do that keep them anyhow."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _load(file: Path) -> SigningKey:
    text = _read(file)
    try:
        seed = bytes.fromhex(text.strip())
        if len(seed) != _SEED_BYTES:
            raise ValueError
    except ValueError:
        message = f"{file} holds no key: {_SEED_BYTES} bytes in hexadecimal are expected"
        raise InputError(message, code="key") from None
    return SigningKey.from_seed(seed)


def _read(file: Path) -> str:
    try:
        handle = files.open_regular(file)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", code="key") from None
    try:
        _require_private(file, os.fstat(handle))
        return os.read(handle, _FILE_BYTES).decode("ascii", "replace")
    finally:
        os.close(handle)


def _require_private(file: Path, about: os.stat_result) -> None:
    if about.st_mode & _OTHERS:
        raise InputError(
            f"others than its owner can read {file}: take that away with `chmod 600 {file}`, and "
            "make a new key if they may have read it",
            code="key_readable",
        )
    if about.st_uid not in (os.geteuid(), 0):
        raise InputError(f"{file} belongs to another user of this machine", code="key_owner")


def _require_private_folder(folder: Path) -> None:
    if folder.stat().st_mode & _WRITE_OF_OTHERS:
        raise InputError(
            f"others can put keys into {folder}: take that away with `chmod go-w {folder}`",
            code="key_folder",
        )
