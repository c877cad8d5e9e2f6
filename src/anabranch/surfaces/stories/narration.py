"""What a story says while it is played: a line for each thing that happened, with its time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from anabranch.surfaces.cli.output import render

_NAME_WIDTH = 9


class Told(NamedTuple):
    """`at` is in seconds since the run was submitted; None before that."""

    at: float | None
    who: str
    arrow: str
    text: str


class Narrator:
    """With `quiet` it only remembers, for `--json`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.told: list[Told] = []
        self.began = time.time()
        self.submitted: float | None = None  # when the run of now was

    def title(self, text: str) -> None:
        if not self._quiet:
            bold, plain = ("\x1b[1m", "\x1b[0m") if render.wants_colour() else ("", "")
            print(f"\n{bold}── {text}{plain}", flush=True)

    def line(self, text: str) -> None:
        if not self._quiet:
            print(render.clean(text), flush=True)

    def tell(self, who: str, arrow: str, text: str, at: float | None = None) -> None:
        """`at` is the instant at which it happened, where that is known."""
        since = None
        if self.submitted is not None:
            since = max(0.0, (at if at is not None else time.time()) - self.submitted)
        self.told.append(Told(since, who, arrow, text))
        shown = "         " if since is None else f"{since:7.3f} s"
        self.line(f"  {shown}  {who:<{_NAME_WIDTH}} {text}")

    def verdict(self, laws: Sequence[Any]) -> None:
        self.title("The laws")
        for law in laws:
            mark = "✓" if law.holds else "✗"
            self.line(f"  {mark} {law.name}" + ("" if law.holds else f": {law.detail}"))

    def facts(self) -> list[dict[str, Any]]:
        return [
            {"at": None if one.at is None else round(one.at, 3), "who": one.who,
             "arrow": one.arrow, "text": one.text}
            for one in self.told
        ]  # fmt: skip
