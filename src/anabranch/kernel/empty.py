"""The shared empty mapping.

A state has some thirty mappings, and most runs use a handful. One that nothing was put into yet is
`EMPTY`, the same object in every run, so it costs its run nothing. `|=` puts something in:

    state.gates |= {gate.id: gate}

In the place of `EMPTY` it leaves a new dict, as `|=` does with a frozenset; a dict of the run's own
it changes in place. Every other way to put something into `EMPTY` raises.
"""

from __future__ import annotations

from typing import Any, NoReturn


class EmptyDict(dict[Any, Any]):
    """A dict that stays empty. To readers and to encoders it is a dict like any other."""

    __slots__ = ()

    def __init__(self) -> None:  # it is filled by no argument either
        super().__init__()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this empty mapping is shared by all runs: put entries in with `|=`")

    __setitem__ = setdefault = update = _refuse
    __ior__ = dict.__or__  # type: ignore[assignment]


EMPTY = EmptyDict()
