"""Settings of a test run, and a PostgreSQL server for the tests that need one: started once, on a
socket in a folder of its own, and shared by the processes of a whole run."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from anabranch.surfaces.cli import stop_signals
from postgres_server import shared_postgres
from seeds import FIRST, SHARE

# Nothing here calls anyone who needs an authority of the system, and every process that loads an
# HTTP client would read all of them, which takes a fifth of its start.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)
# argparse looks into many folders for a translation of each of its words, unless there can be none.
os.environ["LANGUAGE"] = "C"

# What must be quick is a benchmark: a busy machine may take any time for one example, also to make
# it up. As with other random cases, `make test` takes the same ones every time.
settings.register_profile(
    "anabranch",
    deadline=None,
    derandomize=not FIRST,
    max_examples=100 if SHARE >= 1 else 30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anabranch")


def pytest_configure() -> None:
    """Processes that tests start, and stop with a signal, are not to inherit that it is ignored.
    Nor that what they write may be changed by a group: such settings are refused."""
    stop_signals.hear()
    os.umask(0o022)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANABRANCH_SOAK"):
        return
    left = [item for item in items if item.get_closest_marker("soak")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The tests of a whole run and their modules are 700,000 objects that stay: the collector would
    look through all of them again and again, an eighth of the processor time of quick tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # what a test makes is mostly gone before it is looked at


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for all processes of a whole run."""
    given = os.environ.get("ANABRANCH_TEST_RUN")
    return Path(given) if given else tmp_path_factory.getbasetemp()


@pytest.fixture(scope="session")
def postgres(run_folder: Path) -> Iterator[str]:
    """The address of a database for this process; the server trusts who reaches its socket."""
    with shared_postgres(run_folder) as server:
        name = f"test_{os.getpid()}_{time.time_ns()}"  # ids of processes come again
        server.sql(f"create database {name}")
        yield server.uri(database=name)
