"""Markets for the tests of hosted work, closed in order at their end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from .stage import Make, Stage


@pytest.fixture
def made() -> Iterator[Make]:
    stages: list[Stage] = []

    def make(prices: Mapping[str, int | None], **config: Any) -> Stage:
        stages.append(Stage(prices, **config))
        return stages[-1]

    yield make
    for stage in stages:
        stage.close()
