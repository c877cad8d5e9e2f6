"""Compiled definitions, by fingerprint.

A run names its definition by fingerprint; the source lies in the store and is compiled again when
an engine needs it. How to compile is handed in, so that nothing here knows the dialects.

The nets used last are kept, up to a number and a size of their sources. One that a run in memory
holds is found as long as it is held, however many others were used since: it is compiled once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

from anabranch.errors import NotFound
from anabranch.net.net import Net
from anabranch.store.ports import Definition, Definitions

Compile = Callable[[Definition], Net]


NETS_MAX = 512
SOURCE_CHARS_MAX = 16 * 1024 * 1024


class Nets:
    """Threads may share one."""

    def __init__(
        self,
        definitions: Definitions,
        compile_definition: Compile,
        nets_max: int = NETS_MAX,
        source_chars_max: int = SOURCE_CHARS_MAX,
    ) -> None:
        self._definitions = definitions
        self._compile = compile_definition
        self._nets_max = nets_max
        self._source_chars_max = source_chars_max
        self._held: WeakValueDictionary[str, Net] = WeakValueDictionary()
        self._recent: OrderedDict[str, tuple[Net, int]] = OrderedDict()  # with the size of its text
        self._chars = 0
        self._lock = threading.Lock()

    def get(self, fingerprint: str) -> Net:
        net = self.known(fingerprint)
        if net is None:
            definition = self._definitions.definition(fingerprint)
            if definition is None:
                raise NotFound(f"the store has no definition {fingerprint}")
            net = self._compile(definition)
            self._keep(fingerprint, net, len(definition.source))
        return net

    def known(self, fingerprint: str) -> Net | None:
        """The net, if nothing has to be read or compiled for it."""
        with self._lock:
            if fingerprint in self._recent:
                self._recent.move_to_end(fingerprint)
            return self._held.get(fingerprint)

    def put(self, definition: Definition, net: Net) -> None:
        if self.known(net.fingerprint) is None:
            self._definitions.put_definition(definition)
            self._keep(net.fingerprint, net, len(definition.source))

    def _keep(self, fingerprint: str, net: Net, chars: int) -> None:
        with self._lock:
            self._held[fingerprint] = net
            if fingerprint in self._recent:  # another thread was faster
                return
            self._recent[fingerprint] = net, chars
            self._chars += chars
            while len(self._recent) > self._nets_max or self._chars > self._source_chars_max:
                _, (_, gone) = self._recent.popitem(last=False)
                self._chars -= gone
