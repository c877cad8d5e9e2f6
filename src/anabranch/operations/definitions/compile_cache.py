"""Compiled definitions by their text: one that is known is not compiled again.

A program starts the same definition many times, and compiling takes longer than a short run.
Compiling is a function of the text, the name it is known by and the tools that are registered (with
the arguments they take), and a net never changes, so starts can share it.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

from anabranch.dialects.port import Compiled, RegisteredTool
from anabranch.dialects.registry import compile_source

DEFINITIONS_MAX = 512
TEXT_BYTES_MAX = 8 * 1024 * 1024
LARGE = 64 * 1024  # of a longer text a third of the time would go into looking for garbage

_Key = tuple[str | bytes, str, frozenset[RegisteredTool], bool]


class CompileCache:
    """Bounded by number and by the size of the texts; the one used longest ago goes first."""

    def __init__(
        self, definitions_max: int = DEFINITIONS_MAX, text_bytes_max: int = TEXT_BYTES_MAX
    ) -> None:
        self._definitions_max = definitions_max
        self._text_bytes_max = text_bytes_max
        self._known: OrderedDict[_Key, Compiled] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def compile(
        self,
        text: str | bytes,
        *,
        file: str,
        tools: Iterable[RegisteredTool],
        any_tool: bool = False,
    ) -> Compiled:
        key = (text, file, frozenset(tools), any_tool)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        with _collector.spared() if len(text) > LARGE else nullcontext():
            compiled = compile_source(text, file=file, tools=key[2], any_tool=any_tool)
        self._keep(key, compiled)
        return compiled

    def knows(self, text: str | bytes, *, file: str, tools: Iterable[RegisteredTool]) -> bool:
        """Whether `compile` would have it at once."""
        return (text, file, frozenset(tools), False) in self._known

    def _keep(self, key: _Key, compiled: Compiled) -> None:
        if compiled.net is None or len(key[0]) > self._text_bytes_max:
            return
        with self._lock:
            if key not in self._known:
                self._known[key] = compiled
                self._bytes += len(key[0])
            while len(self._known) > self._definitions_max or self._bytes > self._text_bytes_max:
                (text, *_), _ = self._known.popitem(last=False)
                self._bytes -= len(text)


class _Collector:
    """Compiling makes a large structure and hardly any garbage: the collector of this process would
    look through all of it again and again. It waits meanwhile, for whatever compiles at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sparing = 0

    @contextmanager
    def spared(self) -> Iterator[None]:
        with self._lock:
            ours = self._sparing > 0 or gc.isenabled()
            if ours:  # else somebody else has switched it off
                self._sparing += 1
                gc.disable()
        try:
            yield
        finally:
            with self._lock:
                if ours:
                    self._sparing -= 1
                    if not self._sparing:
                        gc.enable()


_collector = _Collector()

#: Of this process. What it holds can be worked out again at any time.
CACHE = CompileCache()
