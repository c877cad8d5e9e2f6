"""Anabranch: ask many parties at once, go on with the answers you need, in time, durably.

    import anabranch

    result = anabranch.run("playbook.yaml", {"city": "Gdynia"})
    print(result.status, result.result)

`Engine` embeds the same thing in an asyncio program, `@tool` makes a Python function a kind of
task, `anabranch.testing` plays and simulates workflows in virtual time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.errors import (
    AnabranchError,
    DefinitionError,
    InputError,
    MissingRequirements,
    NotFound,
    Refused,
    StoreError,
    StoreInUse,
    UnusableStore,
)
from anabranch.version import __version__

if TYPE_CHECKING:
    from anabranch.app import Engine, RunResult, run, tool
    from anabranch.settings import Settings
    from anabranch.settings_file import load_settings
    from anabranch.surfaces.engine_client import Client
    from anabranch.work.kinds.callables import Toolbox

__all__ = [
    "AnabranchError",
    "Client",
    "DefinitionError",
    "Engine",
    "InputError",
    "MissingRequirements",
    "NotFound",
    "Refused",
    "RunResult",
    "Settings",
    "StoreError",
    "StoreInUse",
    "Toolbox",
    "UnusableStore",
    "__version__",
    "load_settings",
    "run",
    "tool",
]

#: Loaded when they are first asked for: `anabranch --version` needs no engine.
_LATER = {
    "Client": "anabranch.surfaces.engine_client",
    "Engine": "anabranch.app",
    "RunResult": "anabranch.app",
    "Settings": "anabranch.settings",
    "Toolbox": "anabranch.work.kinds.callables",
    "load_settings": "anabranch.settings_file",
    "run": "anabranch.app",
    "tool": "anabranch.app",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
