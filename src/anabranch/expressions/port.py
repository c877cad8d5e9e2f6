"""What an expression language offers to a net.

A net holds compiled expressions; the kernel evaluates them against the names it lays out (see
`kernel.routing`) and records the result in an event, so that replay evaluates nothing. An
implementation is pure: same names, same value. Whatever goes wrong inside becomes an
`ExpressionError` whose message quotes the expression.

An expression that knows what it reads says so in `reads`, a set of paths such as `("ctx", "total")`
or `("steps", "quote")`; a path that ends early means all below it. Without the attribute (or with
None) it is taken to read everything, which is always right and sometimes too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

Paths = frozenset[tuple[str, ...]]
NOTHING: Paths = frozenset()


class Expression(Protocol):
    @property
    def text(self) -> str:
        """The source as the author wrote it, for messages and drawings."""
        ...

    def evaluate(self, names: Mapping[str, Any]) -> Any: ...


class Constant(msgspec.Struct, frozen=True):
    """A value that needs no evaluation."""

    value: Any
    reads: ClassVar[Paths] = NOTHING

    @property
    def text(self) -> str:
        return repr(self.value)

    def evaluate(self, names: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the port's signature
        return self.value


class Envelope:
    """A mapping around a value. Its keys are those of the mapping; whoever takes it as a whole,
    under a name that a language lists as one of an envelope, gets `whole`."""

    __slots__ = ()

    @property
    def whole(self) -> Any:
        raise NotImplementedError
