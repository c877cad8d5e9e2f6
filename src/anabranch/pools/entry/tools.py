"""Modules of callables, on both sides: which ones the engine has, and whether a process of the
cluster has the same.

Callables travel by name. A module is imported once per process, and its source compared with that
of the engine by a hash: another version would do other work under the same name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from anabranch.errors import AnabranchError, InputError
from anabranch.pools.assignment import Tools
from anabranch.work.values.payloads import hash_of

SHORT = 12  # digits of a hash in messages


class ToolsUnfit(AnabranchError):
    """This process lacks a module, or has another version of it."""

    code = "tools"


def tools_to_send(modules: Iterable[str]) -> list[Tools]:
    """The modules as this process has them; raises `InputError` for one that cannot be found."""
    found = []
    for module in dict.fromkeys(modules):
        try:
            found.append(Tools(module=module, sha256=_hash_of(_file_of(module))))
        except Exception as error:  # whatever its package does when it is imported
            raise InputError(f"module {module:.100}: {error!r}", code="tools") from None
    return found


class ToolModules:
    """The modules of a process, each with the hash that its source had when it was imported."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._imported: dict[str, str] = {}
        self._lock = threading.Lock()  # two jobs that need the same module

    def require(self, tools: Iterable[Tools]) -> None:
        """Import them; raises `ToolsUnfit` where one is missing, broken or another version."""
        with self._lock:
            for each in tools:
                if each.module not in self._imported:
                    self._imported[each.module] = self._import(each)
                self._compare(each, self._imported[each.module])

    def _import(self, wanted: Tools) -> str:
        name = wanted.module
        try:
            found = _hash_of(_file_of(name))
            if wanted.sha256 and found:
                self._compare(wanted, found)  # what another version does when imported is unwanted
            importlib.import_module(name)
        except ToolsUnfit:
            raise
        except Exception as error:  # whatever the module does when it is imported
            raise ToolsUnfit(self._why(name, error)) from None
        return found

    def _why(self, name: str, error: Exception) -> str:
        if _is_missing(name, error):
            return (
                f"worker {self._worker} has no module {name}: install it there or put its folder "
                "on PYTHONPATH"
            )
        return f"worker {self._worker} cannot import module {name}: {type(error).__name__}: {error}"

    def _compare(self, wanted: Tools, found: str) -> None:
        if not wanted.sha256 or found == wanted.sha256:
            return
        file = _file_of(wanted.module)
        said = (
            f"worker {self._worker} has another version of module {wanted.module}: "
            f"{found[:SHORT] or 'without a file'} in {file}, and the engine has "
            f"{wanted.sha256[:SHORT]}"
        )
        if _hash_of(file) == wanted.sha256:
            raise ToolsUnfit(f"{said}; the file is the right one by now: restart the worker")
        raise ToolsUnfit(f"{said}: install the same version there")


def _file_of(module: str) -> Path | None:
    """Where its source is; None where it has none. Raises what the packages above it raise, and
    `ModuleNotFoundError` where there is no such module."""
    known = sys.modules.get(module)
    if known is not None:
        origin = getattr(known, "__file__", None)
        return Path(origin) if origin else None
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    return Path(spec.origin) if spec.origin and spec.has_location else None


def _is_missing(module: str, error: BaseException) -> bool:
    """The module itself, or a package above it; and not something that it imports."""
    name = getattr(error, "name", None) or ""
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{name}.")


def _hash_of(file: Path | None) -> str:
    try:
        return hash_of(file.read_bytes()) if file is not None else ""
    except OSError:
        return ""
