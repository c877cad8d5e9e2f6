"""Configuration in layers: the files of a folder in order of name, one folder after the other.

Objects are merged key by key; every other value of a later layer replaces the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.files import read_limited

LAYER_BYTES = 1024 * 1024
DEPTH_MAX = 64


def merged(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """`layer` over `base`; neither is changed."""
    out = dict(base)
    for key, value in layer.items():
        before = out.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            out[key] = merged(before, value)
        else:
            out[key] = value
    return out


def read_layers(folders: Iterable[Path]) -> dict[str, Any]:
    """All `*.json` files of these folders, the later over the earlier. A folder that is not there
    has no layers; a file that is no JSON object is refused by name."""
    out: dict[str, Any] = {}
    for folder in folders:
        for file in _files(folder):
            out = merged(out, _read(file))
    return out


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(".json"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(
            f"cannot read the configuration folder {folder}: {error.strerror}", code="config_layer"
        ) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(read_limited(file, LAYER_BYTES), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not a JSON object: {error}", code="config_layer") from None
    except RecursionError:
        raise InputError(f"{file} is nested too deeply", code="config_layer") from None
    if _too_deep(value):
        raise InputError(f"{file} is nested more than {DEPTH_MAX} deep", code="config_layer")
    return value


def _too_deep(value: Any) -> bool:
    """Level by level, so that depth costs no stack."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
