"""Some tests of the surfaces run twice: at the server that owns their runs, and at another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import elsewhere

FOLDERS = ("http", "ui")
HERE, ELSEWHERE = "here", "elsewhere"
#: What a server must do for every run, whoever owns it; these files are quick.
TWICE = (
    "http/resources/test_runs.py",
    "http/resources/test_webhooks.py",
    "http/resources/test_bulk.py",
    "ui/test_live.py",
)
_FILE = "it looks at the file of the store"
_ENGINE = "it looks into the engine that carries the run out"
_WORKERS = "it asks for jobs of runs that another server owns"
_OWN_TWO = "it opens its servers itself"
#: Files, or parts of the names of tests, that cannot hold at a server that owns nothing, and why.
ONLY_HERE = {
    "test_access.py::test_a_token_made_beside_a_running_server": _FILE,
    "test_access_ends.py::test_a_stream_ends_also_when_another_process": _FILE,
    "test_access_limits.py::test_a_server_whose_engine_has_stopped": _ENGINE,
    "test_damaged_runs.py": _FILE,
    "test_health_and_metrics.py::test_an_engine_wedged": _ENGINE,
    "test_health_and_metrics.py::test_an_engine_that_has_stopped": _ENGINE,
    "test_health_and_metrics.py::test_too_little_room": _FILE,
    "test_health_and_metrics.py::test_metrics_count": "a server counts what it does itself",
    "test_health_by_progress.py::test_a_tool_that_blocks": _ENGINE,
    "test_health_by_progress.py::test_a_store_without_room": _FILE,
    "test_health_by_progress.py::test_a_server_that_is_stopped_while_there_is_no_room": _FILE,
    "test_health_by_progress.py::test_a_job_that_no_worker_fetches": _WORKERS,
    "test_health_of_lost_files.py": _FILE,
    "test_job_holders.py": _WORKERS,
    "test_logs.py::test_lines_that_are_written_late": _ENGINE,
    "test_purge.py": _FILE,
    "test_two_servers.py": _OWN_TWO,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    file = Path(str(metafunc.module.__file__))
    if not any(folder in file.parts for folder in FOLDERS):
        return
    if elsewhere.ALWAYS:
        metafunc.parametrize("where", [ELSEWHERE], indirect=True, scope="module")
    elif str(file).endswith(TWICE):
        metafunc.parametrize("where", [HERE, ELSEWHERE], indirect=True, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = f"{item.path.name}::{item.name}"
        if ELSEWHERE in item.name:
            for part, why in ONLY_HERE.items():
                if name.startswith(part):
                    item.add_marker(pytest.mark.skip(reason=f"not elsewhere: {why}"))


@pytest.fixture(autouse=True, scope="module")
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    place: str = getattr(request, "param", HERE)
    if place == HERE:
        yield place
        return
    with elsewhere.on(request.getfixturevalue("postgres")):
        yield place
