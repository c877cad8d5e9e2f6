"""Which credentials a worker may ask for: those that the recorded task looks up, and no others.

What a template names is known from the definition. A name that is worked out has to be one that the
definition or the input of the run names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.errors import Refused
from anabranch.net.net import Net, Step, Work
from anabranch.net.program import Iteration, Program
from anabranch.net.reads import keychain_names
from anabranch.work.secrets.credential_entries import MANAGED, credential_of


def require_credential(net: Net, step: str, name: str, named: Callable[[str], bool]) -> None:
    """Raises `Refused` where no task of the step looks this credential up."""
    names, worked_out = _looked_up(net.steps[step])
    for entry in net.keychain:
        if entry.get("kind") in MANAGED and (worked_out or entry["name"] in names):
            meant = _meant(entry)
            names |= {meant} if isinstance(meant, str) else set()
            worked_out = worked_out or not isinstance(meant, str | None)
    if name in names or (worked_out and named(name)):
        return
    raise Refused(
        f"no task of step {step!r} looks up the credential {name[:100]!r}; a name that is worked "
        "out has to be in the definition or the input of the run",
        code="credential_refused",
    )


def _looked_up(step: Step) -> tuple[frozenset[str], bool]:
    names, worked_out = keychain_names(step.work)
    reads_context = step.work is not None and "python" in set(_kinds(step.work))
    return names, worked_out or reads_context  # code can look at every entry


def _kinds(work: Work) -> Iterator[str]:
    yield work.kind
    program = work.program.program if isinstance(work.program, Iteration) else work.program
    for task in program.every_task() if isinstance(program, Program) else ():
        yield task.kind


def _meant(entry: Mapping[str, Any]) -> Any:
    """The credential that an entry stands for: its name, None, or an expression that gives it."""
    given = entry.get("credential")
    return given if hasattr(given, "evaluate") else credential_of(entry)
