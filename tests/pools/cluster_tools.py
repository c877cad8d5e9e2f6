"""Callables that the engine and the processes of a cluster have."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import anabranch


@anabranch.tool("cluster_double")
def double(n: int) -> int:
    return 2 * n


@anabranch.tool("cluster_triple", blocking=False)
def triple(n: int) -> int:
    return 3 * n


@anabranch.tool("cluster_later")
async def later(n: int) -> int:
    await asyncio.sleep(0)
    return n + 1


@anabranch.tool("cluster_echo")
def echo(value: Any) -> Any:
    return value


@anabranch.tool("cluster_odd", blocking=False)
def odd(n: int) -> int:
    if n % 2:
        raise ValueError(f"{n} is odd")
    return n


@anabranch.tool("cluster_loud")
def loud(key: str) -> None:
    logging.getLogger("anabranch.pools").warning("the key is %s", key)
    raise ValueError(f"cannot use {key}")
