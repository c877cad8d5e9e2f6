"""A port that a test was given stays its own until it listens there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from free_ports import free_ports

SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_no_other_process_is_given_the_same_port() -> None:
    ours = free_ports(3)
    assert len(set(ours)) == 3
    code = f"import free_ports; print([free_ports._claim(port) for port in {ours}])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[False, False, False]"


@pytest.mark.skipif(not SYSTEM.exists(), reason="Linux says which ports the system gives out")
def test_the_system_gives_none_of_them_to_a_connection() -> None:
    first, last = map(int, SYSTEM.read_text().split())
    assert not set(free_ports(100)) & set(range(first, last + 1))
