"""From the options of a pool to its backend. Dask and Ray are imported when a pool names them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from anabranch.errors import InputError
from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import PoolBackend

#: Engine → (the package that it needs, our module, its class).
_ENGINES = {
    "dask": ("distributed", "anabranch.pools.dask.process", "DaskProcess"),
    "ray": ("ray", "anabranch.pools.ray.backend", "RayBackend"),
}


def require_installed(options: PoolOptions) -> None:
    """Refuse a pool whose engine is not installed here."""
    package = _ENGINES[options.engine][0]
    if find_spec(package) is None:
        engine = options.engine.capitalize()
        raise InputError(
            f"pool {options.name!r:.100} is on {engine}, which is not installed here: "
            f"pip install 'anabranch[{options.engine}]'",
            code="missing_extra",
        )


def make_backend(options: PoolOptions, **more: Any) -> PoolBackend:
    """Not connected yet. Raises `InputError` where the engine is not installed."""
    require_installed(options)
    _, module, name = _ENGINES[options.engine]
    backend: PoolBackend = getattr(import_module(module), name)(options, **more)
    return backend
