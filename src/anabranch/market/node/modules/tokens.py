"""Secrets between the node, its modules and its operator, and who a caller is by them.

Each is drawn when the node starts and stays the same until it ends. Files have mode 0600; without a
data folder (tests) there are none. A module has two: what it shows to the node, and what the
node shows to it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from anabranch.errors import InputError
from anabranch.market.node.api import OPEN, OPERATOR, Caller
from anabranch.market.node.errors import NodeError

CONTROL_HEADER = "X-Orbiplex-Authtok"
MODULE_HEADER = "X-Orbiplex-Module-Authtok"
TOKEN_BYTES = 32


class ModuleTokens:
    """Implements `Tokens` of the ports. `modules` names, for each module, the file of the token
    that the node shows to it; "" is <folder>/middleware/<module>/authtok."""

    def __init__(
        self,
        modules: Mapping[str, str],
        random_bytes: Callable[[int], bytes],
        folder: Path | None,
    ) -> None:
        def draw() -> str:
            return base64.urlsafe_b64encode(random_bytes(TOKEN_BYTES)).rstrip(b"=").decode()

        self._folder = folder
        self._named = dict(modules)
        self._control = draw()
        self._of_module = {module: draw() for module in modules}
        self._to_module = {module: draw() for module in self._of_module}
        self._digests = {module: _digest(token) for module, token in self._of_module.items()}

    def __repr__(self) -> str:
        return f"ModuleTokens({sorted(self._of_module)})"

    def control(self) -> str:
        """What the operator shows."""
        return self._control

    def of_module(self, module: str) -> str:
        """What the module shows to the node."""
        return self._of_module[module]

    def to_module(self, module: str) -> str:
        """What the node shows to the module."""
        return self._to_module[module]

    def secrets(self) -> list[str]:
        """All of them, for redaction."""
        return [self._control, *self._of_module.values(), *self._to_module.values()]

    def redacted(self, text: str) -> str:
        """The text without any of them."""
        for secret in self.secrets():
            text = text.replace(secret, "[redacted]")
        return text

    def control_file(self) -> Path | None:
        return self._folder / "authtok" if self._folder else None

    def file_of_module(self, module: str) -> Path | None:
        return self._folder / "middleware" / module / "host-authtok" if self._folder else None

    def file_to_module(self, module: str) -> Path | None:
        if self._folder is None:
            return None
        named = self._named[module]
        return Path(named) if named else self._folder / "middleware" / module / "authtok"

    def write(self) -> None:
        """Put every token into its file. Raises `InputError` naming a file that cannot be."""
        for module, token in self._of_module.items():
            _write_private(self.file_of_module(module), token)
            _write_private(self.file_to_module(module), self._to_module[module])
        _write_private(self.control_file(), self._control)

    def caller(self, headers: Mapping[str, str]) -> Caller:
        control = headers.get(CONTROL_HEADER.lower())
        module = headers.get(MODULE_HEADER.lower())
        if control is None and module is None:
            return OPEN
        if control is not None and module is not None:
            raise NodeError(401, "unauthorized", "show one token, not two")
        if control is not None:
            return self._operator(control)
        assert module is not None
        return self._module(module)

    def _operator(self, token: str) -> Caller:
        if not hmac.compare_digest(_digest(token), _digest(self._control)):
            raise NodeError(401, "unauthorized", f"the token in {CONTROL_HEADER} is not known")
        return OPERATOR

    def _module(self, token: str) -> Caller:
        given, found = _digest(token), ""
        for module, digest in self._digests.items():  # all of them: the time tells nothing
            if hmac.compare_digest(given, digest):
                found = module
        if not found:
            raise NodeError(401, "unauthorized", f"the token in {MODULE_HEADER} is not known")
        return Caller("module", module=found, actor=found)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _write_private(path: Path | None, token: str) -> None:
    """Replace the file as a whole, never following a link and never with a wider mode."""
    if path is None:
        return
    beside = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            beside.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(beside, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            os.write(descriptor, token.encode())
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except OSError as error:
        raise InputError(f"cannot write the token file {path}: {error.strerror}") from None
