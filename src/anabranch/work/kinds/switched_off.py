"""Kinds of work that the operator has switched off (`--no-inline shell,python`).

Whoever switches off `shell` or `python` means that no code of a definition is run: the kinds that
run it in another way go with them.

A definition that needs one is refused when it is checked or started, and a recorded run is left as
it is. What comes here all the same (a loop over a query, a job of a worker) fails for good.
"""

from __future__ import annotations

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.net.problems import did_you_mean
from anabranch.work.faults import fault
from anabranch.work.port import Task

STANDARD_KINDS = (
    *("noop", "python", "http", "shell", "script", "container"),
    *("sqlite", "postgres", "duckdb", "transfer"),
    *("nats", "gcs", "secrets", "artifact", "wait"),
)
#: Those that an operator may switch off: they run code, read files or ask others.
SWITCHABLE_KINDS = tuple(kind for kind in STANDARD_KINDS if kind not in ("noop", "wait"))
#: Kinds that run what a definition says, beside `shell` and `python`.
RUN_CODE = ("script", "container")


def switched_off(setting: str, kinds: tuple[str, ...]) -> frozenset[str]:
    """The kinds that the setting `no_inline` names; they must be among `kinds`."""
    words = setting.replace(",", " ").split()
    for word in words:
        if word not in kinds:
            hint = did_you_mean(word, kinds)
            known = f"it takes {', '.join(kinds)}"
            raise InputError(
                f"no_inline (ANABRANCH_NO_INLINE, --no-inline): {word!r} is no kind of work that "
                f"can be switched off; {hint or known}",
                code="no_inline",
            )
    implied = [kind for kind in RUN_CODE if kind in kinds and {"shell", "python"} & {*words}]
    return frozenset([*words, *implied])


def why_off(kind: str) -> str:
    return f"this process does no work of kind '{kind}' (setting no_inline, --no-inline)"


class SwitchedOff:
    """Performs nothing, and says why."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    async def perform(self, _task: Task) -> Answer:
        return fault("config", why_off(self._kind), code="KIND_OFF")
