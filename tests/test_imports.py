"""How much a command loads: counted in modules, since no busy machine changes that figure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HELLO = Path(__file__).parents[1] / "examples" / "hello.yaml"
#: What a program that only runs playbooks never needs.
CLIENTS_AND_SERVERS = {
    *("aiohttp", "urllib3", "requests", "httpx", "http.client", "http.server", "urllib.request"),
    *("anabranch.surfaces.http", "anabranch.surfaces.ui", "anabranch.surfaces.worker"),
    *("psycopg", "duckdb", "pyarrow", "dask", "distributed", "ray", "cryptography", "eth_account"),
}
_LOADED = """
import json, sys
try:
    {code}
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(code: str, folder: Path) -> set[str]:
    """The modules of a fresh process that ran this."""
    command = [sys.executable, "-c", _LOADED.format(code=code)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return set(json.loads(done.stderr.splitlines()[-1]))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "anabranch"}


def command(*words: str) -> str:
    return f"sys.argv[1:] = {list(words)!r}; from anabranch.__main__ import main; main()"


def test_importing_anabranch_loads_neither_client_nor_server_nor_pages(tmp_path: Path) -> None:
    modules = loaded("import anabranch", tmp_path)
    assert not modules & CLIENTS_AND_SERVERS
    assert ours(modules) == {"anabranch", "anabranch.errors", "anabranch.version"}


@pytest.mark.parametrize("name", ["Engine", "run", "tool", "Toolbox", "Settings"])
def test_no_public_name_loads_a_client_or_a_server(name: str, tmp_path: Path) -> None:
    assert not loaded(f"from anabranch import {name}", tmp_path) & CLIENTS_AND_SERVERS


def test_asking_for_the_version_loads_four_modules(tmp_path: Path) -> None:
    assert len(ours(loaded(command("--version"), tmp_path))) == 4


def test_a_small_run_loads_what_it_uses_and_little_else(tmp_path: Path) -> None:
    """Of twelve hundred modules; 377 when this was written, 548 before kinds were loaded late."""
    modules = loaded(command("run", str(HELLO)), tmp_path)
    assert not modules & CLIENTS_AND_SERVERS
    assert len(ours(modules)) <= 400
    assert len(modules) <= 640
    unused = (
        "pools.wiring",
        "operations.schedules.scheduling",
        "work.sql.duckdb",
        "work.loops.shards",
        "work.chain.wiring",
        "store.memory.access",
        "operations.definitions.catalog",
    )
    assert not modules & {f"anabranch.{name}" for name in unused}


_COMPILED = """from pathlib import Path; from anabranch.dialects.registry import *; load_languages()
    for file in {files}: compile_source(Path(file).read_bytes(), any_tool=True)"""


def test_a_server_that_has_loaded_the_languages_loads_nothing_for_a_definition(
    tmp_path: Path,
) -> None:
    definitions = [str(path) for path in (HELLO, *(HELLO.parents[1] / "examples").rglob("*.yaml"))]
    before = loaded(_COMPILED.format(files=[]), tmp_path)
    assert ours(loaded(_COMPILED.format(files=definitions), tmp_path)) == ours(before)
