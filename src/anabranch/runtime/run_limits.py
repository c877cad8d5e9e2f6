"""How large one run may become: a definition that feeds itself meets a limit that says its name."""

from __future__ import annotations

import msgspec

from anabranch.runtime.live_run import LiveRun
from anabranch.settings import Settings


class RunLimits(msgspec.Struct, frozen=True):
    """The settings `run_steps_max` and `run_log_bytes_max`."""

    steps_max: int = 1_000_000
    log_bytes_max: int = 1024 * 1024 * 1024

    @classmethod
    def of(cls, settings: Settings) -> RunLimits:
        return cls(settings.run_steps_max, settings.run_log_bytes_max)

    def passed(self, live: LiveRun) -> str:
        """Which limit the run is beyond, in words; "" where it is within all of them."""
        steps = live.state.next_token - 1
        if steps > self.steps_max:
            return _said("step runs", steps, "run_steps_max", self.steps_max)
        if live.log_bytes > self.log_bytes_max:
            return _said("bytes of log", live.log_bytes, "run_log_bytes_max", self.log_bytes_max)
        return ""


def _said(what: str, value: int, setting: str, most: int) -> str:
    return (
        f"the run has {value:,} {what}, which is too much; the limit {setting} is {most:,}: "
        "look for a way back in the definition that has no end, or raise the limit"
    )
