"""Pickles in a driver: values, and no programs.

The libraries of clusters unpickle what a cluster sends, and a pickle calls whatever it names. So a
driver lets pickles name a few classes only. What carries an answer of a job names none: answers are
bytes of ours.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from typing import Any

PLAIN = (bool, bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)


class HostilePickle(AttributeError):
    """A pickle names what is none of its business. As if that did not exist: libraries go on."""


def restrict_pickles(
    classes: Iterable[type[Any]], functions: Iterable[tuple[str, str]] = ()
) -> None:
    """From now on, and for as long as this process lives, pickles can name these classes and
    functions (module and name), plain values and the exceptions of Python, and nothing else. An
    audit hook hears of every name that any unpickler of this process looks up, and nothing removes
    it."""
    known = [*classes, *PLAIN, *exceptions_of(builtins)]
    names = {*functions, *((each.__module__, each.__qualname__) for each in known)}

    def check(event: str, details: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and tuple(details) not in names:
            module, name = (str(part)[:100] for part in details)
            raise HostilePickle(f"a pickle of the cluster names {module}.{name}")

    sys.addaudithook(check)


def exceptions_of(module: Any) -> list[type[BaseException]]:
    """Those that a module has made."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, BaseException)
        and each.__module__ == module.__name__
    ]
