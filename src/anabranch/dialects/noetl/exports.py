"""Which values of a step run its arcs and writes may ask for.

`iter` may hold a lot (the pages fetched so far). What nobody outside the pipeline reads need not
be recorded, so the texts of the templates outside are searched for names. One that is found and not
meant costs a few bytes; what is looked up under a name nobody can foresee takes everything along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from anabranch.expressions.port import Expression
from anabranch.net.net import Branch, Patch

_WORD = re.compile(r"[A-Za-z_]\w*")
#: `iter` and its other names, followed by something else than `.name` or `['name']`.
_ANY = re.compile(r"\b(?:iter|vars|step)\b(?!\s*(?:\.|\[\s*['\"]))")


def exported(branches: Iterable[Branch], patches: Iterable[Patch]) -> frozenset[str] | None:
    """The names that may be asked for; None where that can be any."""
    found: set[str] = set()
    for expression in _expressions(branches, patches):
        if _ANY.search(expression.text):
            return None
        found |= set(_WORD.findall(expression.text))
    return frozenset(found)


def _expressions(branches: Iterable[Branch], patches: Iterable[Patch]) -> Iterator[Expression]:
    for patch in patches:
        yield patch.value
    for branch in branches:
        for arc in branch.arcs:
            yield from (each for each in (arc.guard, arc.args) if each is not None)
            for patch in arc.patches:
                yield patch.value
