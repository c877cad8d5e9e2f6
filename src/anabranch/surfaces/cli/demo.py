"""`demo`."""

from __future__ import annotations

import argparse

from anabranch.settings import Settings


async def demo(options: argparse.Namespace, settings: Settings) -> int:
    raise NotImplementedError
