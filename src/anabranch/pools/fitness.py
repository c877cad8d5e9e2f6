"""Whether a process of a cluster can do the jobs of this engine: the same Python, the same us.

Definitions and values travel as their own formats, but what an expression or a task means is in the
code. So the versions of Anabranch must be equal; of Python, the first two numbers.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from anabranch.version import __version__


def engine_versions() -> dict[str, str]:
    """What this process is, as far as it must be the same there."""
    return {"python": platform.python_version(), "anabranch": __version__}


def misfit(who: str, said: Mapping[str, str], engine: Mapping[str, str]) -> str:
    """Why the process `who`, which says this of itself (see `worker_entry.probe`), cannot do the
    jobs of the engine; "" where it can."""
    theirs, ours = said.get("python", "?"), engine["python"]
    if _minor(theirs) != _minor(ours):
        return f"{who} has Python {theirs}, the engine has Python {ours}"
    theirs, ours = said.get("anabranch", "?"), engine["anabranch"]
    if theirs != ours:
        return f"{who} has Anabranch {theirs}, the engine has Anabranch {ours}"
    return ""


def absent(who: str, error: str) -> str:
    """The same where it cannot even be asked."""
    return f"{who} has no Anabranch ({error}): install anabranch=={__version__} there"


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
