"""The one key of a store: what has to stay secret is made from it, or encrypted with it.

It comes from the setting `secret_key` (an environment variable), from the file `secret_key_file`,
or from the file `<store>.key`, which is made with mode 0600 when it is first needed. It is never in
the database: whoever has a copy of the store alone has no secret of it.

    derive    a secret for a purpose; the store keeps only which one it is
    seal      encrypt a secret that somebody else has made (AES-GCM, package `cryptography`)

`id` tells keys apart, so that a secret made with another key is missed, and not made wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from anabranch.errors import InputError, NotFound
from anabranch.settings import Settings
from anabranch.work.libraries import load

LETTERS_MIN = 32
_BYTES_MAX = 4096
_NONCE = 12
_AEAD = "cryptography.hazmat.primitives.ciphers.aead"
_IN_MEMORY: WeakKeyDictionary[Any, SecretKey] = WeakKeyDictionary()


class SecretKey:
    def __init__(
        self,
        text: str = "",
        file: Path | None = None,
        *,
        made: bool = True,
        place: str = "the setting secret_key",
    ) -> None:
        self._file = file
        self._made = made  # the file is ours: it is made where there is none
        self._place = place  # for messages, where it is no file
        self._key = _checked(text, place) if text else b""

    @classmethod
    def of_variable(cls, name: str) -> SecretKey:
        text = os.environ.get(name)
        if not text:
            raise InputError(f"the environment has no variable {name}", code="secret_key")
        return cls(text, place=f"the variable {name}")

    @property
    def place(self) -> str:
        return str(self._file) if self._file is not None else self._place

    @property
    def id(self) -> str:
        """Which key this is; raises `NotFound` where there is none."""
        return hmac.new(self._load(), b"id", hashlib.sha256).hexdigest()[:8]

    def ensure(self) -> str:
        """Its id; the file is made if there is none yet."""
        if not self._key and self._file is not None and self._made and not self._file.exists():
            _make(self._file)
        return self.id

    def derive(self, *purpose: str) -> bytes:
        """The same for the same purpose, and for no other: 32 bytes."""
        parts = b"".join(b"%d:%b" % (len(one.encode()), one.encode()) for one in purpose)
        return hmac.new(self._load(), b"derive" + parts, hashlib.sha256).digest()

    def seal(self, text: str, *purpose: str) -> str:
        """Encrypted for this purpose: nothing else opens it, and it opens nothing else."""
        nonce = secrets.token_bytes(_NONCE)
        cipher = _cipher(self.derive("seal", *purpose))
        return base64.urlsafe_b64encode(nonce + cipher.encrypt(nonce, text.encode(), None)).decode()

    def unseal(self, sealed: str, *purpose: str) -> str:
        cipher = _cipher(self.derive("seal", *purpose))
        try:
            content = base64.urlsafe_b64decode(sealed)
            plain: bytes = cipher.decrypt(content[:_NONCE], content[_NONCE:], None)
        except Exception:  # cryptography's own, which is not known here without it
            raise NotFound(f"{self.place} is not the key that this was encrypted with") from None
        return plain.decode()

    def _load(self) -> bytes:
        if not self._key:
            if self._file is None:
                raise NotFound(
                    "there is no key: set secret_key or secret_key_file; servers that share a "
                    "store need the same one",
                    code="secret_key",
                )
            self._key = _checked(_read(self._file), str(self._file))
        return self._key


def key_of(store: Any, settings: Settings | None = None) -> SecretKey:
    """The key of a store, as the settings say, or else in the file beside it."""
    if settings is not None and settings.secret_key:
        return SecretKey(settings.secret_key)
    if settings is not None and settings.secret_key_file:
        return SecretKey(file=Path(settings.secret_key_file), made=False)
    path = getattr(store, "path", None)
    if path is not None:
        return SecretKey(file=path.with_name(f"{path.name}.key"))
    if getattr(store, "cluster", None) is not None:
        return SecretKey()  # another server could not read what a key of our own has encrypted
    return _IN_MEMORY.setdefault(store, SecretKey(secrets.token_urlsafe(48)))


def can_seal() -> bool:
    """Is the package there that encrypts?"""
    try:
        load(_AEAD)
    except ImportError:
        return False
    return True


def _cipher(key: bytes) -> Any:
    try:
        aead = load(_AEAD)
    except ImportError:
        raise InputError(
            "storing a secret of another party needs the package cryptography: "
            "pip install 'anabranch[market]'",
            code="secret_key",
        ) from None
    return aead.AESGCM(key)


def _checked(text: str, place: str) -> bytes:
    text = text.strip()
    if len(text) < LETTERS_MIN:
        raise InputError(
            f"the key in {place} has {len(text)} letters, less than {LETTERS_MIN}: make one with "
            "`openssl rand -base64 48`",
            code="secret_key",
        )
    return hashlib.sha256(b"anabranch key\0" + text.encode()).digest()


def _read(file: Path) -> str:
    """Only a regular file, without waiting for anybody who might write to it."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(
            f"the key file {file} cannot be read ({error.strerror}): put it back from the backup, "
            "or make new secrets",
            code="secret_key",
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise InputError(f"the key file {file} is not a regular file", code="secret_key")
        return os.read(opened, _BYTES_MAX).decode("utf-8", "replace")
    finally:
        os.close(opened)


def _make(file: Path) -> None:
    """All of it or nothing, and once: who comes second takes the one that is there."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        opened = os.open(beside, flags, 0o600)
        try:
            os.write(opened, f"{secrets.token_urlsafe(48)}\n".encode())
            os.fsync(opened)
        finally:
            os.close(opened)
        with suppress(FileExistsError):
            os.link(beside, file)
    except OSError as error:
        raise InputError(
            f"the key file {file} cannot be made ({error.strerror}): set secret_key_file to one",
            code="secret_key",
        ) from None
    finally:
        with suppress(OSError):
            beside.unlink()
