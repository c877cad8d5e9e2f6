"""Where the jobs of one kind are counted; a run in memory has those of its jobs at work."""

from __future__ import annotations

from anabranch.runtime.metrics.registry import Counter, Histogram


class JobCounters:
    __slots__ = ("_ended", "again", "endings", "name", "seconds", "started")

    def __init__(
        self, name: str, started: Counter, retries: Counter, seconds: Histogram, ended: Counter
    ) -> None:
        self.name = name
        self.started = started.cell((name,))
        self.again = retries.cell((name,))
        self.seconds = seconds.series((name,))
        self._ended = ended
        self.endings: dict[str, list[float]] = {}

    def ending(self, how: str) -> list[float]:
        """Where those that end so are counted; `endings` has the ones that were asked for."""
        found = self.endings[how] = self._ended.cell((self.name, how))
        return found
