"""The commands of docs/clusters.md, from no cluster to a run that outlives its scheduler, and the
two commands of examples/cluster: a shell runs them as they stand, with a real Dask cluster."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.surfaces.cli.parser import build
from free_ports import free_port
from hangs import HANG_SECONDS

from .pages import environment, part, try_page, with_free_ports

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clusters.md"
EXAMPLE = ROOT / "examples" / "cluster"
PORTS = ("8786", "8787", "8629")
PROGRAMS = Path(sys.executable).parent  # where `dask` is

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page is written for curl"),
]


@pytest.mark.soak  # tests/pools has a real cluster of its own
def test_every_command_of_the_page_says_what_is_written_under_it(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    page = with_free_ports(PAGE.read_text(encoding="utf-8"), PORTS)
    (definition,) = re.findall(r"```yaml\n(.*?)```", part(page), re.DOTALL)
    (tmp_path / "squares.yaml").write_text(definition, encoding="utf-8")
    assert try_page(page, tmp_path, PROGRAMS) >= 8


def commands() -> tuple[str, str]:
    """The two of the example: the cluster, and the run."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    first, second = re.findall(r"```sh\n(.*?)\n```", text, re.DOTALL)
    return first, second


@contextmanager
def cluster(command: str, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as out:
        started = subprocess.Popen(
            command.split(), cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield started
    finally:
        started.send_signal(signal.SIGINT)
        assert started.wait(HANG_SECONDS) == 0


@pytest.mark.soak
def test_the_example_runs_from_two_commands(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    start, run = commands()
    port = free_port()
    env = environment(tmp_path, PROGRAMS) | {"ANABRANCH_STORE": str(tmp_path / "runs.db")}
    words = run.replace("8786", str(port)).split()
    assert build().parse_args(words[1:]).cluster_pools == [f"heavy=dask://127.0.0.1:{port}"]
    with cluster(f"{start} {port}", env, tmp_path / "cluster.log"):
        done = subprocess.run(
            [*words, "--input", "blocks=100", "--json"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
    assert done.returncode == 0, (done.stderr, (tmp_path / "cluster.log").read_text())
    assert '"result":{"below":500000,"primes":41538}' in done.stdout.replace(" ", "")
    assert "is there: Dask" in done.stderr


def test_the_result_that_the_example_names_is_that_of_the_definition() -> None:
    """Of all of it, on this machine: a cluster counts no other primes."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    definition = (EXAMPLE / "primes.yaml").read_text(encoding="utf-8")
    blocks, size = (
        int(re.findall(rf"{name}: (\d+)", definition)[0]) for name in ("blocks", "size")
    )
    sieve = bytearray([1]) * (blocks * size)
    sieve[:2] = b"\0\0"
    for n in range(2, int(len(sieve) ** 0.5) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, len(sieve), n)))
    assert f'{{"below": {len(sieve)}, "primes": {sum(sieve)}}}' in text
