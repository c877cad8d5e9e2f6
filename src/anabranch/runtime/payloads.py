"""Large results travel as refs.

A result above the limit is kept by its hash beside the log, and what goes into the log, the context
and the guards is a small stand-in: where it is, how big, a preview, and the small fields of a
mapping, so that a guard on `count` still works. Jobs get the whole value back, wherever in their
arguments, the context or the results the stand-in was put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from anabranch.errors import AnabranchError
from anabranch.kernel.evolve_loops import MANIFEST
from anabranch.kernel.tracker import in_order
from anabranch.work.payloads import PLACE, REF, decoded, encoded, hash_of, is_ref, purged
from anabranch.work.results import ResultPolicy, seen_by_tasks, stand_in

_POLICY = ResultPolicy()  # of results for which nobody has said anything


class TooLarge(AnabranchError):
    """A result that is too large even for the payload store."""


class Light(NamedTuple):
    """A result fit to travel, and the payload that is to be stored for it."""

    result: Any
    sha256: str = ""  # nothing was put aside
    content: bytes = b""


def lighten(result: Any, inline_max: int, result_max: int | None = None) -> Light:
    """The result, or its stand-in when it is larger than `inline_max`.

    Raises `TooLarge` when it is larger than `result_max`, and what the encoder raises for values
    that are not JSON.
    """
    if result is None or isinstance(result, bool | int | float):
        return Light(result)
    content = encoded(result)
    if len(content) <= inline_max:
        return Light(result)
    if result_max is not None and len(content) > result_max:
        raise TooLarge(
            f"the result has {len(content):,} bytes, over the limit of "
            f"{result_max:,} (setting ANABRANCH_RESULT_BYTES_MAX)"
        )
    return Light(stand_in(_POLICY, result, content, content), hash_of(content), content)


def holds_ref(value: Any) -> bool:
    """Is there a stand-in anywhere in it? Only containers are looked into."""
    if isinstance(value, Mapping):
        if REF in value and is_ref(value):
            return True
        return any(holds_ref(each) for each in value.values() if isinstance(each, dict | list))
    if isinstance(value, list):
        return any(holds_ref(each) for each in value if isinstance(each, dict | list))
    return False


def resolve(value: Any, fetch: Callable[[str], bytes | None]) -> Any:
    """The value with every stand-in in it replaced by what it stands for."""
    if not holds_ref(value):
        return value
    if isinstance(value, list):
        return [resolve(each, fetch) for each in value]
    if not is_ref(value):
        whole = {key: resolve(each, fetch) for key, each in value.items()}
        return _with_results(whole) if MANIFEST in whole else whole
    sha256 = str(value[REF]["ref"]).removeprefix(PLACE)
    content = fetch(sha256)
    if content is None:
        raise purged(sha256)
    return decoded(content)


def _with_results(whole: dict[str, Any]) -> dict[str, Any]:
    """A loop whose results were too large to travel gives them as any other loop does."""
    manifest = whole.pop(MANIFEST)
    parts = [(part["first"], part["part"]) for part in manifest["parts"]]
    return {"results": in_order(parts, manifest.get("items", 0)), **whole}


class Resolved(Mapping[str, Any]):
    """A mapping whose values are resolved when they are looked at.

    What stood for a larger value still answers to `_ref`, `_preview` and their companions."""

    def __init__(self, values: Mapping[str, Any], fetch: Callable[[str], bytes | None]) -> None:
        self._values = values
        self._fetch = fetch

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        return seen_by_tasks(resolve(value, self._fetch), value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values
