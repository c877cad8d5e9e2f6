"""Compiled definitions, by fingerprint.

A run names its definition by fingerprint; the source lies in the store and is compiled again when
an engine needs it. How to compile is handed in, so that nothing here knows the dialects.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.errors import NotFound
from anabranch.net.net import Net
from anabranch.store.ports import Definition, Definitions

Compile = Callable[[Definition], Net]


class Nets:
    def __init__(self, definitions: Definitions, compile_definition: Compile) -> None:
        self._definitions = definitions
        self._compile = compile_definition
        self._cache: dict[str, Net] = {}

    def get(self, fingerprint: str) -> Net:
        net = self._cache.get(fingerprint)
        if net is None:
            definition = self._definitions.definition(fingerprint)
            if definition is None:
                raise NotFound(f"the store has no definition {fingerprint}")
            net = self._cache[fingerprint] = self._compile(definition)
        return net

    def known(self, fingerprint: str) -> Net | None:
        """The net, if nothing has to be read or compiled for it."""
        return self._cache.get(fingerprint)

    def put(self, definition: Definition, net: Net) -> None:
        if net.fingerprint not in self._cache:
            self._definitions.put_definition(definition)
            self._cache[net.fingerprint] = net
