"""Stand-ins for secrets in a play: nobody has the real ones there, and nothing is called with them.

{{ keychain.pg_main.password }}    the text "pg_main.password"
auth: pg_main                      a mapping in which every field is such a text
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.net.net import Net


class _Fields(Mapping[str, Any]):
    """The fields of one secret: whatever is asked for is there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, field: str) -> str:
        return f"{self._name}.{field}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return self._name


class StandInSecrets(Mapping[str, Any]):
    """A keychain that has every name."""

    def __getitem__(self, name: str) -> _Fields:
        return _Fields(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def stand_ins(net: Net) -> StandInSecrets | None:
    """For a definition whose work looks secrets up."""
    return StandInSecrets() if net.has_secrets else None
