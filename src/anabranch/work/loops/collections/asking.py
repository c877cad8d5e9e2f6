"""Asking ordinary work for the items of a collection: a query, a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anabranch.kernel.values import Answer
from anabranch.work.loops.collections.port import CollectionError, Descriptor, Keyring
from anabranch.work.port import Performer, Task
from anabranch.work.secrets import values
from anabranch.work.secrets.oauth2 import KeychainError


def asked(
    performers: Mapping[str, Performer],
    kind: str,
    purpose: str,
    wrong: str,
    led_by: tuple[str, ...] = (),
) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """How to get the result of work of this kind for its inputs; `wrong` begins what it raises."""
    performer = performers.get(kind)
    if performer is None:
        raise CollectionError(f"there is no work of kind '{kind}' here to {purpose} with")

    async def ask(given: Mapping[str, Any]) -> Any:
        task = Task(
            run="", step="", job="", attempt=1, key="", kind=kind, inputs=given, led_by=led_by
        )
        answer = await performer.perform(task)
        if isinstance(answer, Answer) and answer.fault is None:
            return answer.result
        fault = answer.fault if isinstance(answer, Answer) else None
        why, heals = ("it parked", False) if fault is None else (fault.message, fault.retryable)
        raise CollectionError(f"{wrong}: {why}", retryable=heals)

    return ask


def entry_of(descriptor: Descriptor, ring: Keyring) -> Any:
    """The keychain entry that the descriptor names; None where it names none."""
    name = descriptor.get("auth")
    if name is None:
        return None
    if name not in ring:
        raise CollectionError(f"the keychain has no entry '{name}'")
    try:
        return ring[name]
    except KeychainError as error:
        raise CollectionError(error.message, retryable=error.retryable) from None


async def look_up(descriptor: Descriptor, ring: Keyring) -> None:
    """Have the credential that the descriptor names at hand, where it is no entry."""
    name = descriptor.get("auth")
    if isinstance(ring, values.Keyring) and isinstance(name, str):
        await ring.fetch(name)
