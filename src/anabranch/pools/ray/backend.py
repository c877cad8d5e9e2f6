"""A pool on Ray: the connection is in a driver, because a program does not outlive the Ray cluster
that it is connected to."""

from __future__ import annotations

from types import MappingProxyType

from anabranch.pools.driver.backend import DriverBackend


class RayBackend(DriverBackend):
    engine = "ray"
    module = "anabranch.pools.ray.driver"
    frame_bytes = 64 * 1024  # Ray copies larger arguments twice
    #: A client that is gone is gone.
    environment = MappingProxyType(
        {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    )
