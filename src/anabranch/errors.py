"""Every error Anabranch raises on purpose.

    AnabranchError
    ├── DefinitionError      a definition with problems, all of them, each with its position
    ├── ExpressionError      a guard or template that could not be evaluated
    ├── InputError           a value from outside that cannot be taken
    ├── Denied               whoever asks may not: no token, a wrong one, or too few scopes
    ├── Refused              the kernel's answer to a stimulus that does not fit the state
    │   └── MissingRequirements  the engine has not what the run needs; the run is as it was
    ├── LawBroken            a kernel law does not hold: a defect of ours, never the user's
    ├── NotFound             no such run, definition or payload
    └── StoreError
        ├── Conflict         another writer was first; nothing was written
        ├── DamagedRun       rows of one run are not what was written; the other runs are fine
        ├── StoreInUse       another engine owns this store
        └── UnusableStore    foreign, newer or corrupt file; it was left untouched

A `code` is for machines and stays stable; the message is for people and says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.net.problems import Problem


class AnabranchError(Exception):
    """Something Anabranch refuses to do, with the reason."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class DefinitionError(AnabranchError):
    """The definition cannot be run; `problems` lists everything that is wrong with it."""

    code = "definition"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ExpressionError(AnabranchError):
    code = "expression"


class InputError(AnabranchError):
    """A value from outside cannot be taken; nothing changed."""

    code = "input"


class Denied(AnabranchError):
    """Whoever asks may not do this; nothing changed."""

    code = "denied"


class Refused(AnabranchError):
    """The stimulus does not fit the state of the run; nothing changed."""

    code = "refused"


class MissingRequirements(Refused):
    """The engine does not have what the run needs; the run was left exactly as it is."""

    code = "missing_requirements"

    def __init__(self, message: str, missing: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)  # codes of what is not there, which name nothing of the run


class LawBroken(AnabranchError):
    code = "law"


class NotFound(AnabranchError):
    """There is no such run, definition, step or payload."""

    code = "not_found"

    def __init__(self, what: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what, code=code)
        self.what = what  # without the hint, which names a command


class StoreError(AnabranchError):
    """The store cannot be read or written; `code` says why."""

    code = "store"


class Conflict(StoreError):
    code = "conflict"


class DamagedRun(StoreError):
    """What the store holds of this run cannot be what was written."""

    code = "damaged_run"

    def __init__(self, run: str, what: str, how: str = "is damaged") -> None:
        self.run, self.what = run, what
        super().__init__(
            f"run {run or '?'} {how}: {what}. `anabranch store check` lists all damage; "
            "restore the store from a backup, or leave this run as it is: the others go on"
        )


class StoreInUse(StoreError):
    """Another engine owns this store; the message names its process."""

    code = "store_in_use"


class UnusableStore(StoreError):
    """The file is foreign, newer or corrupt. It was left untouched."""

    code = "unusable_store"
