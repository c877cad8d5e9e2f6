"""Anabranch: ask many parties at once, go on with the answers you need, in time, durably.

    import anabranch

    result = anabranch.run("playbook.yaml", {"city": "Gdynia"})
    print(result.status, result.result)

`Engine` embeds the same thing in an asyncio program, `@tool` makes a Python function a kind of
task, `anabranch.testing` plays and simulates workflows in virtual time.
"""

from anabranch.app import Engine, RunResult, run, tool
from anabranch.errors import (
    AnabranchError,
    DefinitionError,
    InputError,
    NotFound,
    Refused,
    StoreError,
    StoreInUse,
    UnusableStore,
)
from anabranch.settings import Settings
from anabranch.work.callables import Toolbox

__version__ = "0.1.0"

__all__ = [
    "AnabranchError",
    "DefinitionError",
    "Engine",
    "InputError",
    "NotFound",
    "Refused",
    "RunResult",
    "Settings",
    "StoreError",
    "StoreInUse",
    "Toolbox",
    "UnusableStore",
    "__version__",
    "run",
    "tool",
]
