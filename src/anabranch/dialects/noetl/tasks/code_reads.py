"""What inline code may read of its run besides its inputs.

Code that says `context`, `ctx` or `workload` may look at anything in it; a `main` gets its
parameters from it by name.
Whoever asks what a step depends on (a redrive, which reuses what is not touched) is told so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.expressions.port import Expression, Paths

#: Names of code that hold everything, or a layer of it.
HOLDERS = frozenset({"context", "ctx", "workload"})
_WORD = re.compile(r"[A-Za-z_]\w*")


class CodeInputs(msgspec.Struct, frozen=True):
    """The inputs of a Python task, with what its code reads."""

    inner: Expression
    reads: Paths | None  # None: anything

    @property
    def text(self) -> str:
        return self.inner.text

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        return self.inner.evaluate(names)


def with_code_reads(inputs: Expression, code: Any) -> Expression:
    """`code` is the text as its author wrote it, or None where it is in a file."""
    words = frozenset(_WORD.findall(code)) if isinstance(code, str) else None
    given: Paths | None = getattr(inputs, "reads", None)
    if words is None or words & HOLDERS or given is None:
        return CodeInputs(inputs, None)
    if "main" not in words:
        return inputs
    return CodeInputs(inputs, given | {(word,) for word in words})
