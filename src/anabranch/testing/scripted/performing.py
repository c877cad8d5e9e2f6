"""What a step really does when nobody scripted it.

Work that only computes is done: `noop` says so, `python` code runs in this very process and takes
no virtual time, `wait` passes virtual time. Everything else would reach outside, which a test in
virtual time must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.faults import misconfigured
from anabranch.work.kinds import inputs
from anabranch.work.kinds.noop import Noop
from anabranch.work.kinds.python.context import layers_of
from anabranch.work.kinds.python.performer import as_builtin, code_of, libraries, run_inline
from anabranch.work.kinds.wait import WaitPerformer
from anabranch.work.port import Parked, Task

_noop = Noop()
_wait = WaitPerformer()


def perform_inside(task: Task) -> Answer | Parked | None:
    """The answer of work that stays inside the process; None for work that reaches outside."""
    match task.kind:
        case "noop":
            return _noop.perform_now(task)
        case "wait":
            return _wait.perform_now(task)
        case "python":
            return _python(task)
        case _:
            return None


def _python(task: Task) -> Answer:
    try:
        code = code_of(task.inputs)
        args = _copied(inputs.mapping(task.inputs.get("args"), "args"))
        libs = libraries(task.inputs.get("libs"))
        layers = _copied(layers_of(task.names))
    except InputError as error:
        return misconfigured(error)
    return run_inline(code, args, libs=libs, layers=layers, name=task.step)


def _copied(value: Mapping[str, Any]) -> dict[str, Any]:
    """Code gets what a process of its own would get: a copy, so that nothing of ours changes."""
    try:
        encoded = msgspec.json.encode(value, enc_hook=as_builtin)
        return msgspec.json.decode(encoded, type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the arguments or the context are not JSON: {error}") from None
