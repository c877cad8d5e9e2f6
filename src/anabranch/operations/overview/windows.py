"""How far back an overview looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Window: TypeAlias = Literal["1h", "24h", "7d", "30d"]
#: How far back, and how long one slot of the histogram is, in milliseconds.
WINDOWS: Mapping[Window, tuple[int, int]] = {
    "1h": (3_600_000, 60_000),
    "24h": (86_400_000, 1_800_000),
    "7d": (7 * 86_400_000, 3 * 3_600_000),
    "30d": (30 * 86_400_000, 12 * 3_600_000),
}
DEFAULT_WINDOW: Window = "24h"
